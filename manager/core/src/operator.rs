//! What operators do: day two, and the few things that only a person may say.

use crate::Orphan;
use crate::audit::Entry;
use crate::input::{Actor, Key, Operator, Rejection, RejectionReason, Reply};
use crate::record::Record;
use crate::turn::Turn;
use meridian_objects::{FieldError, Kind, Object};
use meridian_shared::ids::{ClusterName, Fence, Jurisdiction, LedgerId, Region, Uid};
use meridian_shared::protocol::StopReason;
use serde_json::json;

impl Turn<'_> {
    pub(crate) fn operate(&mut self, by: Actor, action: Operator) {
        let done = match action {
            Operator::Cordon(cluster) => self.cordon(&by, &cluster, true),
            Operator::Uncordon(cluster) => self.cordon(&by, &cluster, false),
            Operator::Drain(cluster) => self.drain(&by, &cluster),
            Operator::Admit(cluster) => self.admit_cluster(&by, &cluster),
            Operator::DeclareLost { cluster, ledger } => self.declare_lost(&by, &cluster, ledger),
            Operator::MintToken { hash, cluster, region, jurisdiction, ttl, replace } => {
                self.mint(&by, hash, cluster, region, jurisdiction, ttl, replace)
            }
            Operator::UseToken { hash } => return self.use_token(&hash),
            Operator::ConfirmRecovery => self.confirm_recovery(&by),
            Operator::ConfirmRules => {
                self.record(Record::RulesConfirmed { by: by.clone() });
                self.operator_audit(&by, "confirm-rules", String::new(), None);
                self.stir();
                Ok("policies and quotas are confirmed".into())
            }
            Operator::StopOrphan { uid, fence } => self.stop_orphan(&by, uid, fence),
            Operator::AdoptOrphan { uid, fence, job } => self.adopt_orphan(&by, uid, fence, &job),
        };
        match done {
            Ok(words) => self.reply(Reply::Done(words)),
            Err(rejection) => self.reply(Reply::Rejected(vec![rejection])),
        }
    }

    fn operator_audit(&mut self, by: &Actor, action: &str, subject: String, cluster: Option<&ClusterName>) {
        let entry = Entry {
            action: action.into(),
            subject,
            cluster: cluster.map(ToString::to_string),
            verdict: None,
            rule: None,
            detail: None,
        };
        self.audit(by.clone(), entry);
    }

    fn cordon(&mut self, by: &Actor, cluster: &ClusterName, cordoned: bool) -> Result<String, Rejection> {
        let key = Key::global(Kind::Cluster, cluster.as_str());
        let stored = self.world.state.catalog.get(&key).ok_or_else(|| unknown(cluster))?.clone();
        let mut value = stored.object.stored.clone();
        value["spec"]["cordoned"] = json!(cordoned);
        let object = Object::from_stored(value).map_err(|errors| unreadable(&errors))?;
        self.record(Record::Applied {
            key,
            object: Box::new(object),
            uid: stored.uid,
            at: self.now.wall,
            by: by.clone(),
        });
        self.operator_audit(by, if cordoned { "cordon" } else { "uncordon" }, String::new(), Some(cluster));
        self.rejudge();
        self.stir();
        Ok(format!("cluster `{cluster}` {}", if cordoned { "is cordoned" } else { "takes work again" }))
    }

    fn drain(&mut self, by: &Actor, cluster: &ClusterName) -> Result<String, Rejection> {
        self.cordon(by, cluster, true)?;
        let rights = self.rights(cluster);
        for (uid, fence, _) in &rights {
            self.order_stop(*uid, *fence, StopReason::Drained, by);
        }
        self.operator_audit(by, "drain", format!("{} workloads", rights.len()), Some(cluster));
        Ok(format!("cluster `{cluster}` is cordoned and {} workloads are being stopped there", rights.len()))
    }

    fn member(&self, cluster: &ClusterName) -> Result<&crate::Member, Rejection> {
        let missing = || {
            if self.world.state.catalog.cluster(cluster).is_some() {
                never_joined(cluster)
            } else {
                unknown(cluster)
            }
        };
        self.world.state.members.get(cluster).ok_or_else(missing)
    }

    fn admit_cluster(&mut self, by: &Actor, cluster: &ClusterName) -> Result<String, Rejection> {
        self.member(cluster)?;
        self.record(Record::MemberAdmitted { cluster: cluster.clone(), by: by.clone() });
        self.operator_audit(by, "admit", String::new(), Some(cluster));
        self.stir();
        Ok(format!("cluster `{cluster}` may have work"))
    }

    fn declare_lost(
        &mut self,
        by: &Actor,
        cluster: &ClusterName,
        ledger: Option<LedgerId>,
    ) -> Result<String, Rejection> {
        let member = self.member(cluster)?;
        let newest = member.ledger;
        let ledger = ledger.unwrap_or(newest);
        let orphaned = || {
            self.world
                .state
                .orphans
                .values()
                .any(|orphan| orphan.cluster == *cluster && orphan.ledger == ledger)
        };
        let has_legs = || {
            self.world
                .state
                .workloads
                .values()
                .any(|w| w.legs.values().any(|leg| leg.cluster == *cluster && leg.ledger == ledger))
        };
        if ledger != newest && !member.lost.contains(&ledger) && !orphaned() && !has_legs() {
            let words = format!(
                "cluster `{cluster}` never had a ledger `{ledger}`; the one that it has is `{newest}`"
            );
            return Err(rejection(RejectionReason::NotFound, words));
        }
        self.record(Record::DeclaredLost { cluster: cluster.clone(), ledger, by: by.clone() });
        self.operator_audit(by, "declare-lost", ledger.to_string(), Some(cluster));
        let rights: Vec<(Uid, Fence)> = self
            .rights(cluster)
            .into_iter()
            .filter(|(uid, fence, _)| {
                self.workload(*uid).and_then(|w| w.leg_of(*fence)).is_some_and(|(_, l)| l.ledger == ledger)
            })
            .map(|(uid, fence, _)| (uid, fence))
            .collect();
        for (uid, fence) in &rights {
            self.record(Record::Lapsed {
                uid: *uid,
                fence: *fence,
                at: self.now.wall,
                declared: true,
                by: Some(by.clone()),
            });
            self.freed(*uid, *fence);
        }
        self.orphans_declared_lost(cluster, ledger, by);
        // A ledger that came after the lost one still has to show what it runs.
        if ledger == newest {
            self.withdraw_all(cluster);
            self.world.live.clusters.remove(cluster);
            if self.world.live.awaited.remove(cluster) {
                self.maybe_close();
            }
        }
        Ok(format!(
            "ledger `{ledger}` of cluster `{cluster}` is declared lost; {} workloads are free to start elsewhere",
            rights.len()
        ))
    }

    #[expect(
        clippy::too_many_arguments,
        reason = "a token is bound to all of these, and each is a type of its own"
    )]
    fn mint(
        &mut self,
        by: &Actor,
        hash: String,
        cluster: ClusterName,
        region: Region,
        jurisdiction: Jurisdiction,
        ttl: meridian_shared::time::Millis,
        replace: bool,
    ) -> Result<String, Rejection> {
        let known = self.world.state.members.contains_key(&cluster);
        if known && !replace {
            return Err(taken(&cluster));
        }
        let key = Key::global(Kind::Cluster, cluster.as_str());
        self.is_declared_so(&cluster, &region, &jurisdiction)?;
        if self.world.state.catalog.get(&key).is_none() {
            let value = json!({
                "apiVersion": "meridian.dev/v1alpha1", "kind": "Cluster", "metadata": {"name": cluster.as_str()},
                "spec": {"region": region.as_str(), "jurisdiction": jurisdiction.as_str()},
            });
            let (object, _) = Object::from_value(value).map_err(|errors| unreadable(&errors))?;
            let uid = Uid(u128::from(self.world.state.last.0) << 64
                | u128::from(meridian_shared::backoff::splitmix(self.now.wall.0.unsigned_abs())));
            self.record(Record::Applied {
                key,
                object: Box::new(object),
                uid,
                at: self.now.wall,
                by: by.clone(),
            });
        }
        let expires = self.now.wall + ttl;
        self.operator_audit(
            by,
            "mint-token",
            format!("region {region}, jurisdiction {jurisdiction}"),
            Some(&cluster),
        );
        self.record(Record::TokenMinted {
            hash,
            cluster: cluster.clone(),
            region,
            jurisdiction,
            expires,
            replace,
            by: by.clone(),
        });
        self.stir();
        Ok(format!("a token for cluster `{cluster}` was made"))
    }

    /// A cluster is where its object says, and nowhere else.
    fn is_declared_so(
        &self,
        cluster: &ClusterName,
        region: &Region,
        jurisdiction: &Jurisdiction,
    ) -> Result<(), Rejection> {
        match self.world.state.catalog.cluster(cluster) {
            Some(spec) if spec.region != *region || spec.jurisdiction != *jurisdiction => Err(rejection(
                RejectionReason::Conflict,
                format!(
                    "cluster `{cluster}` is declared in region `{}`, jurisdiction `{}`, not in `{region}`, `{jurisdiction}`: correct its `Cluster` object, or join with what it says",
                    spec.region, spec.jurisdiction
                ),
            )),
            _ => Ok(()),
        }
    }

    fn use_token(&mut self, hash: &str) {
        let bad = || {
            rejection(RejectionReason::Forbidden, "the join token is unknown, was used, or has expired: make a new one with `meridian cluster join`".into())
        };
        let Some(token) = self.world.state.tokens.get(hash).cloned() else {
            return self.reply(Reply::Rejected(vec![bad()]));
        };
        if token.expires < self.now.wall {
            return self.reply(Reply::Rejected(vec![bad()]));
        }
        // Since it was made another agent may have come, or the cluster been declared elsewhere.
        if self.world.state.members.contains_key(&token.cluster) && !token.replace {
            return self.reply(Reply::Rejected(vec![taken(&token.cluster)]));
        }
        if let Err(elsewhere) = self.is_declared_so(&token.cluster, &token.region, &token.jurisdiction) {
            return self.reply(Reply::Rejected(vec![elsewhere]));
        }
        self.record(Record::TokenUsed { hash: hash.to_owned() });
        self.operator_audit(&Actor::agent(&token.cluster), "join", String::new(), Some(&token.cluster));
        self.reply(Reply::Joined {
            cluster: token.cluster,
            region: token.region,
            jurisdiction: token.jurisdiction,
        });
    }

    fn confirm_recovery(&mut self, by: &Actor) -> Result<String, Rejection> {
        if self.world.state.recovery.is_none() {
            return Err(rejection(
                RejectionReason::Conflict,
                "recovery isn't open: there is nothing to confirm".into(),
            ));
        }
        self.operator_audit(by, "confirm-recovery", String::new(), None);
        self.close_recovery(by.clone());
        Ok("recovery is closed".into())
    }

    /// Only the job that really runs is taken, and only once everybody has shown what they run: the largest fence wins.
    fn adopt_orphan(
        &mut self,
        by: &Actor,
        uid: Uid,
        fence: Fence,
        job: &Object,
    ) -> Result<String, Rejection> {
        let orphan = self.orphan(uid, fence)?;
        if orphan.stopping {
            return Err(rejection(
                RejectionReason::Conflict,
                format!(
                    "orphan `{uid}` is being stopped at `{}`: submit its job again once it is gone",
                    orphan.cluster
                ),
            ));
        }
        if self.world.state.recovery.is_some() {
            let message = "recovery is open, and another cluster may run a newer attempt: adopt it once recovery has ended";
            return Err(rejection(RejectionReason::Conflict, message.into()));
        }
        let mut others = self.world.state.orphans.iter().filter(|((other, _), _)| *other == uid);
        if let Some(((_, newer), o)) = others.find(|((_, other), _)| *other > fence) {
            return Err(rejection(
                RejectionReason::Conflict,
                format!("a newer attempt `{newer}` runs at `{}`: adopt that one", o.cluster),
            ));
        }
        self.submit_adopted(job, &orphan.run, by)?;
        let Orphan { cluster, ledger, run, .. } = orphan;
        self.operator_audit(by, "adopt-orphan", uid.to_string(), Some(&cluster));
        self.record(Record::OrphanGone { uid, fence, by: Some(by.clone()) });
        self.adopt(&cluster, ledger, &run);
        // What was kept is how the run was first seen: whether it has started since, its agent has said to nobody.
        if let Some(live) = self.world.live.clusters.get_mut(&cluster) {
            live.want_inventory = true;
            self.out.wake.insert(cluster.clone());
        }
        self.stir();
        Ok(format!(
            "`{uid}` at `{cluster}` is job `{}/{}` again",
            job.namespace_or_default().unwrap_or_default(),
            job.name
        ))
    }

    fn orphan(&self, uid: Uid, fence: Fence) -> Result<Orphan, Rejection> {
        let missing = || {
            rejection(RejectionReason::NotFound, format!("there is no orphan `{uid}` with fence `{fence}`"))
        };
        self.world.state.orphans.get(&(uid, fence)).cloned().ok_or_else(missing)
    }

    fn stop_orphan(&mut self, by: &Actor, uid: Uid, fence: Fence) -> Result<String, Rejection> {
        let Orphan { cluster, ledger, .. } = self.orphan(uid, fence)?;
        self.operator_audit(by, "stop-orphan", uid.to_string(), Some(&cluster));
        self.record(Record::OrphanStopOrdered { uid, fence, by: by.clone() });
        self.stop_orphans(&cluster, ledger);
        Ok(format!("orphan `{uid}` is being stopped at `{cluster}`"))
    }
}

fn unreadable(errors: &[FieldError]) -> Rejection {
    let all: Vec<String> = errors.iter().map(ToString::to_string).collect();
    rejection(RejectionReason::Invalid, all.join("; "))
}

fn taken(cluster: &ClusterName) -> Rejection {
    let message =
        format!("cluster `{cluster}` has joined before: pass `--replace` to let another agent take its name");
    rejection(RejectionReason::AlreadyExists, message)
}

/// A cluster that is declared, and from which no agent ever came.
fn never_joined(cluster: &ClusterName) -> Rejection {
    let words = format!(
        "cluster `{cluster}` never joined: there is no agent of it that could be admitted or declared lost"
    );
    rejection(RejectionReason::Conflict, words)
}

fn unknown(cluster: &ClusterName) -> Rejection {
    rejection(RejectionReason::NotFound, format!("there is no cluster `{cluster}`"))
}

fn rejection(reason: RejectionReason, message: String) -> Rejection {
    Rejection { index: 0, reason, field: None, message }
}
