//! API servers that a command asks with the user's own rights: those of a kubeconfig, as `kubectl` finds it.

use crate::error::Error;
use meridian_kubernetes::{Connection, ConnectionSettings, KubeconfigSource};
use meridian_manager_kubernetes::preview::PREVIEW;
use std::path::PathBuf;

/// Connects to the API server of a context, or of the current one. Fails if there is no usable kubeconfig or
/// no answer.
pub(super) async fn open(kubeconfig: Option<PathBuf>, context: Option<String>) -> Result<Connection, Error> {
    let Some(kubeconfig) = kubeconfig.or_else(kubectls) else {
        return Err(Error::Refused(
            "no home directory, so no kubeconfig: name one with `--kubeconfig`".to_owned(),
        ));
    };
    let settings = ConnectionSettings { kubeconfig: Some(KubeconfigSource::File(kubeconfig)), context };
    Connection::open(&settings, &PREVIEW).await.map_err(refused)
}

/// A refusal of an API server, or why the server can't be reached.
pub(super) fn refused(error: meridian_kubernetes::Error) -> Error {
    Error::Refused(error.to_string())
}

/// The kubeconfig that kubectl would use; of several the first.
fn kubectls() -> Option<PathBuf> {
    let variable = std::env::var_os("KUBECONFIG").filter(|paths| !paths.is_empty());
    let first = variable.and_then(|paths| std::env::split_paths(&paths).next());
    first.or_else(|| Some(std::env::home_dir()?.join(".kube/config")))
}
