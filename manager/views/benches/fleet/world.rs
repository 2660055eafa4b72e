//! A manager and one cluster in memory, for benchmarks.

use meridian_agent_core::durable::Durable;
use meridian_agent_core::runtime::NodeSpec;
use meridian_agent_core::{
    Agent, Config as AgentConfig, Effect, HoldSettings, Input as AgentInput, RunnerEvent,
};
use meridian_manager_core::facts::actor::Actor;
use meridian_manager_core::facts::input::{Change, Input, PutMode, Write};
use meridian_manager_core::facts::outcome::{Bodies, Reply};
use meridian_manager_core::{Config, Start, World};
use meridian_objects::Object;
use meridian_shared::gang::Amounts;
use meridian_shared::ids::{ContentHash, JournalId, LedgerId, Uid};
use meridian_shared::mac::ReceiptKey;
use meridian_shared::managed::ManagedResources;
use meridian_shared::planted::Planted;
use meridian_shared::protocol::{Lane, RunnerKind};
use meridian_shared::time::{Millis, Mono, Now, Wall};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

pub(crate) const GPU: &str = "nvidia.com/gpu";

/// Bodies of jobs, which a journal would hold.
static BODIES: Mutex<BTreeMap<ContentHash, Arc<str>>> = Mutex::new(BTreeMap::new());

pub(crate) struct Store;

impl Bodies for Store {
    fn body(&self, hash: ContentHash) -> Option<Arc<str>> {
        BODIES.lock().expect("no thread panics while it holds the lock").get(&hash).cloned()
    }
}

/// Milliseconds since the start. Every exchange with an agent advances it.
static CLOCK: AtomicU64 = AtomicU64::new(5_000);

pub(crate) fn now() -> Now {
    let at = CLOCK.load(Ordering::Relaxed);
    Now { mono: Mono(at), wall: Wall(1_800_000_000_000) + Millis(at) }
}

pub(crate) fn write(world: &mut World, objects: Vec<(u128, Value)>) -> Vec<Uid> {
    let change = |(uid, value): (u128, Value)| {
        let object = Box::new(Object::from_value(value).expect("the bench's own objects are right").0);
        Change::Put { object, scope: None, uid: Uid(uid), mode: PutMode::Apply }
    };
    let write = Write::new(Actor::user("bench"), objects.into_iter().map(change).collect(), false);
    let out = world.apply(now(), Input::Write(Box::new(write)), &Store);
    BODIES.lock().expect("no thread panics while it holds the lock").extend(out.bodies);
    match out.reply {
        Reply::Written(written) => written.iter().map(|one| one.uid).collect(),
        other => panic!("not written: {other:?}"),
    }
}

/// A leading manager with one declared cluster and these objects.
pub(crate) fn manager(mut objects: Vec<Value>) -> World {
    let key = ReceiptKey([7; 32]);
    let mut world = World::empty(
        JournalId(1),
        Config { term: Millis::secs(8), term_min: Millis::secs(8), ..Config::new(key) },
    );
    world.lead(Start { id: 1, recovery: None, fresh: true, now: now() }, &Store);
    world.committed(now().mono);
    let flavor = json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ResourceFlavor",
        "metadata": {"name": "any"}});
    let cluster = json!({"apiVersion": "meridian.dev/v1alpha1", "kind": "Cluster",
        "metadata": {"name": "eu"}, "spec": {"region": "europe-west4", "jurisdiction": "EU"}});
    objects.splice(0..0, [flavor, cluster]);
    write(&mut world, objects.into_iter().zip(1..).map(|(object, uid)| (uid, object)).collect());
    world.apply(now(), Input::Turn, &Store);
    world
}

/// The agent of a cluster of `nodes` nodes with eight accelerators each.
pub(crate) fn agent(nodes: u32) -> Agent {
    let config = AgentConfig {
        cluster: "eu".into(),
        runner: RunnerKind::Simulated,
        guarded: true,
        located: None,
        boot: 1,
        replacement_wait: Millis(0),
        holds: HoldSettings::default(),
        managed: ManagedResources::default(),
        planted: Planted::NONE,
    };
    let (mut agent, _) = Agent::start(config, Durable::new(LedgerId(1)), Vec::new(), 1, now());
    let node = |at: u32| NodeSpec {
        name: format!("n{at}"),
        capacity: Amounts::from([(GPU.into(), 8), ("cpu".into(), 64_000)]),
        ..NodeSpec::default()
    };
    agent.apply(now(), AgentInput::Nodes { nodes: (0..nodes).map(node).collect(), pools: Vec::new() });
    agent
}

/// Exchanges messages for a while. The agent starts everything that it gets a grant for.
pub(crate) fn talk(world: &mut World, agent: &mut Agent) {
    for _ in 0..6 {
        CLOCK.fetch_add(20, Ordering::Relaxed);
        let request = agent.compose(now(), Lane::News);
        let reply = world
            .apply(
                now(),
                Input::Sync { cluster: "eu".into(), request: Box::new(request), may_park: false },
                &Store,
            )
            .reply;
        world.apply(now(), Input::Turn, &Store);
        world.committed(now().mono);
        let Reply::Sync(answer) = reply else { panic!("not answered: {reply:?}") };
        let mut effects = agent.apply(now(), AgentInput::Answer(answer)).into_effects();
        effects.extend(agent.apply(now(), AgentInput::Tick).into_effects());
        while let Some(effect) = effects.pop() {
            if let Effect::Start(start) = effect {
                let runs = RunnerEvent::Running { uid: start.uid, fence: start.fence };
                effects.extend(agent.apply(now(), AgentInput::Runner(runs)).into_effects());
            }
        }
    }
}
