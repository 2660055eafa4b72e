//! The command line as data: every command and flag, with the words that `--help` shows.

use clap::builder::NonEmptyStringValueParser;
use clap::{ArgAction, Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use jiff::SignedDuration;
use meridian_objects::Kind;
use std::path::PathBuf;

const AFTER_HELP: &str = "Exit codes: 0 done, 1 refused or failed, 2 wrong usage. Answers go to standard output, everything else to standard error.";

/// One global queue for accelerator workloads over many clusters.
#[derive(Debug, Parser)]
#[command(name = "meridian", version, after_help = AFTER_HELP, max_term_width = 120, disable_help_subcommand = true)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) globals: Globals,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Flags of every command.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Global options")]
pub(crate) struct Globals {
    /// Which manager to talk to [default: KUBECONFIG, then ./.meridian/kubeconfig, then ~/.meridian/kubeconfig]
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig, instead of its current one
    #[arg(long, global = true, value_name = "NAME")]
    pub(crate) context: Option<String>,
    /// Namespace [default: the context's, or `default`]
    #[arg(short, long, global = true, value_name = "NAME", value_parser = object_name)]
    pub(crate) namespace: Option<String>,
    /// How answers are written
    #[arg(short, long, global = true, value_name = "FORMAT")]
    pub(crate) output: Option<Format>,
    /// No colour; the variable NO_COLOR does the same
    #[arg(long, global = true)]
    pub(crate) no_color: bool,
    /// Say more on standard error; twice says each request
    #[arg(short, long, global = true, action = ArgAction::Count)]
    pub(crate) verbose: u8,
}

/// How an answer is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// JSON
    Json,
    /// YAML
    Yaml,
    /// A table with more columns
    Wide,
    /// Only kinds and names
    Name,
    /// For people: as without this flag
    Text,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Start a manager and three agents with simulated accelerators, submit, watch, and judge what was promised
    Demo(DemoArgs),
    /// Start the same fleet and keep it up
    Up(UpArgs),
    /// Run a manager
    Manager(Box<meridian_manager::server::ManagerArgs>),
    /// Create or change objects from files: all of them or none
    Apply(ApplyArgs),
    /// Create objects from files; a `generateName` is filled in
    Create(CreateArgs),
    /// Delete objects from files or by name
    Delete(DeleteArgs),
    /// Show objects
    Get(GetArgs),
    /// Show everything about one object
    Describe(DescribeArgs),
    /// Submit a job without writing YAML
    Submit(Box<SubmitArgs>),
    /// Decide on the objects of files alone: who is admitted with which flavors, who gives way, who waits and why
    Plan(Box<PlanArgs>),
    /// Take workloads out of the queue, and stop those that run, until they are resumed
    Stop(ActivityArgs),
    /// Put stopped workloads back into the queue, at their old place
    Resume(ActivityArgs),
    /// Say why a job runs where it does, or why it waits
    Why(WhyArgs),
    /// Show a job's output
    Logs(LogsArgs),
    /// Join, watch and retire worker clusters
    #[command(subcommand)]
    Cluster(ClusterCommand),
    /// Look after runs that no workload of the journal owns
    #[command(subcommand)]
    Orphan(OrphanCommand),
    /// Prove the audit log
    #[command(subcommand)]
    Audit(AuditCommand),
    /// Look after the manager's journal
    #[command(subcommand)]
    Journal(JournalCommand),
    /// Run or join the agent of a worker cluster
    #[command(subcommand)]
    Agent(meridian_agent::AgentCommand),
    /// Write completions for a shell to standard output
    Completion {
        /// Which shell
        shell: Shell,
    },
    /// Measure this machine: the figures of docs/performance.md
    Bench(BenchArgs),
    /// Show the version of this program
    Version,
}

/// `demo`
#[derive(Debug, Args)]
pub(crate) struct DemoArgs {
    /// How much faster than real time simulated jobs go; leases, polls and back-off go in real time
    /// (from 10 to 200; it takes longer than a minute below 20)
    #[arg(long, value_name = "N", default_value_t = 20.0, value_parser = demo_speed)]
    pub(crate) speed: f64,
    /// Keep the fleet up at the end, and its files
    #[arg(long)]
    pub(crate) keep: bool,
}

/// `up`
#[derive(Debug, Args)]
pub(crate) struct UpArgs {
    /// Which clusters, and what they have [default: three regions with 4 simulated T4 each]
    #[arg(long, value_name = "FILE")]
    pub(crate) fleet: Option<PathBuf>,
    /// Where everything is kept; starting there again goes on
    #[arg(long, value_name = "DIR", default_value = ".meridian")]
    pub(crate) data_dir: PathBuf,
    /// What runs jobs [default: as it was here before, else simulated]
    #[arg(long, value_enum)]
    pub(crate) runner: Option<UpRunner>,
    /// How much faster than real time simulated jobs go
    #[arg(long, value_name = "N", default_value_t = 1.0, value_parser = speed)]
    pub(crate) speed: f64,
    /// Where the manager listens
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:0")]
    pub(crate) listen: String,
}

fn speed(text: &str) -> Result<f64, String> {
    let number = text.parse::<f64>().map_err(|_| "it is no number".to_owned())?;
    if number > 0.0 && number <= meridian_agent::SPEED_MAX {
        Ok(number)
    } else {
        Err(format!("it is not above 0 and at most {}", meridian_agent::SPEED_MAX))
    }
}

/// Slower the jobs would outlive the acts, and faster they would be over before anybody looks.
fn demo_speed(text: &str) -> Result<f64, String> {
    speed(text).and_then(|number| {
        if (10.0..=200.0).contains(&number) { Ok(number) } else { Err("it is not from 10 to 200".to_owned()) }
    })
}

/// What runs the jobs of a fleet on this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum UpRunner {
    /// Nothing really runs: jobs take time and nothing else
    Simulated,
    /// Jobs run as processes of this machine, with your rights
    Process,
}

impl UpRunner {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Simulated => "simulated",
            Self::Process => "process",
        }
    }
}

/// `bench`
#[derive(Debug, Args)]
pub(crate) struct BenchArgs {
    /// What to measure
    #[arg(value_name = "MEASURE", value_enum, default_values_t = [BenchWhat::All])]
    pub(crate) what: Vec<BenchWhat>,
    /// Below which directory journals are kept meanwhile, to choose the disk [default: the system's for temporary files]
    #[arg(long, value_name = "DIR")]
    pub(crate) data_dir: Option<PathBuf>,
    /// Length of one run, in seconds
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u64).range(2..=600))]
    pub(crate) seconds: u64,
    /// Runs of each measure; the median counts
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=20))]
    pub(crate) runs: u32,
    /// Gangs in the queue whose memory and restart are measured
    #[arg(long, value_name = "N", default_value_t = 20_000, value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(100..=1_000_000))]
    pub(crate) gangs: usize,
    /// Chooses the shapes of the jobs
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
}

/// A measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum BenchWhat {
    /// Durable submissions per second
    Submissions,
    /// Gangs per second from submit to running
    Dispatches,
    /// Time from submit to running at a steady load
    Latency,
    /// Memory of the manager per queued gang
    Memory,
    /// Time until a killed manager is back
    Restart,
    /// Kueue's scheduler benchmark "baseline", in real time: 15,000 workloads of 30 queues
    KueueBaseline,
    /// Kueue's scheduler benchmark "large-scale", in real time: 50,000 workloads of 1,000 queues
    KueueLargeScale,
    /// All of them
    All,
}

/// `apply`
#[derive(Debug, Args)]
pub(crate) struct ApplyArgs {
    /// File or directory (*.yaml, *.yml, *.json, recursive, sorted), or - for standard input; may be repeated
    #[arg(short, long = "filename", value_name = "FILE", required = true, num_args = 1..)]
    pub(crate) files: Vec<PathBuf>,
    /// Read them as this worker cluster's own files: its caps and provider settings
    #[arg(long, value_name = "NAME", value_parser = object_name)]
    pub(crate) cluster: Option<String>,
    /// Let the manager judge, and change nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
}

/// `create`
#[derive(Debug, Args)]
pub(crate) struct CreateArgs {
    /// File or directory, or - for standard input; may be repeated
    #[arg(short, long = "filename", value_name = "FILE", required = true, num_args = 1..)]
    pub(crate) files: Vec<PathBuf>,
}

/// `delete`
#[derive(Debug, Args)]
pub(crate) struct DeleteArgs {
    /// KIND NAME.., or KIND/NAME..
    #[arg(value_name = "KIND NAME", required_unless_present = "files", conflicts_with = "files", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) targets: Vec<String>,
    /// File or directory, or - for standard input; may be repeated
    #[arg(short, long = "filename", value_name = "FILE", num_args = 1..)]
    pub(crate) files: Vec<PathBuf>,
    /// Wait until the objects are gone: a job stays until its gang has stopped
    #[arg(long)]
    pub(crate) wait: bool,
    /// An object that is not there is fine
    #[arg(long)]
    pub(crate) ignore_not_found: bool,
    /// A worker cluster's own: its caps and provider settings
    #[arg(long, value_name = "NAME", value_parser = object_name)]
    pub(crate) cluster: Option<String>,
}

/// `get`
#[derive(Debug, Args)]
pub(crate) struct GetArgs {
    /// KIND [NAME..], or KIND/NAME..; for example `jobs`, `cq`, `cluster eu`, `job/train`
    #[arg(value_name = "KIND NAME", required = true, value_parser = NonEmptyStringValueParser::new())]
    pub(crate) targets: Vec<String>,
    /// Go on and show every change
    #[arg(short, long)]
    pub(crate) watch: bool,
    /// Of all namespaces
    #[arg(short = 'A', long)]
    pub(crate) all_namespaces: bool,
    /// Only objects with these labels, such as `team=vision,tier!=test`
    #[arg(short = 'l', long, value_name = "SELECTOR", default_value = "")]
    pub(crate) selector: String,
    /// A worker cluster's own: its caps and provider settings
    #[arg(long, value_name = "NAME", value_parser = object_name)]
    pub(crate) cluster: Option<String>,
}

/// `describe`
#[derive(Debug, Args)]
pub(crate) struct DescribeArgs {
    /// KIND NAME.., or KIND/NAME..
    #[arg(value_name = "KIND NAME", required = true, value_parser = NonEmptyStringValueParser::new())]
    pub(crate) targets: Vec<String>,
}

/// `submit`
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct SubmitArgs {
    /// Local queue [default: the namespace's only one]
    #[arg(long, value_name = "NAME", value_parser = object_name)]
    pub(crate) queue: Option<String>,
    /// Name of the job [default: made from the command]
    #[arg(long, value_name = "NAME", value_parser = object_name)]
    pub(crate) name: Option<String>,
    /// Model of accelerator, such as nvidia-tesla-t4
    #[arg(long, value_name = "MODEL")]
    pub(crate) accelerator: Option<String>,
    /// Accelerators per node [default: 1 with --accelerator, else none]
    #[arg(long, value_name = "N")]
    pub(crate) count: Option<u32>,
    /// Nodes: pods that start together
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) nodes: u32,
    /// Cores per node, such as 4 or 500m
    #[arg(long, value_name = "AMOUNT")]
    pub(crate) cpu: Option<String>,
    /// Memory per node, such as 16Gi
    #[arg(long, value_name = "AMOUNT")]
    pub(crate) memory: Option<String>,
    /// Longest time that it runs, such as 2h
    #[arg(long, value_name = "TIME", value_parser = positive_duration)]
    pub(crate) max_run: Option<SignedDuration>,
    /// Only in this region; may be repeated
    #[arg(long, value_name = "REGION")]
    pub(crate) region: Vec<String>,
    /// Container image; clusters that run plain processes need none
    #[arg(long, value_name = "IMAGE")]
    pub(crate) image: Option<String>,
    /// Wait for the end; exit code 1 when the job fails
    #[arg(long)]
    pub(crate) wait: bool,
    /// What every pod runs
    #[arg(value_name = "CMD", last = true, required = true)]
    pub(crate) command: Vec<String>,
}

/// `plan`
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct PlanArgs {
    /// File or directory (*.yaml, *.yml, *.json, recursive, sorted), or - for standard input; may be repeated
    #[arg(short, long = "filename", value_name = "FILE", required = true, num_args = 1..)]
    pub(crate) files: Vec<PathBuf>,
    /// Stop after this many cycles [default: when nothing changes any more]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) cycles: Option<u32>,
    /// How many workloads of each queue one cycle looks at
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) heads_per_queue: u16,
    /// Fair sharing between cluster queues, with the rules of preemption in their order [default rules: both of Kueue's]
    #[arg(long, value_name = "RULE,RULE", num_args = 0..=1, require_equals = true, default_missing_value = "")]
    pub(crate) fair_sharing: Option<String>,
    /// Fair sharing between local queues by what they used before, such as half-life=168h,sampling=5m,weight.cpu=2
    #[arg(long, value_name = "KEY=VALUE,..")]
    pub(crate) admission_fair_sharing: Option<String>,
    /// What quota sees of what pods ask for: a file with the `resources` of Kueue's configuration
    #[arg(long, value_name = "FILE")]
    pub(crate) resources: Option<PathBuf>,
    /// The moment of the decision, such as 2026-06-01T12:00:00Z [default: now]
    #[arg(long, value_name = "TIME")]
    pub(crate) now: Option<String>,
    /// Kueue's feature gates, such as PartialAdmission=false; may be repeated
    #[arg(long, value_name = "NAME=BOOL,..", value_delimiter = ',')]
    pub(crate) feature_gates: Vec<String>,
    /// What becomes of a workload that asks for a resource which its queue doesn't declare
    #[arg(long, value_enum, default_value_t = QuotaCheck::BlockUndeclared)]
    pub(crate) quota_check_strategy: QuotaCheck,
    /// Ask the manager what is there, and say what these files would change
    #[arg(long)]
    pub(crate) what_if: bool,
}

/// What becomes of a workload that asks for a resource which its queue doesn't declare.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "PascalCase")]
pub(crate) enum QuotaCheck {
    /// The resource doesn't count
    IgnoreUndeclared,
    /// It is not admitted
    #[default]
    BlockUndeclared,
}

/// `stop` and `resume`
#[derive(Debug, Args)]
pub(crate) struct ActivityArgs {
    /// workload NAME.. or job NAME..; a workload is known by its own name and by its job's
    #[arg(value_name = "KIND NAME", required = true, value_parser = NonEmptyStringValueParser::new())]
    pub(crate) targets: Vec<String>,
}

/// `why`
#[derive(Debug, Args)]
pub(crate) struct WhyArgs {
    /// Name of the job, or job/NAME
    #[arg(value_parser = job_name)]
    pub(crate) name: String,
}

/// `logs`
#[derive(Debug, Args)]
pub(crate) struct LogsArgs {
    /// Name of the job, or job/NAME
    #[arg(value_parser = job_name)]
    pub(crate) name: String,
    /// Go on until the job ends
    #[arg(short, long)]
    pub(crate) follow: bool,
    /// Only this pod, by its index
    #[arg(long, value_name = "N")]
    pub(crate) pod: Option<u32>,
    /// Only this many lines from the end
    #[arg(long, value_name = "N")]
    pub(crate) tail: Option<u64>,
}

/// `cluster …`
#[derive(Debug, Subcommand)]
pub(crate) enum ClusterCommand {
    /// Print the one command that joins a worker cluster; run it over there
    Join {
        /// What the cluster will be called
        #[arg(value_parser = object_name)]
        name: String,
        /// Where it is, such as europe-west4
        #[arg(long)]
        region: String,
        /// Whose law holds there, such as EU
        #[arg(long)]
        jurisdiction: String,
        /// How long the command works [default: the manager's, an hour]
        #[arg(long, value_name = "TIME", value_parser = positive_duration)]
        ttl: Option<SignedDuration>,
        /// Take the place of a cluster of this name
        #[arg(long)]
        replace: bool,
    },
    /// Show the worker clusters
    List,
    /// Let a cluster have work although no other cluster has acknowledged its name yet
    Admit {
        /// The cluster
        #[arg(value_parser = object_name)]
        name: String,
    },
    /// Keep new work away from a cluster
    Cordon {
        /// The cluster
        #[arg(value_parser = object_name)]
        name: String,
    },
    /// Let a cluster have work again
    Uncordon {
        /// The cluster
        #[arg(value_parser = object_name)]
        name: String,
    },
    /// Keep new work away and move what runs there elsewhere
    Drain {
        /// The cluster
        #[arg(value_parser = object_name)]
        name: String,
    },
    /// Declare, as a person, that nothing runs on a cluster any more: its work may start elsewhere at once
    DeclareLost {
        /// The cluster
        #[arg(value_parser = object_name)]
        name: String,
        /// Only if this is the ledger that was lost [default: the newest]
        #[arg(long, value_name = "ID")]
        ledger: Option<String>,
        /// The cluster's name once more: if something still runs there, it runs twice
        #[arg(long, value_name = "NAME")]
        confirm: Option<String>,
    },
}

/// `orphan …`
#[derive(Debug, Subcommand)]
pub(crate) enum OrphanCommand {
    /// Show them
    List,
    /// Stop one
    Stop {
        /// Its uid
        uid: String,
        /// Its fence [default: its newest attempt]
        #[arg(long)]
        fence: Option<String>,
    },
    /// Give one its job back, so that it is renewed again and ends as any job does
    Adopt {
        /// Its uid
        uid: String,
        /// The job's file as it was submitted, or - for standard input
        #[arg(short, long = "filename", value_name = "FILE")]
        file: PathBuf,
        /// Its fence [default: its newest attempt]
        #[arg(long)]
        fence: Option<String>,
    },
}

/// `audit …`
#[derive(Debug, Subcommand)]
pub(crate) enum AuditCommand {
    /// Check the hash chain of the audit log
    Verify {
        /// Exported lines, or - for standard input [default: ask the manager]
        file: Option<PathBuf>,
        /// A head that was printed earlier: finds a cut tail and a rewritten log
        #[arg(long, value_name = "NUMBER:HASH")]
        expect_head: Option<String>,
        /// The exported lines are a part that begins at this line: the hash before it is taken as given
        #[arg(long, value_name = "NUMBER", requires = "file", value_parser = clap::value_parser!(u64).range(1..))]
        from: Option<u64>,
    },
    /// Write the audit log to standard output, a JSON line each
    Export {
        /// From this line on
        #[arg(long, value_name = "NUMBER", default_value_t = 1)]
        from: u64,
    },
}

/// `journal …`
#[derive(Debug, Subcommand)]
pub(crate) enum JournalCommand {
    /// Show what is in a journal's file; its manager must be stopped
    Inspect {
        /// The file
        path: PathBuf,
        /// Also show each record after the snapshot
        #[arg(long)]
        records: bool,
    },
    /// Copy the journal of a stopped manager; the copy is there whole or not at all
    Backup {
        /// The journal's file
        path: PathBuf,
        /// Where the copy goes; nothing may be there
        to: PathBuf,
    },
    /// Put a backup in a lost journal's place; its manager then recovers and waits for a person's word
    Restore {
        /// The backup
        backup: PathBuf,
        /// The journal's file; nothing may be there
        to: PathBuf,
    },
    /// Whether the manager is recovering, and what it waits for
    Recovery,
    /// Confirm, as a person, that no other copy of the journal runs and that its rules are the right ones
    Confirm {
        /// Without this nothing is done
        #[arg(long)]
        yes: bool,
    },
}

/// A name that can stand in a URL. Whether Kubernetes would take it is the manager's answer.
fn object_name(text: &str) -> Result<String, String> {
    let fits = !text.is_empty()
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_'))
        && !matches!(text, "." | "..");
    if fits { Ok(text.to_owned()) } else { Err("a name has letters, digits, `-` and `.`".to_owned()) }
}

/// A job's name, with its kind before it or without.
fn job_name(text: &str) -> Result<String, String> {
    match text.split_once('/') {
        Some((kind, name)) if matches!(Kind::from_word(kind), Some(Kind::Job | Kind::Workload)) => {
            object_name(name)
        }
        Some((kind, _)) => Err(format!("`{kind}` is neither a job nor a workload: write NAME or job/NAME")),
        None => object_name(text),
    }
}

fn positive_duration(text: &str) -> Result<SignedDuration, String> {
    let duration: Result<SignedDuration, _> = text.parse();
    duration
        .ok()
        .filter(|duration| duration.as_secs() > 0)
        .ok_or_else(|| "write a time of at least a second, such as 90s, 15m or 2h".to_owned())
}

/// [`object_name`] for words that are not arguments of their own.
pub(crate) fn is_object_name(text: &str) -> bool {
    object_name(text).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn usage_errors_exit_with_two() {
        let check = |line: &str| {
            assert_eq!(Cli::try_parse_from(line.split(' ')).unwrap_err().exit_code(), 2, "{line}")
        };
        check("meridian fly");
        check("meridian apply");
        check("meridian why ../x");
        check("meridian logs cq/x");
        check("meridian submit --nodes 0 -- true");
        check("meridian submit --max-run soon -- true");
        check("meridian submit");
        check("meridian get jobs -o xml");
        check("meridian delete job x -f y");
        check("meridian agent run --speed fast");
        assert_eq!(Cli::try_parse_from(["meridian", "--help"]).unwrap_err().exit_code(), 0);
    }

    #[test]
    fn global_flags_stand_anywhere() {
        let cli =
            Cli::try_parse_from(["meridian", "get", "jobs", "-n", "research", "-o", "json", "-vv"]).unwrap();
        assert_eq!(cli.globals.namespace.as_deref(), Some("research"));
        assert_eq!((cli.globals.output, cli.globals.verbose), (Some(Format::Json), 2));
        let cli = Cli::try_parse_from(["meridian", "submit", "--nodes", "2", "--", "sh", "-c", "echo -n x"])
            .unwrap();
        let Command::Submit(submit) = cli.command else { panic!("not a submit") };
        assert_eq!(submit.command, ["sh", "-c", "echo -n x"]);
        for word in ["train", "job/train", "jobs.batch/train", "wl/train"] {
            let Command::Logs(logs) = Cli::try_parse_from(["meridian", "logs", word]).unwrap().command else {
                panic!("not logs")
            };
            assert_eq!(logs.name, "train");
        }
    }
}
