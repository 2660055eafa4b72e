//! The network between agents and managers: messages are lost, late, doubled, or cut off in one direction.

use crate::sim::context::SimContext;
use crate::sim::context::event::SimEvent;
use crate::sim::hosts::agent::AgentHost;
use meridian_shared::protocol::{SyncAnswer, SyncRequest};

/// The link of one agent. Times are true times in milliseconds.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Link {
    pub(crate) up_cut_until: u64,
    pub(crate) down_cut_until: u64,
    pub(crate) slow_until: u64,
    /// Only this manager can be reached, and until when.
    pub(crate) pinned: Option<(usize, u64)>,
}

/// The links of all agents, by index.
#[derive(Debug, Default)]
pub(crate) struct Network {
    links: Vec<Link>,
}

/// Direction of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    Up,
    Down,
}

impl Network {
    /// Adds the link of the next agent.
    pub(crate) fn add_link(&mut self) {
        self.links.push(Link::default());
    }

    pub(crate) fn link_mut(&mut self, agent: usize) -> &mut Link {
        &mut self.links[agent]
    }

    pub(crate) fn links_mut(&mut self) -> impl Iterator<Item = &mut Link> {
        self.links.iter_mut()
    }

    /// Sends a request of an agent to the manager that it can reach.
    pub(crate) fn send_request(
        &self,
        cx: &mut SimContext,
        agent: usize,
        host: &AgentHost,
        managers: usize,
        request: SyncRequest,
    ) {
        let pinned = self.links[agent].pinned.filter(|(_, until)| cx.now < *until);
        let manager = pinned.map_or(host.route, |(manager, _)| manager).min(managers - 1);
        let delays = self.delays(cx, agent, Direction::Up);
        cx.log(|| describe_request(&host.name, manager, &request, &delays));
        cx.counters.one("requests");
        for delay in delays {
            let request = Box::new(request.clone());
            let event = SimEvent::RequestArrives { manager, agent, life: host.life, request };
            cx.schedule(cx.now + delay, event);
        }
    }

    /// Sends an answer of a manager to one life of an agent.
    pub(crate) fn send_answer(
        &self,
        cx: &mut SimContext,
        manager: usize,
        receiver: &Receiver<'_>,
        answer: &SyncAnswer,
    ) {
        let delays = self.delays(cx, receiver.agent, Direction::Down);
        cx.log(|| describe_answer(manager, receiver.name, answer, &delays));
        for delay in delays {
            let event = SimEvent::AnswerArrives {
                agent: receiver.agent,
                life: receiver.life,
                transmission: receiver.transmission,
                answer: Box::new(answer.clone()),
            };
            cx.schedule(cx.now + delay, event);
        }
    }

    /// Delays of one message in milliseconds, one per copy that arrives.
    fn delays(&self, cx: &mut SimContext, agent: usize, direction: Direction) -> Vec<u64> {
        let link = self.links[agent];
        let cut_until = match direction {
            Direction::Up => link.up_cut_until,
            Direction::Down => link.down_cut_until,
        };
        let (cut, slow) = (cut_until > cx.now, link.slow_until > cx.now);
        let (scenario, net) = (&cx.scenario, &mut cx.random.net);
        let (lose, duplicate, stray) =
            if cx.healed { (0, 0, 0) } else { (scenario.lose, scenario.duplicate, scenario.stray) };
        // The draws don't depend on the link, so that one fault doesn't change all later draws.
        let (lost, twice) = (net.permille(lose), net.permille(duplicate));
        let mut late = 0;
        let mut delay = || {
            let usual = net.between(1, scenario.delay_max);
            let extra = if slow { net.between(300, 3_000) } else { 0 };
            let astray = if net.permille(stray) { net.between(1_000, 12_000) } else { 0 };
            late += u64::from(astray > 0);
            usual + extra + astray
        };
        let delays = if twice { vec![delay(), delay()] } else { vec![delay()] };
        if cut || lost {
            cx.counters.one("messages lost");
            return Vec::new();
        }
        if twice {
            cx.counters.one("messages doubled");
        }
        cx.counters.add("messages late", late);
        delays
    }
}

/// The agent that an answer is sent to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Receiver<'a> {
    pub(crate) agent: usize,
    pub(crate) name: &'a str,
    pub(crate) life: u64,
    /// The transmission that is answered.
    pub(crate) transmission: u64,
}

fn describe_delays(delays: &[u64]) -> String {
    match delays {
        [] => "lost".to_owned(),
        [one] => format!("arrives after {one} ms"),
        many => format!("arrives {} times, after {many:?} ms", many.len()),
    }
}

fn describe_request(agent: &str, manager: usize, request: &SyncRequest, delays: &[u64]) -> String {
    let SyncRequest { transmission, session, lane, answered, commands_through, events_from, events, .. } =
        request;
    let follows = request.follows.map_or("nobody".to_owned(), |leadership| leadership.to_string());
    let mut text = format!(
        "agent {agent} → manager {manager}: {lane:?} #{transmission} of session {session}, \
         follows {follows}, answered #{answered}, has commands through {commands_through}"
    );
    if !events.is_empty() {
        text.push_str(&format!(", events from {events_from}: {events:?}"));
    }
    if let Some(inventory) = &request.inventory {
        let leadership = inventory.for_leadership.map_or("nobody".to_owned(), |l| l.to_string());
        let (runs, offers, ends) = (&inventory.runs, &inventory.offers, &inventory.ends);
        text.push_str(&format!(
            ", inventory for {leadership}: runs {runs:?}, offers {offers:?}, ends {ends:?}"
        ));
    }
    format!("{text}; {}", describe_delays(delays))
}

fn describe_answer(manager: usize, agent: &str, answer: &SyncAnswer, delays: &[u64]) -> String {
    let mut text = format!("manager {manager} → agent {agent}: ");
    match answer {
        SyncAnswer::Ok(response) => {
            text.push_str(&format!(
                "answer to #{} of session {} by {}, has events through {}",
                response.transmission, response.session, response.leadership, response.events_through
            ));
            if !response.commands.is_empty() {
                let (from, commands) = (response.commands_from, &response.commands);
                text.push_str(&format!(", commands from {from}: {commands:?}"));
            }
            if !response.renewals.is_empty() {
                text.push_str(&format!(", renews {:?}", response.renewals));
            }
            if !response.ends_acknowledged.is_empty() {
                text.push_str(&format!(", acknowledges ends {:?}", response.ends_acknowledged));
            }
            if response.want_inventory {
                text.push_str(", requests an inventory");
            }
        }
        SyncAnswer::Refused(refusal) => text.push_str(&format!("refusal: {refusal:?}")),
    }
    format!("{text}; {}", describe_delays(delays))
}
