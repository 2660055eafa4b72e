//! Whether an agent's certificate is accepted: each request is checked against the committed state, before
//! its body is taken and before its answer leaves. A change that voids certificates also cuts the connections
//! that use them.

use super::request::{Failure, no_certificate};
use super::state::Agents;
use crate::engine::Handle;
use crate::engine::clock::{BootClock, Clock};
use crate::tls::{AgentIdentity, Connections, Peer};
use axum::http::StatusCode;
use meridian_manager_core::facts::actor::Actor;
use meridian_manager_core::facts::input::{ClusterPlace, Input, Operator};
use meridian_manager_core::facts::key::Key;
use meridian_manager_core::facts::outcome::Reply;
use meridian_manager_core::state::certificates::{
    CertificateUse, InvalidCertificate, RENEWAL_GRACE, check_certificate,
};
use meridian_objects::Kind;
use meridian_shared::identity::CertificateBinding;
use meridian_shared::ids::{ClusterName, Jurisdiction, RecordNumber, Region};
use meridian_views::asker::Asker;
use serde::Deserialize;
use std::time::Instant;
use tokio_util::sync::CancellationToken;

/// A cluster as the committed state describes it.
struct CommittedCluster {
    place: ClusterPlace,
    certificates: Certificates,
}

/// The part of a cluster's status that is about certificates.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Certificates {
    valid: Option<CertificateBinding>,
    adopted_above: Option<RecordNumber>,
}

impl CommittedCluster {
    /// `None` if there is no such `Cluster` object.
    fn read(engine: &Handle, cluster: &ClusterName) -> Option<Self> {
        let view = engine.reads().get(&Key::global(Kind::Cluster, cluster.as_str()), &Asker::unlimited())?;
        let spec = view.value.get("spec")?;
        let place = ClusterPlace {
            cluster: cluster.clone(),
            region: Region::new(spec.get("region")?.as_str()?),
            jurisdiction: Jurisdiction::new(spec.get("jurisdiction")?.as_str()?),
        };
        let certificates = view.value.get("status").and_then(|status| status.get("certificates"));
        // a status that can't be read is a bug; then no certificate is accepted
        let certificates = certificates.and_then(|c| Certificates::deserialize(c).ok()).unwrap_or_default();
        Some(Self { place, certificates })
    }
}

/// Whether certificates with this binding are valid for this cluster, by committed state.
pub(super) fn is_valid(engine: &Handle, cluster: &ClusterName, binding: CertificateBinding) -> bool {
    CommittedCluster::read(engine, cluster).is_some_and(|found| found.certificates.valid == Some(binding))
}

impl Agents {
    /// The agent behind a request. Fails unless its certificate is accepted for this use.
    pub(super) async fn admit<'p>(
        &self,
        peer: &'p Peer,
        purpose: CertificateUse,
    ) -> Result<&'p AgentIdentity, Failure> {
        let agent = peer.agent.as_ref().ok_or_else(no_certificate)?;
        let engine = &self.parts.engine;
        let found = CommittedCluster::read(engine, &agent.cluster);
        let is_later = found.is_some_and(|found| {
            found.certificates.adopted_above.is_some_and(|above| agent.binding.generation > above)
        });
        if is_later {
            let (cluster, binding) = (agent.cluster.clone(), agent.binding);
            let (actor, action) = (Actor::agent(&cluster), Operator::AdoptCertificate { cluster, binding });
            // if this is refused, the state has changed since, and the check below finds the reason
            if let Reply::Done(message) = engine.ask(Input::Operator { actor, action }).await? {
                tracing::warn!(%message, "the journal is older than an agent's certificate");
            }
        }
        self.check(agent, purpose)?;
        Ok(agent)
    }

    /// The place of an agent's cluster. Fails if the agent's certificate isn't accepted now.
    pub(super) fn check(
        &self,
        agent: &AgentIdentity,
        purpose: CertificateUse,
    ) -> Result<ClusterPlace, Failure> {
        let cluster = &agent.cluster;
        let checked = match CommittedCluster::read(&self.parts.engine, cluster) {
            None => Err(removed(cluster)),
            Some(CommittedCluster { place, certificates }) => {
                let (presented, now) = ((agent.binding, agent.not_after), BootClock.now().wall);
                check_certificate(certificates.valid, presented, purpose, now)
                    .map(|()| place)
                    .map_err(|invalid| refusal(cluster, invalid))
            }
        };
        if let Some(refused) = checked.as_ref().err().filter(|failure| failure.code == StatusCode::FORBIDDEN)
        {
            // a bounded label, as in `enter`
            self.parts.engine.metrics().agents.requests_refused.inc([cluster.as_str()]);
            if let Some(left_out) = self.refusals.permit(cluster.clone(), Instant::now()) {
                tracing::warn!(
                    cluster = cluster.as_str(),
                    why = refused.message(),
                    left_out,
                    "refused an agent's certificate"
                );
            }
        }
        checked
    }
}

fn removed(cluster: &ClusterName) -> Failure {
    let message = format!(
        "cluster `{cluster}` was removed, which voids its agent's certificate: create its `Cluster` object \
         first; {}",
        remedy(cluster)
    );
    Failure::new(StatusCode::FORBIDDEN, message)
}

fn refusal(cluster: &ClusterName, invalid: InvalidCertificate) -> Failure {
    let why = match invalid {
        InvalidCertificate::Expired => {
            return Failure::new(
                StatusCode::UNAUTHORIZED,
                "the certificate has expired: it is valid for renewal only".to_owned(),
            );
        }
        InvalidCertificate::Revoked => format!(
            "the certificate of cluster `{cluster}` was revoked: an operator revoked it, or another agent \
             has joined as this cluster"
        ),
        InvalidCertificate::NotIssuedHere => format!(
            "the certificate of cluster `{cluster}` is void: the cluster was deleted and created again, or \
             the manager's journal was lost"
        ),
        InvalidCertificate::GraceOver => format!(
            "the certificate of cluster `{cluster}` expired more than {} days ago, which is too long for a \
             renewal",
            RENEWAL_GRACE.0 / (24 * 3_600_000)
        ),
    };
    Failure::new(StatusCode::FORBIDDEN, format!("{why}; {}", remedy(cluster)))
}

fn remedy(cluster: &ClusterName) -> String {
    format!(
        "to let this agent join again, stop it, remove `identity.json` from its data directory, and run \
         there what `meridian cluster join {cluster} --replace` prints"
    )
}

/// Cuts the connections of agents as soon as their certificates are void, until `stop`.
pub async fn cut_void_connections(engine: Handle, connections: Connections, stop: CancellationToken) {
    let mut changes = engine.reads().cluster_changes();
    loop {
        tokio::select! {
            changed = changes.changed() => if changed.is_err() { return },
            () = stop.cancelled() => return,
        }
        let cut = connections.cut_agents(|agent| is_valid(&engine, &agent.cluster, agent.binding));
        if cut > 0 {
            tracing::info!(cut, "cut connections of agents with void certificates");
        }
    }
}
