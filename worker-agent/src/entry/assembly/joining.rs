//! The join of an agent by the service account that its cluster gives it, before its first start.

use crate::guard::clock;
use crate::identity::{self, Identity};
use crate::settings::IssuerJoin;
use anyhow::Context as _;
use meridian_shared::time::{Millis, Wall};
use meridian_telemetry::with_causes;
use std::path::Path;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Pause after a failed join: the manager may not run yet, or not know this agent yet.
const PAUSE: Duration = Duration::from_secs(10);
/// A certificate that expired longer ago can't be renewed, so the agent joins anew.
const GRACE: Millis = Millis::mins(7 * 24 * 60);

/// Joins if there is no usable identity in `dir`. Returns `false` if `stop` was cancelled first.
pub(super) async fn join(
    settings: &IssuerJoin,
    dir: &Path,
    stop: &CancellationToken,
) -> anyhow::Result<bool> {
    if Identity::load(dir)?.is_some_and(|identity| is_usable(&identity, clock::now().wall)) {
        return Ok(true);
    }
    let mut logged = String::new();
    loop {
        match attempt(settings, dir).await {
            Ok(identity) => {
                let Identity { cluster, region, .. } = &identity;
                tracing::info!(%cluster, %region, "joined by the service account of this agent");
                return Ok(true);
            }
            Err(error) => {
                let text = with_causes(&*error);
                if text != logged {
                    tracing::warn!(error = text, "cannot join by the service account: trying again");
                    logged = text;
                }
            }
        }
        tokio::select! {
            () = stop.cancelled() => return Ok(false),
            () = tokio::time::sleep(PAUSE) => {}
        }
    }
}

fn is_usable(identity: &Identity, now: Wall) -> bool {
    now <= identity.not_after + GRACE
}

async fn attempt(settings: &IssuerJoin, dir: &Path) -> anyhow::Result<Identity> {
    let read = async |file: &Path| {
        let text = tokio::fs::read_to_string(file).await;
        text.with_context(|| format!("cannot read `{}`", file.display()))
    };
    let (token, ca) = (read(&settings.token_file).await?, read(&settings.ca_file).await?);
    Ok(identity::join_by_issuer(&settings.manager, token.trim().to_owned(), &ca, dir).await?)
}
