//! The page about settings: flags of `meridian manager` and `meridian agent run`.

use super::{HEAD, cell};
use clap::{Arg, Args, Command};
use meridian_agent::AgentArgs;
use meridian_manager::server::ManagerArgs;
use std::fmt::Write as _;

const INTRODUCTION: &str = "\
# Settings

Settings of the manager and of an agent. A flag goes before its environment variable, and that before the file
that `--config` names. The file is YAML; its keys are the flags without `--`.

";

pub(crate) fn page() -> String {
    let mut text = format!("{HEAD}{INTRODUCTION}");
    let manager = ManagerArgs::augment_args(Command::new("manager"));
    let agent = AgentArgs::augment_args(Command::new("run"));
    for (title, command) in [("`meridian manager`", manager), ("`meridian agent run`", agent)] {
        let _ = writeln!(text, "## {title}\n\n| flag | variable | meaning |\n|---|---|---|");
        for arg in command.get_arguments().filter(|arg| !arg.is_hide_set()) {
            write_row(&mut text, arg);
        }
        text.push('\n');
    }
    text.trim_end().to_owned() + "\n"
}

fn write_row(text: &mut String, arg: &Arg) {
    let Some(flag) = arg.get_long() else { return };
    let variable = arg.get_env().map(|name| format!("`{}`", name.to_string_lossy())).unwrap_or_default();
    let takes_value = arg.get_action().takes_values();
    let value = arg.get_value_names().and_then(|names| names.first()).filter(|_| takes_value);
    let value = value.map(|name| format!(" {name}")).unwrap_or_default();
    let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
    let choices: Vec<String> =
        arg.get_possible_values().iter().map(|choice| format!("`{}`", choice.get_name())).collect();
    let choices =
        if choices.is_empty() || !takes_value { String::new() } else { format!(": {}", choices.join(", ")) };
    let _ = writeln!(text, "| `--{flag}{}` | {variable} | {}{choices} |", cell(&value), cell(&help));
}
