//! Why manifests can't be read, or may not be used.

use std::io;
use std::path::PathBuf;

#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("can't read `{}`: {source}", path.display())]
    Read {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error(
        "`{url}` is a web address, and meridian reads only files: save it with `curl -fsSL {url} -o FILE`, \
         look at it, and name the file instead"
    )]
    Url { url: String },
    #[error("`{}` has no .yaml, .yml or .json file", path.display())]
    EmptyDirectory { path: PathBuf },
    /// The position counts from 1, columns in characters.
    #[error("{name}:{line}:{column}: not UTF-8 text; save the file as UTF-8")]
    NotText { name: String, line: usize, column: usize },
    #[error("`{}` {what}: name fewer or smaller files", path.display())]
    TooMuch { path: PathBuf, what: String },
    /// Everything that is wrong with the objects.
    #[error("{problems}\n{count} found; nothing was {undone}")]
    Problems {
        /// `file:line:column: field: message; remedy`, one per line.
        problems: String,
        /// `1 problem` or `7 problems`.
        count: String,
        /// The action that failed, as a participle: `applied` or `decided`.
        undone: &'static str,
    },
    #[error("there is no object in the given files")]
    NoObjects,
}
