//! Commands are built when they are sent, and follow the rules of that moment.

use super::elastic::elastic;
use super::*;
use meridian_shared::protocol::{Command, Offer};

impl Fleet {
    /// The commands of the next answer to the agent in `eu`. It gets them.
    fn sent_to_eu(&mut self) -> Vec<Command> {
        let request = self.compose("eu", Lane::News);
        self.world.committed(Mono(self.now));
        let answer = self.answer("eu", request);
        let SyncAnswer::Ok(response) = &*answer else { panic!("{answer:?}") };
        let commands = response.commands.clone();
        self.deliver("eu", answer);
        commands
    }

    /// Submits an elastic job of the priority class `vip`, and lets it run.
    fn run_elastic(&mut self) -> Uid {
        self.apply(vec![priority_class("vip", 7), cluster_object("us", "us-east4", "US")]);
        let (uid, _) = self.put(vip(3));
        self.settle();
        assert_eq!(self.phase(uid), Some(Phase::Running));
        uid
    }
}

fn vip(pods: u32) -> Value {
    let mut job = elastic("gang", pods);
    job["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] = json!("vip");
    job
}

/// Denies `eu` to new attempts. What runs there may stay.
fn flag() -> Value {
    let spec = json!({"applies": {}, "deny": {"clusters": ["eu"]}, "onChange": "Flag"});
    meridian_object("ResidencyPolicy", "away", spec)
}

fn offers(commands: &[Command]) -> Vec<&Offer> {
    let mut offers = Vec::new();
    for command in commands {
        if let Command::Offer(offer) = command {
            offers.push(&**offer);
        }
    }
    offers
}

#[test]
fn an_offer_that_was_withdrawn_before_it_was_sent_is_never_sent() {
    for closes in ["cordon", "policy"] {
        let mut f = Fleet::new(EU);
        let uid = f.submit("gang", 2);
        assert_eq!(f.phase(uid), Some(Phase::Dispatching));
        match closes {
            "cordon" => {
                f.input(Input::Operator { actor: Actor::user("op"), action: Operator::Cordon("eu".into()) });
            }
            _ => drop(f.apply(vec![flag()])),
        }
        let commands = f.sent_to_eu();
        assert_eq!(offers(&commands).len(), 0, "{closes}: {commands:?}");
        assert!(commands.iter().all(|command| matches!(command, Command::Withdraw { .. })), "{commands:?}");
    }
}

#[test]
fn a_forbidden_cluster_learns_nothing_more_about_what_runs_there() {
    let mut f = Fleet::new(EU);
    let uid = f.run_elastic();
    f.apply(vec![flag()]);
    f.put(vip(2));
    f.apply(vec![priority_class("vip", 8)]);
    let commands = f.sent_to_eu();
    assert_eq!(f.phase(uid), Some(Phase::Running));
    assert_eq!(commands.len(), 2);
    assert!(commands.iter().all(|command| matches!(command, Command::Withdraw { .. })), "{commands:?}");
}

#[test]
fn guards_are_required_by_a_policy_or_by_a_manager_that_hosts_agents_by_now() {
    let policy = |mode: &str| {
        let loss = json!({"mode": mode, "requires": "Guarded"});
        meridian_object(
            "DispatchPolicy",
            "guards",
            json!({"applies": {"queues": ["cq"]}, "onClusterLoss": loss}),
        )
    };
    let waits = || {
        let spec = json!({"applies": {"queues": ["cq"]}, "onClusterLoss": {"mode": "Wait"}});
        meridian_object("DispatchPolicy", "waits", spec)
    };
    for (policy, hosts_agents, required) in [
        (None, false, false),
        (None, true, true),
        (Some(waits()), true, false),
        (Some(policy("Fence")), false, true),
        (Some(policy("Fence")), true, true),
    ] {
        let mut f = Fleet::new(EU);
        f.apply(policy.clone().into_iter().collect());
        f.submit("gang", 2);
        f.world.config_mut().hosts_agents = hosts_agents;
        let commands = f.sent_to_eu();
        let [offer] = offers(&commands)[..] else { panic!("{commands:?}") };
        assert_eq!(offer.requires_guarded, required, "{policy:?}, {hosts_agents}");
    }
}

/// A gang is granted, and the answer with the grant is lost.
fn granted_in_vain(mode: &str) -> (Fleet, Uid) {
    let mut f = Fleet::new(EU);
    let spec = json!({"applies": {"queues": ["cq"]}, "onClusterLoss": {"mode": mode}});
    f.apply(vec![meridian_object("DispatchPolicy", "policy", spec)]);
    let uid = f.submit("gang", 2);
    f.exchange_news("eu");
    let request = f.compose("eu", Lane::News);
    drop(f.answer("eu", request));
    assert_eq!(f.phase(uid), Some(Phase::Granted));
    (f, uid)
}

fn has_grant(commands: &[Command]) -> bool {
    commands.iter().any(|command| matches!(command, Command::Grant(_)))
}

#[test]
fn a_lost_grant_is_sent_again_for_one_term() {
    let (mut f, _) = granted_in_vain("Wait");
    f.now += TERM.0 - 1;
    assert!(has_grant(&f.sent_to_eu()));
    let (mut f, uid) = granted_in_vain("Wait");
    f.now += TERM.0;
    let commands = f.sent_to_eu();
    assert!(!has_grant(&commands) && commands.len() == 1, "{commands:?}");
    assert!(matches!(commands[0], Command::Stop { uid: of, .. } if of == uid), "{commands:?}");
}

#[test]
fn a_lost_grant_is_not_sent_again_once_its_gang_is_to_stop() {
    let (mut f, uid) = granted_in_vain("Fence");
    f.stop(uid);
    assert_eq!(f.phase(uid), Some(Phase::Stopping));
    f.now += 2_000;
    let commands = f.sent_to_eu();
    assert!(!has_grant(&commands) && !commands.is_empty(), "{commands:?}");
}
