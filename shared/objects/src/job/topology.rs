//! The topology request of a pod template, from Kueue's annotations.

use crate::fields::names;
use crate::fields::{Fields, Item};
use meridian_shared::topology::{Constraint, SliceLayer, TopologyRequest};
use serde::Deserialize;

/// All pods must be in one domain of this level; otherwise the pod set doesn't start.
pub(crate) const REQUIRED: &str = "kueue.x-k8s.io/podset-required-topology";
/// All pods should be in one domain of this level, if possible.
pub(crate) const PREFERRED: &str = "kueue.x-k8s.io/podset-preferred-topology";
/// The pods may be anywhere in the topology.
pub(crate) const UNCONSTRAINED: &str = "kueue.x-k8s.io/podset-unconstrained-topology";
/// Level of the slices.
pub(crate) const SLICE_LEVEL: &str = "kueue.x-k8s.io/podset-slice-required-topology";
/// Pods of a slice.
pub(crate) const SLICE_SIZE: &str = "kueue.x-k8s.io/podset-slice-size";
/// Slices in layers, as JSON.
pub(crate) const SLICE_LAYERS: &str = "kueue.x-k8s.io/podset-slice-required-topology-constraints";
/// Pod sets of the same group are placed together.
pub(crate) const GROUP: &str = "kueue.x-k8s.io/podset-group-name";

/// Most layers of slices, as in Kueue's API.
const LAYERS_MAX: usize = 3;

/// One layer in the annotation's JSON.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Layer {
    topology: String,
    size: u32,
}

/// The topology request of a pod template for `count` pods, and the group that it names.
pub(super) fn read(template: &Fields<'_>, count: u32) -> (Option<TopologyRequest>, Option<String>) {
    let Some(metadata) = template.fields("metadata") else { return (None, None) };
    let Some(annotations) = metadata.fields("annotations") else { return (None, None) };
    let constraint = constraint(&annotations);
    let slices = slices(&annotations, count);
    let group = group(&annotations, constraint.as_ref(), &slices);
    let request = TopologyRequest { constraint, slices };
    ((request != TopologyRequest::default()).then_some(request), group)
}

fn constraint(annotations: &Fields<'_>) -> Option<Constraint> {
    let level = |name: &'static str| annotations.get(name).and_then(|item| level(&item));
    let free = annotations.get(UNCONSTRAINED).and_then(|item| {
        let text = item.text()?;
        if text != "true" {
            item.error(format!("`{text}` has no effect"), "write \"true\", or remove it");
        }
        (text == "true").then_some(Constraint::Unconstrained)
    });
    let all = [level(REQUIRED).map(Constraint::Required), level(PREFERRED).map(Constraint::Preferred), free];
    let mut written =
        [REQUIRED, PREFERRED, UNCONSTRAINED].into_iter().filter(|name| annotations.get(name).is_some());
    if let (Some(first), Some(second)) = (written.next(), written.next()) {
        annotations.error(second, format!("can't be combined with `{first}`"), "keep one of them");
    }
    all.into_iter().flatten().next()
}

fn level(item: &Item<'_>) -> Option<String> {
    let text = item.text()?;
    if !names::is_label_key(text) {
        item.error(
            format!("`{text}` is not a node label"),
            "name a level of the topology, such as `cloud.provider.com/topology-rack`",
        );
    }
    Some(text.to_owned())
}

fn slices(annotations: &Fields<'_>, count: u32) -> Vec<SliceLayer> {
    let size = annotations.get(SLICE_SIZE).and_then(|item| size(&item, count));
    let level = annotations.get(SLICE_LEVEL).and_then(|item| level(&item));
    let is_written = [SLICE_LEVEL, SLICE_SIZE].map(|name| annotations.get(name).is_some());
    match is_written {
        [true, false] => annotations.error(
            SLICE_SIZE,
            format!("is missing next to `{SLICE_LEVEL}`"),
            "say how many pods a slice has",
        ),
        [false, true] => annotations.error(
            SLICE_LEVEL,
            format!("is missing next to `{SLICE_SIZE}`"),
            "name the topology level that each slice must stay in",
        ),
        [true, true] | [false, false] => {}
    }
    let Some(item) = annotations.get(SLICE_LAYERS) else {
        return level.map(|level| SliceLayer { level, size: size.unwrap_or_default() }).into_iter().collect();
    };
    if is_written.contains(&true) {
        item.error(
            "can't be combined with slices of one layer",
            format!("keep it, or `{SLICE_LEVEL}` and `{SLICE_SIZE}`"),
        );
    }
    layers(&item, count)
}

fn size(item: &Item<'_>, count: u32) -> Option<u32> {
    let text = item.text()?;
    match text.parse::<u32>() {
        Ok(size) if size > 0 => {
            if !count.is_multiple_of(size) {
                // Remaining pods would be in no slice.
                item.error(
                    format!("the {count} pods that start together can't be divided into slices of {size}"),
                    "choose a size that divides them",
                );
            }
            Some(size)
        }
        _ => {
            item.error(
                format!("`{text}` is not a number of pods"),
                "write a positive whole number in quotes, such as \"4\"",
            );
            None
        }
    }
}

fn layers(item: &Item<'_>, count: u32) -> Vec<SliceLayer> {
    let Some(text) = item.text() else { return Vec::new() };
    let remedy = "write a list such as [{\"topology\": \"rack\", \"size\": 8}, \
        {\"topology\": \"kubernetes.io/hostname\", \"size\": 4}]";
    let layers: Vec<Layer> = match serde_json::from_str(text) {
        Ok(layers) => layers,
        Err(error) => {
            item.error(format!("can't be read: {error}"), remedy);
            return Vec::new();
        }
    };
    if layers.is_empty() || layers.len() > LAYERS_MAX {
        item.error(format!("has {} layers", layers.len()), format!("write one to {LAYERS_MAX}"));
    }
    let mut outer = count;
    for layer in &layers {
        if !names::is_label_key(&layer.topology) {
            item.error(format!("`{}` is not a node label", layer.topology), "name levels of the topology");
        }
        if layer.size == 0 || !outer.is_multiple_of(layer.size) {
            item.error(
                format!("slices of {} pods don't divide the {outer} around them", layer.size),
                "make each size a divisor of the one before",
            );
        }
        outer = layer.size;
    }
    layers.into_iter().map(|layer| SliceLayer { level: layer.topology, size: layer.size }).collect()
}

fn group(annotations: &Fields<'_>, constraint: Option<&Constraint>, slices: &[SliceLayer]) -> Option<String> {
    let item = annotations.get(GROUP)?;
    let name = item.text()?;
    if name.is_empty() || name.parse::<u64>().is_ok() {
        item.error(
            format!("`{name}` can't name a group"),
            "write a word: a number would be read as something else",
        );
    }
    if !matches!(constraint, Some(Constraint::Required(_) | Constraint::Preferred(_))) {
        item.error(
            "names a group without a topology level",
            format!("write `{REQUIRED}` or `{PREFERRED}` next to it, or remove it"),
        );
    }
    if !slices.is_empty() {
        item.error(
            "can't be combined with slices",
            "a group is placed whole: remove the slices or the group",
        );
    }
    Some(name.to_owned())
}
