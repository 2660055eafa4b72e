//! Commands on what the manager records: `audit`, `journal`.

use clap::Subcommand;
use std::path::PathBuf;

#[derive(Debug, Subcommand)]
pub(crate) enum AuditCommand {
    /// Verify the audit log: hashes, the chain of segments and their signatures
    Verify {
        /// Exported log or - for standard input, data directory of a stopped manager, or directory of
        /// exported segments [default: the manager's log]
        path: Option<PathBuf>,
        /// A head printed earlier; also detects a truncated or rewritten log
        #[arg(long, value_name = "NUMBER:HASH")]
        expect_head: Option<String>,
        /// Verify a part that begins at this line, trusting the hash before it
        #[arg(
            long,
            value_name = "NUMBER",
            requires = "path",
            value_parser = clap::value_parser!(u64).range(1..)
        )]
        from: Option<u64>,
        /// Public key that may sign; can be repeated [default: that of the manager or data directory]
        #[arg(long, value_name = "FILE")]
        public_key: Vec<PathBuf>,
    },
    /// Print the audit log, one JSON document per line
    Export {
        /// First line to print [default: the first that the manager keeps]
        #[arg(long, value_name = "NUMBER")]
        from: Option<u64>,
        /// Print everything, with the signed seals of segments
        #[arg(long, conflicts_with = "from")]
        seals: bool,
    },
    /// Print the public key that signs segments
    Key {
        /// Data directory [default: ask the manager]
        data_dir: Option<PathBuf>,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum JournalCommand {
    /// Show the content of a stopped manager's journal
    Inspect {
        /// The journal file
        path: PathBuf,
        /// Also show every record since the snapshot
        #[arg(long)]
        records: bool,
    },
    /// Copy a stopped manager's journal
    Backup {
        /// The journal file
        path: PathBuf,
        /// Path of the copy; must not exist
        to: PathBuf,
    },
    /// Restore a lost journal from a backup; its manager then waits for `journal confirm`
    Restore {
        /// The backup file
        backup: PathBuf,
        /// Path of the journal; must not exist
        to: PathBuf,
    },
    /// Show whether the manager is recovering, and what it waits for
    Recovery,
    /// Confirm that no other copy of the journal runs and that policies and quotas are current
    Confirm {
        /// Confirm; without this flag, only show which clusters are missing and until when workloads are held
        #[arg(long)]
        yes: bool,
    },
}
