//! Errors of the audit log's files.

use crate::journal;
use std::io;
use std::path::{Path, PathBuf};

/// Why the audit log can't be read, rotated or exported.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot {verb} `{}`", path.display())]
    Io {
        verb: &'static str,
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error(transparent)]
    File(#[from] meridian_private_files::Error),
    #[error(transparent)]
    Journal(#[from] journal::Error),
    #[error("`{}` is damaged: {what}", path.display())]
    Damaged { path: PathBuf, what: String },
    #[error("line {line} of the audit log is missing: its segment is not in `{}`", directory.display())]
    Missing { line: u64, directory: PathBuf },
    #[error(
        "lines 1 to {last} of the audit log were exported and removed, as `--audit-keep-segments` or \
         `--audit-keep-size` demands: ask for lines from {} on, and read earlier lines in the export",
        last + 1
    )]
    Removed { last: u64 },
    #[error("the key `{}` can't be used: {what}", path.display())]
    Key { path: PathBuf, what: String },
    #[error("the engine didn't commit the cut; trying again")]
    NotCut,
}

impl Error {
    pub(super) fn io<'a>(verb: &'static str, path: &'a Path) -> impl FnOnce(io::Error) -> Self + 'a {
        move |source| Self::Io { verb, path: path.to_owned(), source }
    }
}
