//! Why a command failed, and its exit code: 0 done, 1 refused or failed, 2 wrong usage, 130 interrupted.

pub(crate) mod files;

use crate::client;
use crate::client::kubeconfig;
use std::fmt;
use std::io;

/// Exit code of a command that was refused or failed.
pub(crate) const EXIT_FAILED: u8 = 1;
/// Exit code of a wrong command line; clap uses the same.
pub(crate) const EXIT_USAGE: u8 = 2;
/// Exit code of a command that Ctrl-C or SIGTERM ended before its work was done; shells use the same.
pub(crate) const EXIT_INTERRUPTED: u8 = 130;

#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The arguments contradict each other or name something that can't exist.
    #[error("{0}")]
    Usage(String),
    /// The manager or a check of this program refused.
    #[error("{0}")]
    Refused(String),
    /// Ctrl-C or SIGTERM ended it before its work was done.
    #[error("interrupted")]
    Interrupted,
    /// The errors were printed already, one per object.
    #[error("not everything was done")]
    Reported,
    #[error(transparent)]
    Kubeconfig(#[from] kubeconfig::Error),
    #[error(transparent)]
    Client(#[from] client::Error),
    #[error(transparent)]
    Files(#[from] files::Error),
    #[error("can't write to standard output: {0}")]
    Output(#[from] io::Error),
    #[error("can't print the answer as {0}: {1}")]
    Render(&'static str, String),
}

impl Error {
    pub(crate) fn render(format: &'static str, why: impl fmt::Display) -> Self {
        Self::Render(format, why.to_string())
    }

    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::Usage(_) => EXIT_USAGE,
            Self::Interrupted => EXIT_INTERRUPTED,
            // The reader, such as `head`, has read enough.
            Self::Output(error) if error.kind() == io::ErrorKind::BrokenPipe => 0,
            Self::Refused(_)
            | Self::Reported
            | Self::Kubeconfig(_)
            | Self::Client(_)
            | Self::Files(_)
            | Self::Output(_)
            | Self::Render(..) => EXIT_FAILED,
        }
    }

    /// Whether the error needs no further message.
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
    fn a_closed_pipe_is_not_a_failure() {
        let closed = Error::Output(io::ErrorKind::BrokenPipe.into());
        assert!(closed.is_silent() && closed.exit_code() == 0);
        let full = Error::Output(io::ErrorKind::StorageFull.into());
        assert!(!full.is_silent() && full.exit_code() == EXIT_FAILED);
        assert_eq!(Error::Usage(String::new()).exit_code(), EXIT_USAGE);
        assert!(!Error::Interrupted.is_silent() && Error::Interrupted.exit_code() == 130);
        assert!(Error::Reported.is_silent() && Error::Reported.exit_code() == EXIT_FAILED);
    }
}
