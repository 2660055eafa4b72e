//! Signs of life during a long wait: a spinner on a terminal's standard error, a line per change elsewhere.

use crate::out::Out;
use crate::printable;
use indicatif::{ProgressBar, ProgressStyle};
use std::time::Duration;

/// Time between two pictures of the spinner; ten a second look alive and cost nothing.
const TICK: Duration = Duration::from_millis(100);
/// Columns of a message, so that the spinner's line never breaks in two on a usual terminal.
const MESSAGE_COLUMNS: usize = 76;

/// A wait that shows what it waits for.
#[derive(Debug)]
pub(crate) struct Progress {
    spinner: Option<ProgressBar>,
    last: String,
}

impl Progress {
    /// A wait that has not said anything yet.
    pub(crate) fn begin(out: &Out) -> Self {
        let spinner = out.notes_to_terminal.then(|| {
            let style = ProgressStyle::with_template("{spinner} {elapsed} {msg}")
                .expect("the template is a constant");
            let spinner = ProgressBar::new_spinner().with_style(style);
            spinner.enable_steady_tick(TICK);
            spinner
        });
        Self { spinner, last: String::new() }
    }

    /// Says what is being waited for now; the same words again say nothing.
    pub(crate) fn say(&mut self, out: &mut Out, message: &str) {
        if self.last == message {
            return;
        }
        message.clone_into(&mut self.last);
        match &self.spinner {
            Some(spinner) => {
                spinner.set_message(printable::fit(&printable::line(message), MESSAGE_COLUMNS).into_owned())
            }
            None => out.note(message),
        }
    }

    /// Leaves nothing behind on a terminal.
    pub(crate) fn end(self) {
        if let Some(spinner) = self.spinner {
            spinner.finish_and_clear();
        }
    }
}
