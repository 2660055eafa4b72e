//! The flavor assigned to each resource of a workload. A workload without flavors allocates nothing, and
//! clones share one map.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::Arc;

type ByResource = BTreeMap<String, Arc<str>>;

static NONE: ByResource = ByResource::new();

/// Flavor by resource name.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Flavors(Option<Arc<ByResource>>);

impl From<ByResource> for Flavors {
    fn from(flavors: ByResource) -> Self {
        Self((!flavors.is_empty()).then(|| Arc::new(flavors)))
    }
}

impl FromIterator<(String, Arc<str>)> for Flavors {
    fn from_iter<I: IntoIterator<Item = (String, Arc<str>)>>(flavors: I) -> Self {
        ByResource::from_iter(flavors).into()
    }
}

impl Deref for Flavors {
    type Target = ByResource;

    fn deref(&self) -> &ByResource {
        self.0.as_deref().unwrap_or(&NONE)
    }
}

impl Serialize for Flavors {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        (**self).serialize(to)
    }
}

impl<'de> Deserialize<'de> for Flavors {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        ByResource::deserialize(from).map(Self::from)
    }
}
