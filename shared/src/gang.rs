//! The shape of a workload: what must start together, and what each part needs. No image, no command, no name of a user.

use crate::time::Millis;
use crate::topology::{FlavorTopology, TopologyRequest};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Amounts per resource name in base units: `cpu` in thousandths of a core, everything else in ones or bytes.
pub type Amounts = BTreeMap<String, i64>;

/// Adds `by` times `each` into `total`.
pub fn add_scaled(total: &mut Amounts, each: &Amounts, by: i64) {
    for (name, amount) in each {
        let amount = amount.saturating_mul(by);
        match total.get_mut(name) {
            Some(sum) => *sum = sum.saturating_add(amount),
            None => drop(total.insert(name.clone(), amount)),
        }
    }
}

/// Effect of a taint, and what a toleration must match.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum TaintEffect {
    /// Nothing new is placed here unless it tolerates the taint.
    NoSchedule,
    /// Avoided, not forbidden: packing ignores it.
    PreferNoSchedule,
    /// Like `NoSchedule`, and what runs is evicted.
    NoExecute,
}

/// A taint of a node or a flavor.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Taint {
    /// Taint key.
    pub key: String,
    /// Taint value; empty when it has none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub value: String,
    /// What it does.
    pub effect: TaintEffect,
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
    /// For how long it tolerates a `NoExecute` taint (`tolerationSeconds`); `None` is for ever.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds: Option<i64>,
}

/// What a pod makes of a taint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Tolerance {
    /// It must not be there.
    No,
    /// It may be there for so long, which is more than nothing.
    For(Millis),
    /// It doesn't mind.
    Forever,
}

impl Tolerance {
    /// What a pod with these tolerations makes of `taint`: of several that cover it the shortest counts, and one of no time at
    /// all tolerates nothing. Kubernetes would place such a pod there, to end it at once.
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

    /// Whether it may be there at all.
    pub fn is_some(self) -> bool {
        self != Self::No
    }
}

impl Toleration {
    /// Whether this toleration covers `taint`, for however long.
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
    /// The label is there.
    Exists,
    /// The label is absent.
    DoesNotExist,
    /// The label's value, an integer, is greater than the single value.
    Gt,
    /// The label's value, an integer, is less than the single value.
    Lt,
}

/// One requirement on a label.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Requirement {
    /// Label key.
    pub key: String,
    /// Operator.
    pub operator: Operator,
    /// Values, as the operator wants them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub values: Vec<String>,
}

impl Requirement {
    /// Whether `labels` satisfy this requirement.
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
    /// Exact pairs.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub match_labels: BTreeMap<String, String>,
    /// Further requirements.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub match_expressions: Vec<Requirement>,
}

impl LabelSelector {
    /// Whether `labels` satisfy the selector.
    pub fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        self.match_labels.iter().all(|(k, v)| labels.get(k) == Some(v))
            && self.match_expressions.iter().all(|r| r.matches(labels))
    }
}

/// Pods of one template that start together with the rest of their gang.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PodSet {
    /// Name, unique within the gang.
    pub name: String,
    /// Pods.
    pub count: u32,
    /// Fewest pods that do, where fewer do. Who is asked for room is told how many it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_count: Option<u32>,
    /// What one pod asks for (its effective requests).
    pub per_pod: Amounts,
    /// Labels that a node must have.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub node_selector: BTreeMap<String, String>,
    /// Required node affinity: terms are ORed, requirements within a term ANDed. Empty asks for nothing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub affinity: Vec<Vec<Requirement>>,
    /// Tolerations.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tolerations: Vec<Toleration>,
    /// How near to each other its pods want to be. `None` asks for nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topology: Option<TopologyRequest>,
    /// Two pod sets of one group are placed together: the smaller one is the leader, the other the workers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// The topology of its flavor's nodes, which whoever chose the flavor adds. `None` where that has none, or nobody asks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub within: Option<FlavorTopology>,
}

/// One gang: everything a cluster must know to say whether it has room.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Gang {
    /// The pod sets, in the order of the job.
    pub pod_sets: Vec<PodSet>,
    /// Longest run time, where the job states one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_run: Option<Millis>,
}

impl Gang {
    /// About how many bytes it takes as JSON.
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
                .chain(set.group.iter().map(String::len));
            let within = set.within.iter().flat_map(FlavorTopology::weight);
            let all = requests.chain(labels).chain(terms).chain(tolerations).chain(shape).chain(within);
            2 * ENTRY + set.name.len() + all.map(|bytes| bytes + ENTRY).sum::<usize>()
        };
        self.pod_sets.iter().map(set).sum()
    }

    /// Whether any of its pods ask for a place in a topology.
    pub fn wants_topology(&self) -> bool {
        self.pod_sets.iter().any(|set| set.topology.is_some())
    }

    /// Whether fewer pods would do.
    pub fn may_shrink(&self) -> bool {
        self.pod_sets.iter().any(|set| set.min_count.is_some())
    }

    /// The smallest gang that does, where fewer pods do.
    pub fn least(&self) -> Option<Self> {
        let least: Vec<u32> = self.pod_sets.iter().map(|set| set.min_count.unwrap_or(set.count)).collect();
        self.may_shrink().then(|| self.of_counts(&least))
    }

    /// The gang with so many pods in each set, no more and no fewer.
    #[must_use]
    pub fn of_counts(&self, counts: &[u32]) -> Self {
        let mut gang = self.clone();
        for (set, count) in gang.pod_sets.iter_mut().zip(counts) {
            (set.count, set.min_count) = (*count, None);
        }
        gang
    }

    /// What the whole gang asks for.
    pub fn total(&self) -> Amounts {
        let mut total = Amounts::new();
        for set in &self.pod_sets {
            add_scaled(&mut total, &set.per_pod, i64::from(set.count));
        }
        total
    }

    /// The resource that is likely to run out first: an accelerator before cores before all else.
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
    fn a_pod_set_without_topology_is_written_as_ever() {
        let plain = PodSet { name: "main".into(), count: 2, ..PodSet::default() };
        assert_eq!(serde_json::to_string(&plain).unwrap(), r#"{"name":"main","count":2,"per_pod":{}}"#);
        let topology = Some(TopologyRequest::required("rack").sliced("host", 2));
        let within = Some(FlavorTopology {
            flavor: "f".into(),
            name: "t".into(),
            levels: vec!["rack".into(), "host".into()],
            ..FlavorTopology::default()
        });
        let near = PodSet { topology, group: Some("g".into()), within, ..plain };
        let written = serde_json::to_string(&near).unwrap();
        let expect = r#"{"name":"main","count":2,"per_pod":{},"topology":{"constraint":{"required":"rack"},"slices":[{"level":"host","size":2}]},"group":"g","within":{"flavor":"f","name":"t","levels":["rack","host"]}}"#;
        assert_eq!(written, expect);
        assert_eq!(serde_json::from_str::<PodSet>(&written).unwrap(), near);
        let gang = Gang { pod_sets: vec![near], max_run: None };
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
