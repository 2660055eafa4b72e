//! The generated files match the types.

use meridian_crds::{defined, definition_of, files};
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// With this variable the tests write the files instead of comparing them.
const WRITE: &str = "MERIDIAN_WRITE_GENERATED";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

#[test]
fn generated_files_are_fresh() {
    for (path, text) in files() {
        let file = root().join(&path);
        if std::env::var_os(WRITE).is_some() {
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(&file, text).unwrap();
            continue;
        }
        let stored = std::fs::read_to_string(&file).unwrap_or_default();
        assert!(
            stored == text,
            "{path} is stale: run `{WRITE}=1 cargo test -p meridian-crds --test generated`"
        );
    }
}

/// A file that is no longer generated would go stale unnoticed.
#[test]
fn nothing_else_is_in_the_generated_folders() {
    let files = files();
    let folders: BTreeSet<&Path> = files.keys().filter_map(|path| Path::new(path).parent()).collect();
    for folder in folders {
        for entry in std::fs::read_dir(root().join(folder)).unwrap() {
            let path = folder.join(entry.unwrap().file_name());
            let is_folder = root().join(&path).is_dir();
            assert!(is_folder || files.contains_key(path.to_str().unwrap()), "{}", path.display());
        }
    }
}

#[test]
fn definitions_read_back_as_they_were_made() {
    let files = files();
    for kind in defined() {
        let named = |path: &&String| {
            path.starts_with("manifests/crds/") && path.ends_with(&format!("/{}.yaml", kind.plural()))
        };
        let path = files.keys().find(named).unwrap();
        let read: Value = serde_saphyr::from_str(&files[path]).unwrap();
        assert_eq!(Some(read), definition_of(kind), "{path}");
    }
}
