//! How long a run may take.

use super::*;

#[test]
fn a_run_ends_with_the_time_of_its_machines() {
    let deadline = |start: &Start| {
        let job = manifest::build(start, "worker-eu", None).unwrap().manifest;
        job["spec"]["activeDeadlineSeconds"].clone()
    };
    assert_eq!(deadline(&manifest::within(start(4), Millis::secs(60))), 60, "they were provisioned earlier");
    assert_eq!(deadline(&manifest::within(start(4), Millis::secs(600))), 91, "the job's own time is shorter");
    let unlimited = Start { run_left: None, ..start(4) };
    assert_eq!(deadline(&manifest::within(unlimited, Millis::secs(600))), 600);
}
