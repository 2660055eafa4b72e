//! Names as small numbers, so that decisions compare and index numbers.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::sync::Arc;

/// A resource flavor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct FlavorId(pub u32);

/// A resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ResourceId(pub u32);

/// A number for a name.
pub trait Id: Copy {
    /// From its place.
    fn new(index: u32) -> Self;
    /// Its place.
    fn index(self) -> usize;
}

macro_rules! id {
    ($($name:ident),*) => { $(impl Id for $name {
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

/// Names of one kind and their numbers. Numbers are given once and stay.
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
    /// The number of a name; a new name gets the next one.
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

    /// The number of a name that is known.
    pub fn id(&self, name: &str) -> Option<T> {
        self.ids.get(name).map(|id| T::new(*id))
    }

    /// The name behind a number.
    pub fn name(&self, id: T) -> &Arc<str> {
        &self.list[id.index()]
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }
}

/// Where a resource comes among those for which flavors are looked for; of equal places the name decides.
///
/// The look ends at the first resource group in which nothing fits, and at the first resource that no group gives. So the order
/// says which obstacle is told, and which flavors are told as tried. It is Kueue's: people who know its words for a workload
/// find the same here. Kueue keeps requests by the FNV-1a hash of their names, of 64 bits
/// (<https://datatracker.ietf.org/doc/html/draft-eastlake-fnv>, whose constants these are).
pub(crate) fn place_in_walk(resource: &str) -> u64 {
    const BASIS: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0100_0000_01b3;
    resource.bytes().fold(BASIS, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(PRIME))
}
