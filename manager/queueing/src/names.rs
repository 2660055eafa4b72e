//! Names as small numbers, so that decisions compare and index numbers.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::sync::Arc;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct FlavorId(pub u32);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ResourceId(pub u32);

/// A dense number that stands for a name.
pub trait Id: Copy {
    fn new(index: u32) -> Self;
    fn index(self) -> usize;
}

macro_rules! id {
    ($($name:ident),*) => { $(impl $crate::names::Id for $name {
        fn new(index: u32) -> Self {
            Self(index)
        }
        fn index(self) -> usize {
            self.0 as usize
        }
    })* };
}

id!(FlavorId, ResourceId);
pub(crate) use id;

/// Names of one kind and their numbers. A number never changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Names<T> {
    list: Vec<Arc<str>>,
    ids: BTreeMap<Arc<str>, u32>,
    kind: PhantomData<T>,
}

impl<T> Default for Names<T> {
    fn default() -> Self {
        Self { list: Vec::new(), ids: BTreeMap::new(), kind: PhantomData }
    }
}

impl<T: Id> Names<T> {
    /// The number of a name. A new name gets the next number.
    pub fn intern(&mut self, name: &str) -> T {
        if let Some(id) = self.ids.get(name) {
            return T::new(*id);
        }
        let id = u32::try_from(self.list.len()).unwrap_or(u32::MAX);
        let name: Arc<str> = Arc::from(name);
        self.list.push(name.clone());
        self.ids.insert(name, id);
        T::new(id)
    }

    /// The number of a known name.
    pub fn id(&self, name: &str) -> Option<T> {
        self.ids.get(name).map(|id| T::new(*id))
    }

    pub fn name(&self, id: T) -> &Arc<str> {
        &self.list[id.index()]
    }

    pub fn len(&self) -> usize {
        self.list.len()
    }

    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }
}

/// Evaluation order of a resource in the search for flavors. The name breaks ties.
///
/// The search ends at the first resource group without a fitting flavor, and at the first resource without a
/// group. So the order determines the reported obstacle and the flavors reported as tried. It is Kueue's
/// order, so that users find the same reasons: by the 64-bit FNV-1a hash of the names (constants from
/// <https://datatracker.ietf.org/doc/html/draft-eastlake-fnv>), which Kueue uses as map keys.
pub(crate) fn evaluation_order(resource: &str) -> u64 {
    const BASIS: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0100_0000_01b3;
    resource.bytes().fold(BASIS, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(PRIME))
}
