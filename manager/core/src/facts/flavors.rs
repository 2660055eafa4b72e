//! The flavors assigned to a workload: for each of its pod sets, the flavor of each resource.
//!
//! Pod sets have flavors of their own, as in Kueue. Where they don't contradict each other, one map is kept
//! for all of them: nearly every workload has one pod set, or one flavor per resource. A workload without
//! flavors allocates nothing, and clones share one list.

use meridian_objects::ResourceRules;
use meridian_shared::gang::{Amounts, Gang};
use serde::de::{MapAccess, SeqAccess, Visitor, value};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

/// Flavor by resource name, of one pod set.
pub type ByResource = BTreeMap<String, Arc<str>>;

/// Charged amounts by flavor and resource.
pub type FlavorUsage = BTreeMap<(Arc<str>, String), i64>;

static NONE: ByResource = ByResource::new();

/// Flavor by resource name, for each pod set.
///
/// As JSON, it is a map that is the same for all pod sets, or a list of maps in the order of the pod sets.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Flavors(Option<Arc<Vec<ByResource>>>);

impl Flavors {
    /// The flavors of each pod set, in the order of the gang's pod sets.
    pub fn of_pod_sets(sets: Vec<ByResource>) -> Self {
        let mut merged = ByResource::new();
        for (resource, flavor) in sets.iter().flatten() {
            if merged.entry(resource.clone()).or_insert_with(|| flavor.clone()) != flavor {
                return Self(Some(Arc::new(sets)));
            }
        }
        Self::from(merged)
    }

    /// The flavors of the pod set at this position.
    pub fn of(&self, pod_set: usize) -> &ByResource {
        match self.0.as_deref().map(Vec::as_slice) {
            None => &NONE,
            Some([all]) => all,
            Some(sets) => sets.get(pod_set).unwrap_or(&NONE),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// All flavors, each once.
    pub fn names(&self) -> BTreeSet<&Arc<str>> {
        self.0.iter().flat_map(|sets| sets.iter()).flat_map(BTreeMap::values).collect()
    }

    /// Whether one map is the flavors of all pod sets.
    fn are_common(&self) -> bool {
        self.0.as_ref().is_none_or(|sets| sets.len() == 1)
    }

    /// The amounts that a gang uses of these flavors. `total` is the sum of its requests. Amounts of zero are
    /// left out, so that sums of usage don't depend on the order of additions.
    pub(crate) fn usage(&self, gang: &Gang, total: &Amounts, resources: &ResourceRules) -> FlavorUsage {
        let mut usage = FlavorUsage::new();
        let mut add = |flavors: &ByResource, requests: &Amounts| {
            for (resource, flavor) in flavors {
                let amount = requests.get(resource).copied().filter(|amount| *amount != 0);
                if let Some(amount) = amount {
                    let sum = usage.entry((flavor.clone(), resource.clone())).or_insert(0_i64);
                    *sum = sum.saturating_add(amount);
                }
            }
        };
        if self.are_common() {
            add(self.of(0), total);
            return usage;
        }
        for (at, set) in gang.pod_sets.iter().enumerate() {
            let alone = Gang { pod_sets: vec![set.clone()], ..Gang::default() };
            add(self.of(at), &resources.total(&alone));
        }
        usage
    }
}

impl From<ByResource> for Flavors {
    fn from(flavors: ByResource) -> Self {
        Self((!flavors.is_empty()).then(|| Arc::new(vec![flavors])))
    }
}

impl FromIterator<(String, Arc<str>)> for Flavors {
    fn from_iter<I: IntoIterator<Item = (String, Arc<str>)>>(flavors: I) -> Self {
        ByResource::from_iter(flavors).into()
    }
}

impl Serialize for Flavors {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self.0.as_deref() {
            Some(sets) if sets.len() != 1 => sets.serialize(to),
            _ => self.of(0).serialize(to),
        }
    }
}

impl<'de> Deserialize<'de> for Flavors {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Form;
        impl<'de> Visitor<'de> for Form {
            type Value = Flavors;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("flavors by resource, for all pod sets or a list with those of each")
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Flavors, A::Error> {
                ByResource::deserialize(value::MapAccessDeserializer::new(map)).map(Flavors::from)
            }

            fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<Flavors, A::Error> {
                let sets = Vec::<ByResource>::deserialize(value::SeqAccessDeserializer::new(list))?;
                Ok(Flavors::of_pod_sets(sets))
            }
        }
        from.deserialize_any(Form)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use meridian_shared::gang::PodSet;
    use serde_json::json;

    fn flavors(of: &[(&str, &str)]) -> ByResource {
        of.iter().map(|(resource, flavor)| ((*resource).to_owned(), Arc::from(*flavor))).collect()
    }

    fn amounts(of: &[(&str, i64)]) -> Amounts {
        of.iter().map(|(resource, amount)| ((*resource).to_owned(), *amount)).collect()
    }

    #[test]
    fn pod_sets_without_contradiction_share_one_map() {
        let both =
            Flavors::of_pod_sets(vec![flavors(&[("cpu", "a")]), flavors(&[("cpu", "a"), ("gpu", "b")])]);
        assert_eq!(both, Flavors::from(flavors(&[("cpu", "a"), ("gpu", "b")])));
        assert_eq!(Flavors::of_pod_sets(vec![ByResource::new(); 2]), Flavors::default());
        assert_eq!(serde_json::to_value(&both).unwrap(), json!({"cpu": "a", "gpu": "b"}));
    }

    #[test]
    fn each_pod_set_is_charged_to_its_own_flavor() {
        let own = Flavors::of_pod_sets(vec![flavors(&[("cpu", "small")]), flavors(&[("cpu", "large")])]);
        let json = json!([{"cpu": "small"}, {"cpu": "large"}]);
        assert_eq!(serde_json::to_value(&own).unwrap(), json);
        assert_eq!(serde_json::from_value::<Flavors>(json).unwrap(), own);
        let set = |count, cpu| PodSet { count, per_pod: amounts(&[("cpu", cpu)]), ..PodSet::default() };
        let gang = Gang { pod_sets: vec![set(1, 500), set(4, 2_000)], ..Gang::default() };
        let rules = ResourceRules::default();
        let usage = own.usage(&gang, &rules.total(&gang), &rules);
        let expected = [("large", 8_000), ("small", 500)];
        let expected = expected.map(|(flavor, amount)| ((Arc::from(flavor), "cpu".to_owned()), amount));
        assert_eq!(usage, FlavorUsage::from(expected));
        assert_eq!(own.names().iter().map(|name| &***name).collect::<Vec<_>>(), ["large", "small"]);
    }
}
