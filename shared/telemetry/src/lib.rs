//! Logs and traces, the same for manager and agent.
//!
//! ```text
//! init   logs to stderr as text or JSON; traces over OTLP only where an endpoint is set
//! trace  W3C trace context; ids derived from a workload's uid; spans of a submission and its legs
//! otlp   the exporter, on its own small runtime
//! causes errors with their causes, as both print them
//! ```
//!
//! Logs stay in the place where they are written, under its residency rules. Exported traces leave that
//! place, so they contain only ids. Invariant: only spans with the target [`trace::TARGET`] are exported, and
//! no events, so that no log message or name is exported.

mod causes;
mod otlp;
pub mod trace;

pub use causes::with_causes;
pub use otlp::check_endpoint;

use opentelemetry_sdk::trace::SdkTracer;
use std::str::FromStr;
use tracing::Subscriber;
use tracing_subscriber::filter::{EnvFilter, FilterFn};
use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;

/// Default log filter, without `RUST_LOG`.
const DEFAULT_FILTER: &str = "info";

/// Format of log lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

impl FromStr for Format {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "text" => Ok(Self::Text),
            "json" => Ok(Self::Json),
            other => Err(format!("`{other}` is not a log format; use `text` or `json`")),
        }
    }
}

impl Format {
    /// The format from the command line, else from the settings file, else the default. Fails if the file
    /// names an unknown format.
    pub fn choose(given: Option<Self>, filed: Option<String>) -> Result<Self, String> {
        match (given, filed) {
            (Some(format), _) => Ok(format),
            (None, Some(text)) => text.parse(),
            (None, None) => Ok(Self::default()),
        }
    }
}

/// Why telemetry could not start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("`RUST_LOG` can't be read: {0}; an example is `info,meridian_manager=debug`")]
    Filter(#[from] tracing_subscriber::filter::FromEnvError),
    #[error("cannot export traces to `{endpoint}`: {reason}")]
    Exporter { endpoint: String, reason: String },
    #[error("logging was set up twice in one process")]
    Twice(#[from] tracing_subscriber::util::TryInitError),
}

/// Keeps telemetry running; flushes traces when dropped.
#[must_use = "traces stop when the guard is dropped"]
#[derive(Debug)]
pub struct Guard {
    _exporter: Option<otlp::Exporter>,
}

/// Sets up logs for the whole process, and traces if `otlp_endpoint` (such as `http://127.0.0.1:4318`) is
/// given.
///
/// # Errors
/// `RUST_LOG` can't be read, the exporter can't be made, or logging was set up before.
pub fn init(format: Format, service_name: &str, otlp_endpoint: Option<&str>) -> Result<Guard, Error> {
    let filter = match std::env::var_os("RUST_LOG") {
        Some(_) => EnvFilter::try_from_default_env()?,
        None => EnvFilter::new(DEFAULT_FILTER),
    };
    let stderr = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    let logs = match format {
        Format::Text => stderr.with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr())).boxed(),
        Format::Json => stderr.json().flatten_event(true).boxed(),
    };
    let exporter = otlp_endpoint.map(|endpoint| otlp::Exporter::start(endpoint, service_name)).transpose()?;
    let spans = exporter.as_ref().map(|exporter| exported(exporter.tracer()));
    tracing_subscriber::registry().with(logs.with_filter(filter)).with(spans).try_init()?;
    Ok(Guard { _exporter: exporter })
}

/// Exports live spans with [`trace::TARGET`], without events and without source locations.
fn exported<S: Subscriber + for<'a> LookupSpan<'a>>(tracer: SdkTracer) -> impl Layer<S> {
    let only_ours: FilterFn =
        FilterFn::new(|metadata| metadata.is_span() && metadata.target() == trace::TARGET);
    let layer = tracing_opentelemetry::layer().with_location(false).with_threads(false).with_target(false);
    layer.with_tracer(tracer).with_filter(only_ours)
}

#[cfg(test)]
mod tests {
    use super::*;
    use meridian_shared::ids::{OfferId, Uid};
    use opentelemetry::trace::TracerProvider;
    use trace::tests::Kept;
    use trace::{TraceParent, leg_span};

    #[test]
    fn only_live_spans_of_legs_are_exported() {
        let kept = Kept::default();
        let provider =
            opentelemetry_sdk::trace::SdkTracerProvider::builder().with_simple_exporter(kept.clone()).build();
        let offer = OfferId { epoch: 1, leadership: 2, counter: 3 };
        tracing::subscriber::with_default(
            tracing_subscriber::registry().with(exported(provider.tracer("test"))),
            || {
                let _other = tracing::info_span!("a span with a name in it", job = "secret-name").entered();
                let _span = leg_span(Uid(5), offer, &"eu".into()).entered();
                tracing::info!(job = "secret-name", "an event");
            },
        );
        let spans = kept.0.lock().unwrap().clone();
        let [span] = spans.as_slice() else { panic!("{} spans", spans.len()) };
        let parent = format!("00-{}-{}-01", span.span_context.trace_id(), span.parent_span_id);
        assert_eq!(parent, TraceParent::of_leg(Uid(5), offer).to_string());
        assert!(!format!("{span:?}").contains("secret-name"), "{span:?}");
    }

    #[test]
    fn endpoints_that_take_no_spans_are_refused() {
        for good in ["http://127.0.0.1:4318", "https://collector.example/otlp/"] {
            check_endpoint(good).unwrap();
        }
        for bad in ["ftp://x", "127.0.0.1:4318", "collector", "http://", "http://x?y=1"] {
            assert!(check_endpoint(bad).unwrap_err().contains("`http://127.0.0.1:4318`"), "{bad}");
        }
        assert!(matches!(init(Format::Text, "test", Some("ftp://x")), Err(Error::Exporter { .. })));
    }

    #[test]
    fn an_unknown_log_format_is_refused_with_the_choices() {
        assert_eq!("json".parse(), Ok(Format::Json));
        assert!("xml".parse::<Format>().unwrap_err().contains("`text` or `json`"));
    }

    #[test]
    fn the_command_line_decides_on_the_log_format_before_the_file() {
        let choose = |given, filed: Option<&str>| Format::choose(given, filed.map(str::to_owned));
        assert_eq!(choose(Some(Format::Text), Some("json")), Ok(Format::Text));
        assert_eq!(choose(None, Some("json")), Ok(Format::Json));
        assert_eq!(choose(None, None), Ok(Format::Text));
        assert!(choose(None, Some("xml")).is_err());
    }
}
