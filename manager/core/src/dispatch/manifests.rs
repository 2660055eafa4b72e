//! Stored manifests that can't be read: damaged on the disk, or missing.
//!
//! The shell reads manifests and reports what it finds ([`Input::ManifestsRead`]); the core finds damage
//! where it needs a manifest. What is known is volatile: it follows from the disk. A workload with a damaged
//! manifest is neither offered nor granted, because no cluster could run it. A gang that runs continues.
//!
//! [`Input::ManifestsRead`]: crate::facts::input::Input::ManifestsRead

use crate::dispatch::offers;
use crate::facts::input::ManifestRead;
use crate::world::turn::Turn;
use meridian_shared::ids::Uid;

/// Takes what the shell found on the disk. A result about a manifest that was replaced meanwhile is outdated.
pub(crate) fn note_read(turn: &mut Turn<'_>, found: &[ManifestRead]) {
    for ManifestRead { uid, hash, intact } in found {
        let is_current = turn.workload(*uid).is_some_and(|workload| workload.body() == *hash);
        match (is_current, intact) {
            (false, _) => {}
            (true, true) => note_intact(turn, *uid),
            (true, false) => note_damaged(turn, *uid),
        }
    }
}

/// Whether the manifest of a workload can be read now. Notes it if not.
pub(crate) fn is_readable(turn: &mut Turn<'_>, uid: Uid) -> bool {
    let readable = turn.workload(uid).is_some_and(|workload| turn.body(workload.body()).is_some());
    if !readable {
        note_damaged(turn, uid);
    }
    readable
}

/// From now on the workload is neither offered nor granted.
pub(crate) fn note_damaged(turn: &mut Turn<'_>, uid: Uid) {
    if turn.world.live.damaged.insert(uid) {
        offers::withdraw_open(turn, uid);
        changed(turn, uid);
    }
}

/// The manifest can be read, again.
pub(crate) fn note_intact(turn: &mut Turn<'_>, uid: Uid) {
    if turn.world.live.damaged.remove(&uid) {
        changed(turn, uid);
    }
}

fn changed(turn: &mut Turn<'_>, uid: Uid) {
    turn.world.mirror.touch(uid);
    turn.out.workloads.insert(uid);
    turn.capacity_changed();
}
