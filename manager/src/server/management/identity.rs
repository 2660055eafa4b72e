//! Checks that the management cluster is that of earlier starts. Another cluster behind the same kubeconfig,
//! or an empty new one, lacks the submitted jobs, and their absence would be taken for their deletion.

use meridian_kubernetes::Error;
use meridian_private_files as files;
use std::path::Path;

/// File in the data directory with the uid of the management cluster's namespace `kube-system`.
const FILE: &str = "management-cluster";

/// Notes the cluster at the first start. Later, fails if it isn't the noted cluster.
pub(super) fn check(data_dir: &Path, server: &str, uid: &str) -> Result<(), Error> {
    let file = data_dir.join(FILE);
    let was = match std::fs::read_to_string(&file) {
        Ok(was) => was.trim().to_owned(),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            if let Err(error) = files::replace(&file, uid) {
                tracing::warn!(%error, "can't note the management cluster, so later starts can't check it");
            }
            return Ok(());
        }
        Err(error) => {
            let file = file.display();
            tracing::warn!(%file, %error, "can't check that this is the earlier management cluster");
            return Ok(());
        }
    };
    if was == uid {
        return Ok(());
    }
    Err(Error::AnotherCluster { server: server.to_owned(), was, found: uid.to_owned(), file })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_cluster_is_refused_until_the_file_is_deleted() {
        let dir = tempfile::tempdir().unwrap();
        let check = |uid| check(dir.path(), "https://mgmt", uid);
        check("uid-1").unwrap();
        check("uid-1").unwrap();
        let refused = check("uid-2").unwrap_err().to_string();
        assert!(refused.contains("has uid uid-2, and not uid-1") && refused.contains(FILE), "{refused}");
        std::fs::remove_file(dir.path().join(FILE)).unwrap();
        check("uid-2").unwrap();
        assert!(check("uid-1").is_err());
    }
}
