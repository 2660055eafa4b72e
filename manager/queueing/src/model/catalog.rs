//! Names and specifications of resources and flavors.

use crate::amount::Amount;
use crate::model::{Flavor, Requests, Shape, amount_of};
use crate::names::{FlavorId, Id, Names, ResourceId, evaluation_order};
use meridian_topology::PODS;
use std::sync::Arc;

/// Known resources and flavors, by number.
#[derive(Clone, Debug, Default)]
pub struct Catalog {
    resources: Names<ResourceId>,
    /// Evaluation order of each resource in the search for flavors.
    evaluation_order: Vec<u64>,
    flavors: Names<FlavorId>,
    flavor_specs: Vec<Option<Flavor>>,
}

impl Catalog {
    /// The number of a resource. A new name gets a new number.
    pub fn resource(&mut self, name: &str) -> ResourceId {
        let id: ResourceId = self.resources.intern(name);
        if self.evaluation_order.len() <= id.index() {
            self.evaluation_order.push(evaluation_order(name));
        }
        id
    }

    /// The number of a known resource.
    pub fn resource_id(&self, name: &str) -> Option<ResourceId> {
        self.resources.id(name)
    }

    pub fn resource_name(&self, id: ResourceId) -> &Arc<str> {
        self.resources.name(id)
    }

    /// The number of a flavor. A new name gets a new number.
    pub fn flavor_id(&mut self, name: &str) -> FlavorId {
        let id: FlavorId = self.flavors.intern(name);
        if self.flavor_specs.len() <= id.index() {
            self.flavor_specs.resize(id.index() + 1, None);
        }
        id
    }

    pub fn flavor_name(&self, id: FlavorId) -> &Arc<str> {
        self.flavors.name(id)
    }

    /// The specification of a flavor, if it is declared.
    pub fn flavor(&self, id: FlavorId) -> Option<&Flavor> {
        self.flavor_specs.get(id.index()).and_then(Option::as_ref)
    }

    /// Declares or removes a flavor.
    pub fn set_flavor(&mut self, id: FlavorId, flavor: Option<Flavor>) {
        self.flavor_specs[id.index()] = flavor;
    }

    /// All declared flavors.
    pub fn flavor_list(&self) -> impl Iterator<Item = (FlavorId, &Flavor)> {
        self.flavor_specs
            .iter()
            .enumerate()
            .filter_map(|(at, spec)| Some((FlavorId(u32::try_from(at).ok()?), spec.as_ref()?)))
    }

    /// The resource that counts pods, if any workload or queue mentions it.
    pub(crate) fn pods_resource(&self) -> Option<ResourceId> {
        self.resources.id(PODS)
    }

    /// An amount of a resource in the notation of Kubernetes.
    pub fn amount_text(&self, resource: ResourceId, amount: Amount) -> String {
        if amount.is_unlimited() {
            "unlimited".to_owned()
        } else {
            meridian_objects::quantity::format(self.resource_name(resource), amount.0)
        }
    }

    /// Sets one amount and keeps the order of names.
    pub(crate) fn put(&self, requests: &mut Requests, resource: ResourceId, amount: i64) {
        if let Some((_, old)) = requests.iter_mut().find(|(r, _)| *r == resource) {
            *old = amount;
            return;
        }
        let name = self.resource_name(resource);
        let at = requests.partition_point(|(r, _)| self.resource_name(*r) < name);
        requests.insert(at, (resource, amount));
    }

    /// Converts amounts by name to requests.
    pub fn requests<'a>(&mut self, amounts: impl IntoIterator<Item = (&'a String, &'a i64)>) -> Requests {
        let mut requests = Requests::new();
        for (name, amount) in amounts {
            let resource = self.resource(name);
            self.put(&mut requests, resource, *amount);
        }
        requests
    }

    /// Requests in the order in which flavors are searched (`names::evaluation_order`).
    pub(crate) fn in_evaluation_order(&self, requests: &Requests) -> Requests {
        let mut ordered = requests.clone();
        let key =
            |resource: ResourceId| (self.evaluation_order[resource.index()], self.resource_name(resource));
        ordered.sort_unstable_by(|(a, _), (b, _)| key(*a).cmp(&key(*b)));
        ordered
    }

    /// Request of the pods of one set for a resource.
    pub(crate) fn request_of_pod_set(&self, shape: &Shape, at: usize, resource: ResourceId) -> i64 {
        let each = if self.pods_resource() == Some(resource) {
            1
        } else {
            amount_of(&shape.pod_sets[at].per_pod, resource).max(0)
        };
        each.saturating_mul(i64::from(shape.count(at)))
    }

    /// Request of all pods of a shape for a resource.
    pub(crate) fn request_of_shape(&self, shape: &Shape, resource: ResourceId) -> i64 {
        (0..shape.pod_sets.len())
            .map(|at| self.request_of_pod_set(shape, at, resource))
            .fold(0, i64::saturating_add)
    }
}
