//! Resource groups: flavors and their quotas.

use crate::fields::scheduling::{reference, resource_name};
use crate::fields::{Fields, Item};
use crate::units::quantity;
use std::collections::BTreeMap;

/// Most resource groups of a queue or cohort.
pub(crate) const MAX_GROUPS: usize = 16;

/// Most flavors, and most resources, of one group.
pub(super) const MAX_PER_GROUP: usize = 64;

/// Most flavors, and most resources, of all groups together.
pub(crate) const MAX_IN_ALL_GROUPS: usize = 256;

/// Quota of one resource in one flavor, in base units.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Quota {
    /// The queue's own quota.
    pub nominal: i64,
    /// Most that the queue may borrow; `None` is unlimited.
    pub borrowing_limit: Option<i64>,
    /// Most that the queue lends; `None` is unlimited.
    pub lending_limit: Option<i64>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FlavorQuotas {
    pub name: String,
    /// Quota per resource.
    pub resources: BTreeMap<String, Quota>,
}

/// Resources that a workload gets from one flavor together.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ResourceGroup {
    pub covered_resources: Vec<String>,
    /// In the order in which they are tried.
    pub flavors: Vec<FlavorQuotas>,
}

/// A cohort also lends its children's quota: with `lends_more`, the lending limit may exceed the nominal
/// quota.
pub(super) fn read_groups(spec: &Fields<'_>, lends_more: bool) -> Vec<ResourceGroup> {
    spec.list("resourceGroups", MAX_GROUPS, |item| {
        let group = item.fields()?;
        let covered_resources = group.list("coveredResources", MAX_PER_GROUP, |item| resource_name(&item));
        if !group.is_written("coveredResources") {
            group.error("coveredResources", "is missing", "list the resources of the group");
        }
        if !group.is_written("flavors") {
            group.error("flavors", "is missing", "list at least one flavor with its quotas");
        }
        let flavors = group.list("flavors", MAX_PER_GROUP, |item| read_flavor_quotas(&item, lends_more));
        group.finish();
        Some(ResourceGroup { covered_resources, flavors })
    })
}

fn read_flavor_quotas(item: &Item<'_>, lends_more: bool) -> Option<FlavorQuotas> {
    let flavor = item.fields()?;
    let name = flavor.require("name").and_then(|item| reference(&item)).unwrap_or_default();
    let mut resources: BTreeMap<String, Quota> = BTreeMap::new();
    flavor.list("resources", MAX_PER_GROUP, |item| {
        let fields = item.fields()?;
        let resource = fields.require("name").and_then(|item| resource_name(&item)).unwrap_or_default();
        let named = resource.as_str();
        let nominal = fields.require("nominalQuota").and_then(|item| item.quota(named));
        let quota = Quota {
            nominal: nominal.unwrap_or_default(),
            borrowing_limit: fields.get("borrowingLimit").and_then(|item| item.quota(named)),
            lending_limit: fields.get("lendingLimit").and_then(|item| item.quota(named)),
        };
        if !lends_more && quota.lending_limit.is_some_and(|limit| limit > quota.nominal) && nominal.is_some()
        {
            let most = quantity::format(named, quota.nominal);
            fields.error("lendingLimit", "is more than `nominalQuota`", format!("write at most `{most}`"));
        }
        fields.finish();
        if resources.contains_key(named) && !named.is_empty() {
            item.error(format!("the resource `{named}` appears twice"), "remove one of them");
        }
        resources.insert(resource, quota);
        Some(())
    });
    flavor.finish();
    Some(FlavorQuotas { name, resources })
}
