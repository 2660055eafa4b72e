//! Log lines about clusters that disconnect and come back. There is no record of that, because silence is no
//! input.

use super::{Line, whole_seconds};
use meridian_manager_core::World;
use meridian_shared::ids::{ClusterName, Region};
use meridian_shared::lease;
use meridian_shared::time::{Millis, Mono, Now, Wall};
use meridian_shared::timestamp::timestamp;
use std::collections::BTreeMap;

/// How often the log repeats that a cluster is still disconnected.
const REMIND_EVERY: Millis = Millis::mins(10);

/// The contact with the agents of all clusters that have joined.
#[derive(Debug, Default)]
pub(in crate::engine) struct Contacts {
    clusters: BTreeMap<ClusterName, Contact>,
    /// Silence after which a cluster counts as disconnected.
    silence: Millis,
}

#[derive(Clone, Debug)]
struct Contact {
    region: Region,
    /// Time since the last contact; `None` if there was none in this leadership.
    since: Option<Millis>,
    /// Jobs that have the right to run there.
    jobs: usize,
}

impl Contacts {
    pub(in crate::engine) fn of(world: &World, now: Now) -> Self {
        let joined =
            world.state().catalog().clusters().filter(|(name, _)| world.state().members().contains_key(name));
        let contact = |name: &ClusterName, region: &Region| Contact {
            region: region.clone(),
            since: world.live().cluster(name).map(|live| now.mono.since(live.heard())),
            jobs: world
                .counts_by_queue()
                .legs()
                .filter(|(cluster, state, _)| *cluster == name && state.granted())
                .map(|(_, _, jobs)| usize::try_from(jobs).unwrap_or(usize::MAX))
                .sum(),
        };
        let clusters = joined.map(|(name, spec)| (name.clone(), contact(&name, &spec.region))).collect();
        Self { clusters, silence: lease::disconnect_after(world.config().term_min) }
    }
}

/// Contact state of a cluster.
#[derive(Clone, Copy, Debug)]
enum Watched {
    /// No contact in this leadership; this process first noticed that at the given time.
    Unheard(Mono),
    Connected,
    Away {
        /// Last contact with the cluster, or when this process began to wait for it.
        since: Mono,
        /// When the log last mentioned the cluster.
        named: Mono,
    },
}

/// Notices clusters that disconnect or come back.
#[derive(Debug, Default)]
pub(super) struct ClusterWatch(BTreeMap<ClusterName, Watched>);

impl ClusterWatch {
    /// The lines about clusters that have changed.
    pub(super) fn observe(&mut self, contacts: Contacts, now: Now) -> Vec<Line> {
        let Contacts { clusters, silence } = contacts;
        self.0.retain(|cluster, _| clusters.contains_key(cluster));
        let mut lines = Vec::new();
        for (cluster, contact) in clusters {
            let before = self.0.get(&cluster).copied().unwrap_or(Watched::Unheard(now.mono));
            let (after, line) = step(before, &contact, silence, now);
            lines.extend(line.map(|line| line.at(Some(cluster.clone()))));
            self.0.insert(cluster, after);
        }
        lines
    }
}

fn step(before: Watched, contact: &Contact, silence: Millis, now: Now) -> (Watched, Option<Line>) {
    let is_connected = contact.since.is_some_and(|since| since <= silence);
    let jobs = match contact.jobs {
        0 => String::new(),
        1 => "; 1 job has the right to run there".to_owned(),
        many => format!("; {many} jobs have the right to run there"),
    };
    let region = &contact.region;
    match before {
        Watched::Unheard(_) if is_connected => {
            (Watched::Connected, Some(Line::info("cluster connected").because(format!("in {region}"))))
        }
        Watched::Unheard(since) if now.mono.since(since) > silence => {
            let line = Line::warn("cluster has not connected yet")
                .because(format!("in {region}; waited for {}{jobs}", whole_seconds(now.mono.since(since))));
            (Watched::Away { since, named: now.mono }, Some(line))
        }
        Watched::Connected if !is_connected => {
            // Only a new leadership has had no contact.
            let Some(silent) = contact.since else { return (Watched::Unheard(now.mono), None) };
            let last =
                timestamp(Wall(now.wall.0.saturating_sub(i64::try_from(silent.0).unwrap_or(i64::MAX))));
            let ago = whole_seconds(silent);
            let line = Line::warn("cluster disconnected")
                .because(format!("in {region}; last heard at {last}, {ago} ago{jobs}"));
            let since = Mono(now.mono.0.saturating_sub(silent.0));
            (Watched::Away { since, named: now.mono }, Some(line))
        }
        Watched::Away { since, .. } if is_connected => {
            let away = whole_seconds(now.mono.since(since));
            let line = Line::info("cluster is back").because(format!("in {region}; it was away for {away}"));
            (Watched::Connected, Some(line))
        }
        Watched::Away { since, named } if now.mono.since(named) >= REMIND_EVERY => {
            let line = Line::warn("cluster is still disconnected")
                .because(format!("in {region}; away for {}{jobs}", whole_seconds(now.mono.since(since))));
            (Watched::Away { since, named: now.mono }, Some(line))
        }
        Watched::Unheard(_) | Watched::Connected | Watched::Away { .. } => (before, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_that_goes_and_comes_back_is_named_once_each() {
        let mut watch = ClusterWatch::default();
        let mut look = |second: u64, since: Option<u64>| {
            let contact =
                Contact { region: Region::new("europe-west4"), since: since.map(Millis::secs), jobs: 2 };
            let contacts = Contacts { clusters: [("eu".into(), contact)].into(), silence: Millis::secs(30) };
            let now = Now { mono: Mono(second * 1_000), wall: Wall((second * 1_000).cast_signed()) };
            let lines = watch.observe(contacts, now);
            assert!(lines.iter().all(|line| line.cluster == Some("eu".into())), "{lines:?}");
            lines.first().map(|line| format!("{}: {}", line.message, line.why.as_deref().unwrap()))
        };
        assert_eq!(look(0, None), None);
        assert_eq!(
            look(31, None).unwrap(),
            "cluster has not connected yet: in europe-west4; waited for 31s; 2 jobs have the right to run \
             there"
        );
        assert_eq!(look(40, Some(0)).unwrap(), "cluster is back: in europe-west4; it was away for 40s");
        assert_eq!(look(70, Some(30)), None);
        assert_eq!(
            look(71, Some(31)).unwrap(),
            "cluster disconnected: in europe-west4; last heard at 1970-01-01T00:00:40Z, 31s ago; 2 jobs have \
             the right to run there"
        );
        assert_eq!(look(600, Some(560)), None);
        assert!(
            look(671, Some(631)).unwrap().starts_with("cluster is still disconnected: in europe-west4; away")
        );
        assert_eq!(look(700, Some(1)).unwrap(), "cluster is back: in europe-west4; it was away for 11m");
        // A new leadership of this process has heard nothing yet.
        assert_eq!(look(710, None), None);
        assert_eq!(look(711, Some(0)).unwrap(), "cluster connected: in europe-west4");
    }
}
