//! The second pass, first half: at which level a pod set is placed, and in which domains there.

use crate::assignment::Assignment;
use crate::exclusions::Exclusions;
use crate::misfit::{LayerFit, Misfit};
use crate::node::Wishes;
use crate::order::Unit;
use crate::request::PodSetRequest;
use crate::room::{Room, Sheet};
use crate::snapshot::Topology;
use crate::tree::{DomainId, Tree};
use crate::usage::Taken;
use meridian_shared::topology::SliceLayer;

/// Who wants a place together.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Question<'a> {
    /// The workers, whose shape and wishes count.
    pub(crate) workers: &'a PodSetRequest,
    /// The leader: one pod beside the workers.
    pub(crate) leader: Option<&'a PodSetRequest>,
    /// As if nothing were placed.
    pub(crate) simulate_empty: bool,
    /// Only in this domain.
    pub(crate) within: Option<DomainId>,
}

/// Where they go.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) workers: Assignment,
    pub(crate) leader: Option<Assignment>,
}

/// The shape of a request in terms of the tree.
#[derive(Debug)]
pub(crate) struct Shape<'a> {
    /// Pods of the workers.
    pub(crate) count: i64,
    /// Leaders: 0 or 1.
    pub(crate) leaders: i64,
    /// Depth of the level at which all pods should be together.
    pub(crate) depth: usize,
    /// Depth of the level of the widest slices.
    pub(crate) slice_depth: usize,
    /// Pods of a widest slice.
    pub(crate) slice_size: i64,
    /// Per depth, the size of narrower slices there.
    inner_sizes: Vec<Option<i64>>,
    /// All pods in one domain, or nowhere.
    pub(crate) required: bool,
    /// Anywhere.
    pub(crate) unconstrained: bool,
    /// All layers of slices.
    layers: &'a [SliceLayer],
}

impl<'a> Shape<'a> {
    fn of(question: &Question<'a>, tree: &Tree) -> Result<Self, Misfit> {
        let request = question.workers;
        let layers = request.slices();
        let slice_size = layers.first().map_or(1, |layer| layer.size);
        if slice_size == 0 {
            return Err(Misfit::SliceSizeMissing);
        }
        let level = request.level(tree.levels()).ok_or(Misfit::LevelMissing)?;
        let depth = tree.depth(level).ok_or_else(|| Misfit::LevelUnknown { level: level.to_owned() })?;
        let slice_depth = match layers.first() {
            None => tree.lowest(),
            Some(layer) => tree
                .depth(&layer.level)
                .ok_or_else(|| Misfit::SliceLevelUnknown { level: layer.level.clone() })?,
        };
        if depth > slice_depth {
            return Err(Misfit::SliceAbovePodSet {
                slice_level: tree.levels()[slice_depth].clone(),
                level: level.to_owned(),
            });
        }
        Ok(Self {
            count: i64::from(request.count),
            leaders: i64::from(question.leader.is_some()),
            depth,
            slice_depth,
            slice_size: i64::from(slice_size),
            inner_sizes: inner_sizes(layers, tree, slice_depth)?,
            required: request.is_required(),
            unconstrained: request.is_unconstrained(),
            layers,
        })
    }

    /// Size of the narrower slices at `depth`, where there are some.
    pub(crate) fn inner_size(&self, depth: usize) -> Option<i64> {
        self.inner_sizes.get(depth).copied().flatten()
    }

    /// Whole slices that are asked for.
    pub(crate) fn slices(&self) -> i64 {
        self.count / self.slice_size
    }

    /// The unit of the widest slices.
    pub(crate) fn unit(&self) -> Unit {
        Unit::Slices(self.slice_size)
    }
}

/// Sizes of the second and further layers per depth. Levels between two layers count in the size of the narrower one.
fn inner_sizes(layers: &[SliceLayer], tree: &Tree, slice_depth: usize) -> Result<Vec<Option<i64>>, Misfit> {
    let mut sizes = vec![None; tree.levels().len()];
    let mut above = slice_depth;
    for pair in layers.windows(2) {
        let [outer, layer] = pair else { continue };
        let depth = tree
            .depth(&layer.level)
            .ok_or_else(|| Misfit::LayerLevelUnknown { level: layer.level.clone() })?;
        if depth <= above {
            return Err(Misfit::LayerNotNarrower {
                level: layer.level.clone(),
                outer: tree.levels()[above].clone(),
            });
        }
        if layer.size == 0 || outer.size % layer.size != 0 {
            return Err(Misfit::LayerUneven { size: layer.size, outer: outer.size });
        }
        sizes[above + 1..=depth].fill(Some(i64::from(layer.size)));
        above = depth;
    }
    Ok(sizes)
}

/// One search, with everything that it scribbles on.
#[derive(Debug)]
pub(crate) struct Search<'a> {
    pub(crate) topology: &'a Topology,
    pub(crate) shape: Shape<'a>,
    pub(crate) sheet: Sheet,
    pub(crate) exclusions: Exclusions,
    /// Unconstrained pods fill the fullest domains first.
    pub(crate) least_free: bool,
}

/// Where the pods of `question` go.
pub(crate) fn find(topology: &Topology, question: &Question<'_>, taken: &Taken<'_>) -> Result<Found, Misfit> {
    let tree = topology.tree();
    let flavor = topology.flavor();
    let shape = Shape::of(question, tree)?;
    let wishes = Wishes::of(question.workers, flavor, tree.is_by_host())?;
    let least_free = shape.unconstrained && flavor.profile.mixed;
    let mut search = Search {
        topology,
        shape,
        sheet: vec![Default::default(); tree.len()],
        exclusions: Exclusions::default(),
        least_free,
    };
    search.count_room(question, &wishes, taken);
    let balanced = if flavor.profile.balanced && !search.shape.required && !search.shape.unconstrained {
        search.balance()
    } else {
        None
    };
    if let Some(leaves) = balanced {
        return Ok(search.found(&leaves));
    }
    let (depth, domains) = search.level_with_room()?;
    let leaves = search.descend(depth, domains);
    // what was summed up rules this out; but no answer is better than half of one
    if search.is_whole(&leaves) { Ok(search.found(&leaves)) } else { Err(search.too_little(depth, 0)) }
}

impl Search<'_> {
    /// The level to start from, and domains of it that hold everything together.
    fn level_with_room(&self) -> Result<(usize, Vec<DomainId>), Misfit> {
        let tree = self.topology.tree();
        let mut depth = self.shape.depth;
        loop {
            let mut domains: Vec<DomainId> = tree.level(depth).iter().collect();
            self.sort_led(&mut domains, self.least_free);
            if domains.is_empty() {
                return Err(Misfit::NoDomains { level: tree.levels()[depth].clone() });
            }
            if let Some(domain) = self.single(&domains, depth)? {
                return Ok((depth, vec![domain]));
            }
            if depth == 0 || self.shape.unconstrained {
                return Ok((depth, self.several(domains, depth)?));
            }
            depth -= 1;
        }
    }

    /// The one domain of the sorted `domains` that holds everything. If there is none and one is required, that's it.
    fn single(&self, domains: &[DomainId], depth: usize) -> Result<Option<DomainId>, Misfit> {
        let slices = self.shape.slices();
        let leads = |domain: DomainId| self.sheet[domain.at()].leaders >= self.shape.leaders;
        let holds = |domain: &DomainId| self.sheet[domain.at()].slices_led >= slices && leads(*domain);
        if self.least_free {
            let units = |domain: DomainId| {
                if self.shape.leaders > 0 {
                    self.units_led(domain, self.shape.unit())
                } else {
                    self.units(domain, self.shape.unit())
                }
            };
            if let Some(domain) =
                domains.iter().copied().find(|domain| leads(*domain) && units(*domain) >= slices)
            {
                return Ok(Some(domain));
            }
            if self.shape.required {
                let most = domains.last().map_or(0, |domain| self.sheet[domain.at()].pods);
                return Err(self.too_little(depth, most));
            }
        }
        let Some(first) = domains.first() else { return Ok(None) };
        if holds(first) {
            return Ok(if self.least_free {
                Some(*first)
            } else {
                self.best_fit(domains, slices, self.shape.leaders, self.shape.unit())
            });
        }
        if !self.shape.required {
            return Ok(None);
        }
        // a preferred domain may stand first without having room, before others that have
        let preferred = self.topology.flavor().profile.preferred_affinity;
        match domains.iter().position(holds).filter(|_| preferred) {
            Some(at) => Ok(self.best_fit(&domains[at..], slices, self.shape.leaders, self.shape.unit())),
            None => Err(self.too_little(depth, self.sheet[first.at()].slices)),
        }
    }

    /// As many of the sorted `domains` as it takes: first the one for the leader, then those with most room for workers.
    fn several(&self, mut domains: Vec<DomainId>, depth: usize) -> Result<Vec<DomainId>, Misfit> {
        let unit = self.shape.unit();
        let mut chosen = Vec::new();
        let (mut slices, mut leaders) = (self.shape.slices(), self.shape.leaders);
        self.leader_first(&mut domains, self.shape.count, self.shape.leaders, unit);
        let mut next = 0;
        while leaders > 0 && next < domains.len() && self.sheet[domains[next].at()].leaders > 0 {
            let mut domain = domains[next];
            if !self.least_free && self.units_led(domain, unit) >= slices {
                domain = self.best_fit(&domains[next..], slices, leaders, unit).unwrap_or(domain);
            }
            chosen.push(domain);
            leaders -= self.sheet[domain.at()].leaders;
            slices -= self.units_led(domain, unit);
            next += 1;
        }
        if leaders > 0 {
            return Err(self.too_little(depth, self.shape.leaders - leaders));
        }
        let rest = &mut domains[next..];
        self.sort(rest, self.least_free);
        for at in 0..rest.len() {
            if slices <= 0 {
                break;
            }
            let mut domain = rest[at];
            if !self.least_free && self.units(domain, unit) >= slices {
                domain = self.best_fit(&rest[at..], slices, 0, unit).unwrap_or(domain);
            }
            chosen.push(domain);
            slices -= self.units(domain, unit);
        }
        if slices > 0 { Err(self.too_little(depth, self.shape.slices() - slices)) } else { Ok(chosen) }
    }

    fn too_little(&self, depth: usize, fit: i64) -> Misfit {
        let topology = self.topology.flavor().topology.clone();
        let exclusions = self.exclusions.clone();
        if self.shape.layers.len() < 2 {
            return Misfit::TooLittleRoom {
                topology,
                fit: shown(fit),
                asked: shown(self.shape.slices()),
                sliced: self.shape.slice_size > 1,
                exclusions,
            };
        }
        let most = |best: DomainId, other: DomainId| {
            if self.sheet[other.at()].slices > self.sheet[best.at()].slices { other } else { best }
        };
        let best = self.topology.tree().level(depth).iter().reduce(most);
        let layer = |layer: &SliceLayer| {
            let target = self.topology.tree().depth(&layer.level)?;
            let size = i64::from(layer.size);
            Some(LayerFit {
                level: layer.level.clone(),
                fit: shown(self.slices_below(best?, depth, target, size)),
                asked: shown(self.shape.count / size),
            })
        };
        Misfit::TooLittleRoomInLayers {
            topology,
            layers: self.shape.layers.iter().filter_map(layer).collect(),
            exclusions,
        }
    }

    /// Slices of `size` that fit into the domains of depth `target` below `domain`.
    fn slices_below(&self, domain: DomainId, depth: usize, target: usize, size: i64) -> i64 {
        if depth >= target {
            return self.sheet[domain.at()].pods / size;
        }
        self.topology
            .tree()
            .children(domain)
            .iter()
            .map(|child| self.slices_below(child, depth + 1, target, size))
            .sum()
    }

    /// Whether the leaves hold all whole slices and the leader.
    pub(crate) fn is_whole(&self, leaves: &[DomainId]) -> bool {
        let sum =
            |pick: fn(&Room) -> i64| leaves.iter().map(|leaf| pick(&self.sheet[leaf.at()])).sum::<i64>();
        sum(|room| room.pods) == self.shape.slices() * self.shape.slice_size
            && sum(|room| room.leaders) == self.shape.leaders
    }

    /// The assignments that the sheet says for the leaves.
    fn found(&self, leaves: &[DomainId]) -> Found {
        let tree = self.topology.tree();
        let count = |pick: fn(&Room) -> i64| {
            leaves.iter().map(|leaf| (*leaf, shown(pick(&self.sheet[leaf.at()])))).collect()
        };
        let leader = (self.shape.leaders > 0).then(|| tree.assignment(count(|room| room.leaders)));
        Found { workers: tree.assignment(count(|room| room.pods)), leader }
    }
}

/// Counts never are below zero, nor above what a request can ask for.
fn shown(count: i64) -> u32 {
    u32::try_from(count.max(0)).unwrap_or(u32::MAX)
}
