//! One trace per submission, across all restarts.
//!
//! A workload's trace id is its uid. The span ids of the submission and of its legs are derived from uid and
//! offer. So any process can name a parent span that another process, or the same process after a restart,
//! will emit. A span is emitted once, at its end, with times from the journal. Context travels as W3C
//! `traceparent` (<https://www.w3.org/TR/trace-context/#traceparent-header>).

use meridian_shared::ids::{ClusterName, Fence, OfferId, Uid};
use meridian_shared::time::Wall;
use opentelemetry::trace::{
    Span as _, SpanContext, SpanId, SpanKind, Status, TraceContextExt, TraceFlags, TraceId, TraceState,
    Tracer, TracerProvider,
};
use opentelemetry::{Context, KeyValue, global};
use opentelemetry_sdk::trace::{IdGenerator, RandomIdGenerator};
use sha2::{Digest, Sha256};
use std::cell::Cell;
use std::fmt;
use std::str::FromStr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tracing_opentelemetry::OpenTelemetrySpanExt;

/// Target of spans that may be exported. Their fields are ids, never a user's text.
pub const TARGET: &str = "meridian::trace";

/// The id of a trace, in the form of W3C's standard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Trace(u128);

impl Trace {
    /// The trace of a workload.
    pub fn of_workload(uid: Uid) -> Self {
        Self(trace_id(uid))
    }
}

impl fmt::Display for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// A position in a trace: the trace, and the parent of the next span.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TraceParent {
    trace: u128,
    span: u64,
}

impl TraceParent {
    /// The span of the whole submission of `uid`.
    pub fn of_submission(uid: Uid) -> Self {
        Self { trace: trace_id(uid), span: span_id(&[b"submission", &uid.0.to_be_bytes()]) }
    }

    /// The span of the leg that `offer` opened for `uid`.
    pub fn of_leg(uid: Uid, offer: OfferId) -> Self {
        let numbers = [offer.epoch, offer.leadership, offer.counter].map(u64::to_be_bytes);
        let [epoch, leadership, counter] = &numbers;
        Self {
            trace: trace_id(uid),
            span: span_id(&[b"leg", &uid.0.to_be_bytes(), epoch, leadership, counter]),
        }
    }

    /// The trace of this position.
    pub fn trace(&self) -> Trace {
        Trace(self.trace)
    }

    fn context(self) -> Context {
        let context = SpanContext::new(
            TraceId::from(self.trace),
            SpanId::from(self.span),
            TraceFlags::SAMPLED,
            true,
            TraceState::default(),
        );
        Context::new().with_remote_span_context(context)
    }
}

impl fmt::Display for TraceParent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "00-{:032x}-{:016x}-01", self.trace, self.span)
    }
}

impl FromStr for TraceParent {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        parsed(text).ok_or_else(|| {
            "not a W3C `traceparent`, such as `00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01`"
                .to_owned()
        })
    }
}

/// Parses a `traceparent`. Later versions may append fields (the standard's section 3.2.4). All-zero ids and
/// version `ff` are invalid.
fn parsed(text: &str) -> Option<TraceParent> {
    let mut parts = text.split('-');
    let (version, trace, span, flags) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    let hex = |part: &str, length: usize| {
        part.len() == length && part.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
    };
    let sound = hex(version, 2) && version != "ff" && hex(trace, 32) && hex(span, 16) && hex(flags, 2);
    if !sound || version == "00" && parts.next().is_some() {
        return None;
    }
    let parent = TraceParent {
        trace: u128::from_str_radix(trace, 16).ok()?,
        span: u64::from_str_radix(span, 16).ok()?,
    };
    (parent.trace != 0 && parent.span != 0).then_some(parent)
}

/// How a traced operation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpanOutcome {
    Good,
    /// Any other end, with a word of a closed list, such as `lapsed` or `refused`.
    Bad(&'static str),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interval {
    pub from: Wall,
    pub to: Wall,
}

/// A leg that is over.
#[derive(Clone, Copy, Debug)]
pub struct Leg<'a> {
    pub uid: Uid,
    /// The offer that opened the leg.
    pub offer: OfferId,
    pub cluster: &'a ClusterName,
    /// The grant, if there was one.
    pub fence: Option<Fence>,
}

/// Emits the span of the whole submission of `uid`. Costs nothing if no endpoint is set.
pub fn record_submission(uid: Uid, interval: Interval, outcome: SpanOutcome) {
    let ids = TraceParent::of_submission(uid);
    emit(
        "submission",
        ids,
        &Context::new(),
        interval,
        outcome,
        vec![KeyValue::new("meridian.uid", uid.to_string())],
    );
}

/// Emits the span of a leg, as a child of its submission's. Costs nothing if no endpoint is set.
pub fn record_leg(leg: &Leg<'_>, interval: Interval, outcome: SpanOutcome) {
    let mut attributes = vec![
        KeyValue::new("meridian.uid", leg.uid.to_string()),
        KeyValue::new("meridian.offer", leg.offer.to_string()),
        KeyValue::new("meridian.cluster", leg.cluster.to_string()),
    ];
    attributes.extend(leg.fence.map(|fence| KeyValue::new("meridian.fence", fence.to_string())));
    let parent = TraceParent::of_submission(leg.uid).context();
    emit("leg", TraceParent::of_leg(leg.uid, leg.offer), &parent, interval, outcome, attributes);
}

/// A live span for work on a leg, such as an agent's start of its gang. Enter it, or instrument a future with
/// it.
pub fn leg_span(uid: Uid, offer: OfferId, cluster: &ClusterName) -> tracing::Span {
    let span = tracing::info_span!(
        target: TARGET, "work",
        meridian.uid = %uid, meridian.offer = %offer, meridian.cluster = %cluster
    );
    // Fails only if no endpoint is set, and then there is no trace.
    let _ = span.set_parent(TraceParent::of_leg(uid, offer).context());
    span
}

fn emit(
    name: &'static str,
    ids: TraceParent,
    parent: &Context,
    interval: Interval,
    outcome: SpanOutcome,
    attributes: Vec<KeyValue>,
) {
    emit_by(&global::tracer_provider().tracer("meridian"), name, ids, parent, interval, outcome, attributes);
}

fn emit_by<T: Tracer>(
    tracer: &T,
    name: &'static str,
    ids: TraceParent,
    parent: &Context,
    interval: Interval,
    outcome: SpanOutcome,
    attributes: Vec<KeyValue>,
) {
    let builder = tracer
        .span_builder(name)
        .with_kind(SpanKind::Internal)
        .with_start_time(system_time(interval.from))
        .with_attributes(attributes);
    let mut span = ChosenIds::with(ids, || builder.start_with_context(tracer, parent));
    if let SpanOutcome::Bad(word) = outcome {
        span.set_status(Status::error(word));
    }
    span.end_with_timestamp(system_time(interval.to));
}

fn system_time(wall: Wall) -> SystemTime {
    UNIX_EPOCH + Duration::from_millis(wall.0.try_into().unwrap_or(0))
}

/// The trace id of a uid. The all-zero id is invalid, so it is replaced: Meridian makes no zero uid, but a
/// uid from outside might be zero.
fn trace_id(uid: Uid) -> u128 {
    uid.0.max(1)
}

fn span_id(parts: &[&[u8]]) -> u64 {
    let digest = parts.iter().fold(Sha256::new(), |hash, part| hash.chain_update(part)).finalize();
    let mut head = [0; 8];
    head.copy_from_slice(&digest[..8]);
    u64::from_be_bytes(head).max(1)
}

thread_local! {
    static CHOSEN: Cell<Option<TraceParent>> = const { Cell::new(None) };
}

/// An id generator with random ids, except within [`ChosenIds::with`]. The SDK calls it for a span's ids, on
/// the thread that starts the span.
#[derive(Debug, Default)]
pub(crate) struct ChosenIds(RandomIdGenerator);

impl ChosenIds {
    fn with<R>(ids: TraceParent, start: impl FnOnce() -> R) -> R {
        CHOSEN.set(Some(ids));
        let started = start();
        CHOSEN.set(None);
        started
    }
}

impl IdGenerator for ChosenIds {
    fn new_trace_id(&self) -> TraceId {
        CHOSEN.get().map_or_else(|| self.0.new_trace_id(), |ids| TraceId::from(ids.trace))
    }

    fn new_span_id(&self) -> SpanId {
        CHOSEN.get().map_or_else(|| self.0.new_span_id(), |ids| SpanId::from(ids.span))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use opentelemetry_sdk::error::OTelSdkResult;
    use opentelemetry_sdk::trace::{SdkTracerProvider, SpanData, SpanExporter};
    use std::sync::{Arc, Mutex};

    const UID: Uid = Uid(0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736);
    const OFFER: OfferId = OfferId { epoch: 1, leadership: 2, counter: 3 };

    #[test]
    fn trace_parents_parse_from_valid_text_only() {
        let place = TraceParent::of_leg(UID, OFFER);
        let text = place.to_string();
        assert!(text.starts_with("00-4bf92f3577b34da6a3ce929d0e0e4736-") && text.ends_with("-01"), "{text}");
        assert_eq!(text.parse(), Ok(place));
        assert_ne!(place, TraceParent::of_leg(UID, OfferId { counter: 4, ..OFFER }));
        assert_ne!(place, TraceParent::of_submission(UID));
        assert!(format!("01{}-more", &text[2..]).parse::<TraceParent>().is_ok());
        for bad in [
            String::new(),
            format!("{text}-more"),
            format!("ff{}", &text[2..]),
            text.to_uppercase(),
            text[..54].to_owned(),
            format!("00-{}-00f067aa0ba902b7-01", "0".repeat(32)),
            format!("00-{:032x}-{}-01", 1, "0".repeat(16)),
        ] {
            assert!(bad.parse::<TraceParent>().is_err(), "{bad}");
        }
    }

    #[derive(Clone, Debug, Default)]
    pub(crate) struct Kept(pub(crate) Arc<Mutex<Vec<SpanData>>>);

    impl SpanExporter for Kept {
        async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
            self.0.lock().unwrap().extend(batch);
            Ok(())
        }
    }

    #[test]
    fn two_processes_make_one_trace() {
        let kept = Kept::default();
        // One process emits the leg; the process that starts after it emits the submission.
        let process = || {
            SdkTracerProvider::builder()
                .with_id_generator(ChosenIds::default())
                .with_simple_exporter(kept.clone())
                .build()
                .tracer("test")
        };
        let interval = Interval { from: Wall(1_000), to: Wall(3_500) };
        emit_by(
            &process(),
            "leg",
            TraceParent::of_leg(UID, OFFER),
            &TraceParent::of_submission(UID).context(),
            interval,
            SpanOutcome::Bad("lapsed"),
            vec![],
        );
        emit_by(
            &process(),
            "submission",
            TraceParent::of_submission(UID),
            &Context::new(),
            interval,
            SpanOutcome::Good,
            vec![],
        );
        let spans = kept.0.lock().unwrap().clone();
        let [leg, submission] = spans.as_slice() else { panic!("{} spans", spans.len()) };
        assert_eq!(leg.span_context.trace_id(), TraceId::from(UID.0));
        assert_eq!(leg.span_context.trace_id(), submission.span_context.trace_id());
        assert_eq!(leg.parent_span_id, submission.span_context.span_id());
        assert_eq!(submission.parent_span_id, SpanId::INVALID);
        assert_eq!(leg.end_time.duration_since(leg.start_time).unwrap(), Duration::from_millis(2_500));
        assert_eq!(leg.status, Status::error("lapsed"));
        // Outside of `with`, ids are random again.
        assert_ne!(ChosenIds::default().new_span_id(), ChosenIds::default().new_span_id());
    }
}
