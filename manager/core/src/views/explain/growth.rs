use crate::capacity::topology::{self, Gone};
use crate::dispatch::scale_up;
use crate::facts::reason::{NoQuota, Why};
use crate::facts::submission::Class;
use crate::state::workload::Workload;
use crate::state::workload::phase::Phase;
use crate::state::workload::size::{self, Growing};
use crate::views::explain::{case, remedy};
use crate::world::{World, gangs};
use meridian_shared::ids::Uid;
use meridian_shared::packing::Misfit;
use meridian_shared::protocol::RefuseReason;
use meridian_shared::time::Mono;

/// Why a gang that is to grow hasn't yet, in words, and what would help; with a time, what it would meet after that too.
pub(crate) fn scale_up_message(
    world: &World,
    uid: Uid,
    workload: &Workload,
    now: Option<Mono>,
) -> Option<(String, String)> {
    let class = world.queues.class(workload.class());
    if let Some(Growing { runs, .. }) = workload.growing() {
        return Some((
            format!("it grows to {} pods: its agent is told", runs.iter().sum::<u32>()),
            String::new(),
        ));
    }
    let wants: u32 = size::counts_of(&class.gang).iter().sum();
    let resized =
        workload.resized().filter(|resized| resized.wants.is_some() && wants > resized.runs.iter().sum())?;
    let grows = format!("it waits to grow from {} to {wants} pods", resized.runs.iter().sum::<u32>());
    if workload.pods_too_many(class) > 0 {
        return Some((format!("{grows}: first those end that it was told to"), String::new()));
    }
    if workload.phase() != Phase::Running {
        return Some((format!("{grows}: first all that it has must have started"), String::new()));
    }
    let held_back = [
        (world.state.recovery().is_some(), Why::RecoveryOpen),
        (world.state.rules_doubted().is_some(), Why::RulesDoubted),
    ];
    let before = held_back.into_iter().find(|(held_back, _)| *held_back).map(|(_, why)| why);
    let room = || scale_up::judge_scale_up(world, uid, &*gangs::scale_up_gang(world, uid)?, now?).err();
    let help = |why: &Why| too_small_for(world, workload, why).unwrap_or_else(|| why.would_help());
    let lacks = || {
        world
            .live
            .scale_up_reasons
            .get(&uid)
            .map(|why| beyond_quota(world, uid, class, why).unwrap_or_else(|| why.clone()))
    };
    Some(match before.or_else(lacks) {
        // With its quota alone it would still wait.
        Some(why @ Why::Quota(_)) => match room() {
            Some(then) => {
                let words = format!("{grows}: first: {}; then, where it runs: {}", why.words(), then.words());
                (words, format!("first: {}; then: {}", why.would_help(), help(&then)))
            }
            None => (format!("{grows}: {}", why.words()), why.would_help()),
        },
        Some(why) => (format!("{grows}: {}", why.words()), help(&why)),
        None => (format!("{grows}: it is looked at when its turn comes"), String::new()),
    })
}

/// That all of a gang, with what it is to grow by, is more than its queue could ever have: then it waits for nobody's end.
fn beyond_quota(world: &World, uid: Uid, class: &Class, why: &Why) -> Option<Why> {
    let Why::Quota(quota @ NoQuota::Used(short)) = why else { return None };
    let brain = world.mirror.brain();
    let queue = brain.workload(world.mirror.growth(uid)?)?.queue;
    let (flavor, resource, more) = case::key_of(brain, quota)?;
    let asks = class.gang.total().get(&short.resource).copied().unwrap_or(0);
    let nominal = brain.most(queue, (flavor, resource));
    // Its quota is to have room for the rest beside what is used now.
    let raise_to = brain.nominal_for(queue, (flavor, resource), more);
    let exceeds = NoQuota::ExceedsQuota {
        flavor: short.flavor.clone(),
        resource: short.resource.clone(),
        asks,
        nominal,
        raise_to,
    };
    (asks > nominal).then_some(Why::Quota(exceeds))
}

/// What would help where all of a gang could never be where it runs, whoever ends there.
fn too_small_for(world: &World, workload: &Workload, why: &Why) -> Option<String> {
    let (Why::NoRoom(_) | Why::Refused { reason: RefuseReason::NoRoom, .. }) = why else { return None };
    let cluster = &workload.right()?.1.cluster;
    let gang =
        gangs::with_flavor_constraints(world, &world.queues.class(workload.class()).gang, workload.flavors());
    match topology::judge_domains(world, &gang, cluster, Gone::All) {
        Err(Misfit::NoDomain { level, .. }) => {
            return Some(remedy::larger_domains_in(world, cluster, &level, &gang));
        }
        Err(misfit) => return Some(Why::NoRoom(misfit).would_help()),
        Ok(()) => {}
    }
    match world.live.clusters.get(cluster)?.capacity.fits(&gang) {
        Err(misfit @ Misfit::NotEnoughRoom { fits_empty: false, .. }) => {
            Some(Why::NoRoom(misfit).would_help())
        }
        _ => None,
    }
}
