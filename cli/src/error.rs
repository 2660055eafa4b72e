//! Why a command did not do what was asked, and the exit code that says so: 0 done, 1 refused or failed, 2 wrong usage.

use crate::{audit, client, files, kubeconfig, selector};
use std::io;

/// The exit code of a command that was refused or failed.
pub(crate) const EXIT_FAILED: u8 = 1;
/// The exit code of a command line that makes no sense; clap uses the same.
pub(crate) const EXIT_USAGE: u8 = 2;

/// Why a command ended without having done everything.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The arguments contradict each other or name something that can't exist.
    #[error("{0}")]
    Usage(String),
    /// The manager or a rule of ours said no, in these words.
    #[error("{0}")]
    Refused(String),
    /// Everything was said already.
    #[error("not everything was done")]
    Reported,
    /// No access to a manager.
    #[error(transparent)]
    Kubeconfig(#[from] kubeconfig::Error),
    /// The manager could not be asked, or answered with an error.
    #[error(transparent)]
    Client(#[from] client::Error),
    /// Files could not be read.
    #[error(transparent)]
    Files(#[from] files::Error),
    /// A selector that is none.
    #[error(transparent)]
    Selector(#[from] selector::Error),
    /// An audit log that does not hold.
    #[error(transparent)]
    Audit(#[from] audit::Error),
    /// Standard output is gone or full.
    #[error("can't write the answer: {0}")]
    Output(#[from] io::Error),
    /// The answer can't be shown in the wanted form.
    #[error("can't show the answer as {0}: {1}")]
    Render(&'static str, String),
}

impl Error {
    /// What the process exits with.
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::Usage(_) | Self::Selector(_) => EXIT_USAGE,
            // whoever closed the pipe, `head` for one, has seen enough
            Self::Output(error) if error.kind() == io::ErrorKind::BrokenPipe => 0,
            Self::Refused(_)
            | Self::Reported
            | Self::Kubeconfig(_)
            | Self::Client(_)
            | Self::Files(_)
            | Self::Audit(_)
            | Self::Output(_)
            | Self::Render(..) => EXIT_FAILED,
        }
    }

    /// Whether there is anything left to say.
    pub(crate) fn is_silent(&self) -> bool {
        match self {
            Self::Reported => true,
            Self::Output(error) => error.kind() == io::ErrorKind::BrokenPipe,
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_closed_pipe_is_no_failure() {
        let closed = Error::Output(io::ErrorKind::BrokenPipe.into());
        assert!(closed.is_silent() && closed.exit_code() == 0);
        let full = Error::Output(io::ErrorKind::StorageFull.into());
        assert!(!full.is_silent() && full.exit_code() == EXIT_FAILED);
        assert_eq!(Error::Usage(String::new()).exit_code(), EXIT_USAGE);
        assert!(Error::Reported.is_silent() && Error::Reported.exit_code() == EXIT_FAILED);
    }
}
