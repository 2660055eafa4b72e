//! Progress of a long wait: a spinner if standard error is a terminal, else a line per change.

use super::printable;
use super::streams::Streams;
use indicatif::{ProgressBar, ProgressStyle};
use std::time::Duration;

/// Time between two frames of the spinner.
const TICK: Duration = Duration::from_millis(100);
/// Columns of a message: with the spinner in front it still fits one line of 80 columns.
const MESSAGE_COLUMNS: usize = 64;

#[derive(Debug)]
pub(crate) struct Progress {
    spinner: Option<ProgressBar>,
    last: String,
}

impl Progress {
    pub(crate) fn begin(out: &Streams) -> Self {
        let spinner = out.notes_to_terminal.then(|| {
            let style = ProgressStyle::with_template("{spinner} {elapsed} {msg}")
                .expect("the template is a constant");
            let spinner = ProgressBar::new_spinner().with_style(style);
            spinner.enable_steady_tick(TICK);
            spinner
        });
        Self { spinner, last: String::new() }
    }

    /// Shows what is awaited now; nothing if the message hasn't changed.
    pub(crate) fn update(&mut self, out: &mut Streams, message: &str) {
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

    /// Removes the spinner.
    pub(crate) fn end(self) {
        if let Some(spinner) = self.spinner {
            spinner.finish_and_clear();
        }
    }
}
