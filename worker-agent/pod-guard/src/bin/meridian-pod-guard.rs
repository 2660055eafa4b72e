//! The program of the guard.

use std::process::ExitCode;

fn main() -> ExitCode {
    match meridian_pod_guard::parse(std::env::args_os().skip(1)) {
        Ok(args) => meridian_pod_guard::main(args),
        Err(why) => {
            eprintln!("{}: {why}", meridian_pod_guard::PROGRAM);
            ExitCode::from(meridian_pod_guard::FAILED)
        }
    }
}
