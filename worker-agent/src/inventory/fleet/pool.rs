//! The pools of a fleet file, and how a simulated provider answers requests for them.

use super::super::quantity::Quantity;
use super::conflict::{Conflict, amounts, conflict, with_disk};
use meridian_agent_core::runtime::{NodePool, SimulatedPool, StockOut};
use meridian_objects::job::simulated::parse_duration;
use meridian_shared::gang::Taint;
use meridian_shared::time::Millis;
use serde::Deserialize;
use serde_saphyr::Spanned;
use std::collections::{BTreeMap, BTreeSet};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct RawPool {
    name: Spanned<String>,
    capacity_class: Option<String>,
    #[serde(default)]
    labels: BTreeMap<String, String>,
    #[serde(default)]
    taints: Vec<Taint>,
    per_node: BTreeMap<String, Quantity>,
    max_nodes: u32,
    #[serde(default)]
    simulated: RawSimulated,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RawSimulated {
    wait: Option<RawWait>,
    #[serde(default)]
    stock_outs: Vec<RawStockOut>,
    quota: Option<u32>,
    request_limit: Option<Spanned<u32>>,
    boot: Option<Length>,
    booking_expiry: Option<Spanned<Length>>,
    max_run: Option<Spanned<Length>>,
    seed: Option<u64>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RawWait {
    least: Spanned<Length>,
    most: Length,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RawStockOut {
    #[serde(default)]
    from: Length,
    r#for: Option<Length>,
}

/// A length of time with a unit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Length(Millis);

impl<'de> Deserialize<'de> for Length {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        let has_unit = text.ends_with(|c: char| c.is_ascii_alphabetic());
        parse_duration(&text).filter(|_| has_unit).map(Self).ok_or_else(|| {
            serde::de::Error::custom(format!(
                "`{text}` is not a length of time: write a number with a unit, such as `90s`, `15m` or `7d`, \
                 of at most a year"
            ))
        })
    }
}

/// The pools of one cluster. Fails at a name that appears twice, or at a value that can't be simulated.
pub(super) fn checked(raw: Vec<RawPool>) -> Result<Vec<NodePool>, Conflict> {
    let mut names = BTreeSet::new();
    let mut pools = Vec::new();
    for pool in raw {
        let at = pool.name.referenced;
        if pool.name.value.is_empty() || !names.insert(pool.name.value.clone()) {
            let what = format!("pool name `{}` is empty or appears twice", pool.name.value);
            return Err(conflict(Some(at), what));
        }
        pools.push(NodePool {
            name: pool.name.value,
            capacity_class: pool.capacity_class,
            labels: pool.labels,
            taints: pool.taints,
            per_node: with_disk(amounts(pool.per_node, at)?),
            max_nodes: pool.max_nodes,
            simulated: pool.simulated.check()?,
        });
    }
    Ok(pools)
}

impl RawSimulated {
    fn check(self) -> Result<SimulatedPool, Conflict> {
        let usual = SimulatedPool::default();
        let (wait_least, wait_most) = match self.wait {
            None => (usual.wait_least, usual.wait_most),
            Some(RawWait { least, most }) if least.value.0 > most.0 => {
                let (least_value, most) = (least.value.0, most.0);
                let what = format!(
                    "`wait.least` is {least_value}, more than `wait.most`, which is {most}: swap them, or \
                     raise `most`"
                );
                return Err(conflict(Some(least.referenced), what));
            }
            Some(RawWait { least, most }) => (least.value.0, most.0),
        };
        let request_limit = match self.request_limit {
            Some(limit) if limit.value == 0 => {
                let what = "`requestLimit` is 0, so no request is ever queued: write at least 1, or set \
                            `quota: 0` for a pool that never gets nodes";
                return Err(conflict(Some(limit.referenced), what));
            }
            limit => limit.map_or(usual.request_limit, |limit| limit.value),
        };
        let above_zero = |field: &str, length: Option<Spanned<Length>>, usual: Millis| match length {
            Some(length) if length.value.0 == Millis(0) => {
                let what =
                    format!("`{field}` is 0, so nodes are gone at once: write a longer time, or remove it");
                Err(conflict(Some(length.referenced), what))
            }
            length => Ok(length.map_or(usual, |length| length.value.0)),
        };
        let stock_out =
            |out: RawStockOut| StockOut { from: out.from.0, lasts: out.r#for.map(|length| length.0) };
        Ok(SimulatedPool {
            wait_least,
            wait_most,
            stock_outs: self.stock_outs.into_iter().map(stock_out).collect(),
            quota: self.quota,
            request_limit,
            boot: self.boot.map_or(usual.boot, |boot| boot.0),
            booking_expiry: above_zero("bookingExpiry", self.booking_expiry, usual.booking_expiry)?,
            max_run: above_zero("maxRun", self.max_run, usual.max_run)?,
            seed: self.seed,
        })
    }
}
