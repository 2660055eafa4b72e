//! The shape of a workload: pod sets that start together, and their requests. It has no image, no command and
//! no user's name, because offers carry it to clusters that may never run the workload.

use crate::time::Millis;
use crate::topology::{FlavorTopology, TopologyRequest};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// Amounts per resource name in base units: `cpu` in thousandths of a core, everything else in ones or bytes.
pub type Amounts = BTreeMap<String, i64>;

pub fn add_scaled(total: &mut Amounts, each: &Amounts, by: i64) {
    for (name, amount) in each {
        let amount = amount.saturating_mul(by);
        match total.get_mut(name) {
            Some(sum) => *sum = sum.saturating_add(amount),
            None => drop(total.insert(name.clone(), amount)),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum TaintEffect {
    /// No new pod is placed here unless it tolerates the taint.
    NoSchedule,
    /// Kubernetes avoids such nodes, but doesn't forbid them; packing ignores the effect.
    PreferNoSchedule,
    /// Like `NoSchedule`, and running pods are evicted.
    NoExecute,
}

impl TaintEffect {
    /// The name in Kubernetes.
    pub const fn name(self) -> &'static str {
        match self {
            Self::NoSchedule => "NoSchedule",
            Self::PreferNoSchedule => "PreferNoSchedule",
            Self::NoExecute => "NoExecute",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Taint {
    pub key: String,
    /// Empty when the taint has no value.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub value: String,
    pub effect: TaintEffect,
}

/// As kubectl writes it, such as `nvidia.com/gpu=present:NoSchedule`.
impl fmt::Display for Taint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key, value, effect } = self;
        let is = if value.is_empty() { "" } else { "=" };
        write!(f, "{key}{is}{value}:{}", effect.name())
    }
}

/// A toleration of a pod set (Kubernetes core/v1 semantics).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Toleration {
    /// Key; `None` with `exists` tolerates everything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// `Exists` when true, else `Equal`.
    #[serde(default)]
    pub exists: bool,
    /// Value for `Equal`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub value: String,
    /// `None` matches every effect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effect: Option<TaintEffect>,
    /// How long the toleration covers a `NoExecute` taint (`tolerationSeconds`); `None` means forever.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds: Option<i64>,
}

/// How long a pod may stay on a node with a taint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Tolerance {
    No,
    /// More than zero.
    For(Millis),
    Forever,
}

impl Tolerance {
    /// The tolerance of a pod with these tolerations. If several cover the taint, the shortest counts. A
    /// toleration of zero seconds tolerates nothing: Kubernetes would place such a pod and evict it at once.
    pub fn of<'a>(tolerations: impl IntoIterator<Item = &'a Toleration>, taint: &Taint) -> Self {
        let each = |toleration: &Toleration| match toleration
            .seconds
            .filter(|_| taint.effect == TaintEffect::NoExecute)
        {
            None => Self::Forever,
            Some(seconds) => match u64::try_from(seconds) {
                Ok(0) | Err(_) => Self::No,
                Ok(seconds) => Self::For(Millis(seconds.saturating_mul(1_000))),
            },
        };
        tolerations
            .into_iter()
            .filter(|toleration| toleration.covers(taint))
            .map(each)
            .min()
            .unwrap_or(Self::No)
    }

    /// Whether the pod may be placed there at all.
    pub fn is_some(self) -> bool {
        self != Self::No
    }
}

impl Toleration {
    /// Whether this toleration covers `taint`, for any time.
    pub fn covers(&self, taint: &Taint) -> bool {
        self.effect.is_none_or(|e| e == taint.effect)
            && match &self.key {
                None => self.exists,
                Some(key) => *key == taint.key && (self.exists || self.value == taint.value),
            }
    }
}

/// Operator of a node-affinity requirement or of a label selector (Kubernetes semantics).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Operator {
    /// The label's value is one of the values.
    In,
    /// The label is absent, or its value is none of the values.
    NotIn,
    Exists,
    DoesNotExist,
    /// The label's value, an integer, is greater than the single value.
    Gt,
    /// The label's value, an integer, is less than the single value.
    Lt,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Requirement {
    pub key: String,
    pub operator: Operator,
    /// As many values as the operator needs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub values: Vec<String>,
}

impl Requirement {
    pub fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        let value = labels.get(&self.key);
        let compare = |wanted: fn(i64, i64) -> bool| {
            let (Some(have), Some(bound)) =
                (value.and_then(|v| v.parse().ok()), self.values.first().and_then(|v| v.parse().ok()))
            else {
                return false;
            };
            wanted(have, bound)
        };
        match self.operator {
            Operator::In => value.is_some_and(|v| self.values.contains(v)),
            Operator::NotIn => value.is_none_or(|v| !self.values.contains(v)),
            Operator::Exists => value.is_some(),
            Operator::DoesNotExist => value.is_none(),
            Operator::Gt => compare(|have, bound| have > bound),
            Operator::Lt => compare(|have, bound| have < bound),
        }
    }
}

/// A label selector: every pair and every requirement must hold. Empty selects everything.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LabelSelector {
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub match_labels: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub match_expressions: Vec<Requirement>,
}

impl LabelSelector {
    pub fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        self.match_labels.iter().all(|(k, v)| labels.get(k) == Some(v))
            && self.match_expressions.iter().all(|r| r.matches(labels))
    }
}

/// Pods of one template that start together with the rest of their gang.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PodSet {
    /// Unique within the gang.
    pub name: String,
    pub count: u32,
    /// Fewest pods that the job accepts (partial admission); `None` if it needs all of them. An offer has
    /// none: it asks for exactly `count`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_count: Option<u32>,
    /// Effective requests of one pod.
    pub per_pod: Amounts,
    /// Labels that a node must have.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub node_selector: BTreeMap<String, String>,
    /// Required node affinity: terms are ORed, requirements within a term ANDed. Empty requires nothing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub affinity: Vec<Vec<Requirement>>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tolerations: Vec<Toleration>,
    /// Topology request of the pods. `None` requires nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topology: Option<TopologyRequest>,
    /// Two pod sets of one group are placed together: the smaller is the leader, the larger the workers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// The topology of the flavor's nodes, added when the flavor is chosen. `None` if the flavor has none,
    /// or the pod set has no topology request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub within: Option<FlavorTopology>,
    /// Name of the first pod set of the gang with an equal pod template, if it isn't this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub same_template: Option<String>,
}

/// One gang: everything that a cluster needs to decide whether the gang fits.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Gang {
    /// In the order of the job.
    pub pod_sets: Vec<PodSet>,
    /// How long the gang's nodes are provisioned for, counted from each start (`maxRunDurationSeconds`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_run: Option<Millis>,
    /// The job fails when one activation takes longer (`activeDeadlineSeconds`). As in Kubernetes, the time
    /// starts again when a stopped job starts again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub active_deadline: Option<Millis>,
    /// The job is deactivated when all its attempts together take longer (`max-exec-time-seconds`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_exec: Option<Millis>,
}

impl Gang {
    /// Approximate size as JSON, in bytes.
    pub fn weight(&self) -> usize {
        // Names of fields, punctuation and numbers of one entry.
        const ENTRY: usize = 64;
        let set = |set: &PodSet| {
            let requests = set.per_pod.keys().map(String::len);
            let labels = set.node_selector.iter().map(|(k, v)| k.len() + v.len());
            let terms = set
                .affinity
                .iter()
                .flatten()
                .map(|r| r.key.len() + r.values.iter().map(|v| v.len() + 4).sum::<usize>());
            let tolerations =
                set.tolerations.iter().map(|t| t.key.as_deref().map_or(0, str::len) + t.value.len());
            let shape = set
                .topology
                .iter()
                .flat_map(TopologyRequest::weight)
                .chain(set.group.iter().chain(&set.same_template).map(String::len));
            let within = set.within.iter().flat_map(FlavorTopology::weight);
            let all = requests.chain(labels).chain(terms).chain(tolerations).chain(shape).chain(within);
            2 * ENTRY + set.name.len() + all.map(|bytes| bytes + ENTRY).sum::<usize>()
        };
        self.pod_sets.iter().map(set).sum()
    }

    /// The longest time that one attempt may run, regardless of earlier attempts.
    pub fn attempt_limit(&self) -> Option<Millis> {
        self.max_run.into_iter().chain(self.active_deadline).min()
    }

    /// The longest time that the next attempt may run, after earlier attempts ran for `ran`.
    pub fn run_left(&self, ran: Millis) -> Option<Millis> {
        self.attempt_limit().into_iter().chain(self.exec_left(ran)).min()
    }

    /// Part of the maximum execution time that is left after earlier attempts.
    pub fn exec_left(&self, ran: Millis) -> Option<Millis> {
        self.max_exec.map(|most| most.saturating_sub(ran))
    }

    /// Whether the next attempt reaches the maximum execution time before any limit that fails the job.
    pub fn deactivates_when_up(&self, ran: Millis) -> bool {
        self.exec_left(ran).is_some_and(|left| self.attempt_limit().is_none_or(|limit| left < limit))
    }

    pub fn requests_topology(&self) -> bool {
        self.pod_sets.iter().any(|set| set.topology.is_some())
    }

    /// Whether the job accepts fewer pods than it asks for.
    pub fn accepts_fewer_pods(&self) -> bool {
        self.pod_sets.iter().any(|set| set.min_count.is_some())
    }

    /// The smallest gang that the job accepts, if that is smaller than the full gang.
    pub fn least(&self) -> Option<Self> {
        let least: Vec<u32> = self.pod_sets.iter().map(|set| set.min_count.unwrap_or(set.count)).collect();
        self.accepts_fewer_pods().then(|| self.with_counts(&least))
    }

    /// The gang with exactly these pod counts, one for each pod set.
    #[must_use]
    pub fn with_counts(&self, counts: &[u32]) -> Self {
        let mut gang = self.clone();
        for (set, count) in gang.pod_sets.iter_mut().zip(counts) {
            (set.count, set.min_count) = (*count, None);
        }
        gang
    }

    /// Requests of all pods together.
    pub fn total(&self) -> Amounts {
        let mut total = Amounts::new();
        for set in &self.pod_sets {
            add_scaled(&mut total, &set.per_pod, i64::from(set.count));
        }
        total
    }

    /// The resource that is likely to run out first: accelerators, then cores, then everything else.
    pub fn scarcest(&self) -> Option<&str> {
        let names = self.pod_sets.iter().flat_map(|set| set.per_pod.keys());
        names.map(String::as_str).max_by_key(|r| (r.contains('/'), *r == "cpu", *r))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tolerations_follow_kubernetes() {
        let taint =
            Taint { key: "nvidia.com/gpu".into(), value: "present".into(), effect: TaintEffect::NoSchedule };
        let exists = Toleration {
            key: Some("nvidia.com/gpu".into()),
            exists: true,
            value: String::new(),
            effect: Some(TaintEffect::NoSchedule),
            seconds: None,
        };
        assert!(exists.covers(&taint));
        assert!(Toleration { effect: None, ..exists.clone() }.covers(&taint));
        assert!(!Toleration { effect: Some(TaintEffect::NoExecute), ..exists.clone() }.covers(&taint));
        assert!(!Toleration { exists: false, value: "other".into(), ..exists.clone() }.covers(&taint));
        assert!(Toleration { key: None, ..exists }.covers(&taint));
    }

    #[test]
    fn a_taint_is_written_as_kubectl_does() {
        for (effect, name) in [
            (TaintEffect::NoSchedule, "NoSchedule"),
            (TaintEffect::PreferNoSchedule, "PreferNoSchedule"),
            (TaintEffect::NoExecute, "NoExecute"),
        ] {
            let taint = |value: &str| Taint { key: "nvidia.com/gpu".into(), value: value.into(), effect };
            assert_eq!(taint("present").to_string(), format!("nvidia.com/gpu=present:{name}"));
            assert_eq!(taint("").to_string(), format!("nvidia.com/gpu:{name}"));
        }
    }

    #[test]
    fn of_several_tolerations_the_shortest_counts() {
        let taint = |effect| Taint { key: "k".into(), value: String::new(), effect };
        let of = |seconds: &[Option<i64>], effect| {
            let toleration = |seconds: &Option<i64>| Toleration {
                key: None,
                exists: true,
                value: String::new(),
                effect: None,
                seconds: *seconds,
            };
            Tolerance::of(&seconds.iter().map(toleration).collect::<Vec<_>>(), &taint(effect))
        };
        let (no, forever) = (Tolerance::No, Tolerance::Forever);
        for (seconds, expect) in [
            (&[][..], no),
            (&[None][..], forever),
            (&[Some(300), None, Some(60)][..], Tolerance::For(Millis::secs(60))),
            (&[Some(0), None][..], no),
            (&[Some(-5)][..], no),
            (&[Some(i64::MAX)][..], Tolerance::For(Millis(u64::MAX))),
        ] {
            assert_eq!(of(seconds, TaintEffect::NoExecute), expect, "{seconds:?}");
        }
        assert_eq!(of(&[Some(0)], TaintEffect::NoSchedule), forever, "only what ends pods is timed");
        let other = Toleration {
            key: Some("other".into()),
            exists: true,
            value: String::new(),
            effect: None,
            seconds: None,
        };
        assert_eq!(Tolerance::of([&other], &taint(TaintEffect::NoExecute)), no);
        let old: Toleration = serde_json::from_str(r#"{"exists":true}"#).unwrap();
        assert_eq!(
            (old.seconds, serde_json::to_string(&old).unwrap().as_str()),
            (None, r#"{"exists":true}"#)
        );
    }

    #[test]
    fn a_pod_set_without_topology_serializes_without_its_fields() {
        let plain = PodSet { name: "main".into(), count: 2, ..PodSet::default() };
        assert_eq!(serde_json::to_string(&plain).unwrap(), r#"{"name":"main","count":2,"per_pod":{}}"#);
        let topology = Some(TopologyRequest::required("rack").sliced("host", 2));
        let within = Some(FlavorTopology {
            flavor: "f".into(),
            name: "t".into(),
            levels: vec!["rack".into(), "host".into()],
            ..FlavorTopology::default()
        });
        let same_template = Some("first".into());
        let near = PodSet { topology, group: Some("g".into()), within, same_template, ..plain };
        let written = serde_json::to_string(&near).unwrap();
        let expect = concat!(
            r#"{"name":"main","count":2,"per_pod":{},"topology":{"constraint":{"required":"rack"},"#,
            r#""slices":[{"level":"host","size":2}]},"#,
            r#""group":"g","within":{"flavor":"f","name":"t","levels":["rack","host"]},"#,
            r#""same_template":"first"}"#
        );
        assert_eq!(written, expect);
        assert_eq!(serde_json::from_str::<PodSet>(&written).unwrap(), near);
        let gang = Gang { pod_sets: vec![near], ..Gang::default() };
        assert!(gang.weight() >= written.len());
    }

    #[test]
    fn requirements_follow_kubernetes() {
        let labels = BTreeMap::from([("a".to_owned(), "5".to_owned())]);
        let check = |operator, values: &[&str]| {
            Requirement {
                key: "a".into(),
                operator,
                values: values.iter().map(|v| (*v).to_owned()).collect(),
            }
            .matches(&labels)
        };
        assert!(check(Operator::In, &["4", "5"]) && !check(Operator::NotIn, &["5"]));
        assert!(check(Operator::Gt, &["4"]) && !check(Operator::Gt, &["5"]) && check(Operator::Lt, &["6"]));
        assert!(
            !check(Operator::Gt, &["x"])
                && check(Operator::Exists, &[])
                && !check(Operator::DoesNotExist, &[])
        );
    }
}
