//! Stored manifests that can't be read: damaged on the disk, or missing.
//!
//! The shell reads manifests and reports damage ([`Input::ManifestsRead`]); the core also finds damage when
//! it needs a manifest. The list of damaged manifests is volatile, because it follows from the disk. A
//! workload with a damaged manifest is neither offered nor granted, because no cluster could run it. Its
//! running gang continues.
//!
//! [`Input::ManifestsRead`]: crate::facts::input::Input::ManifestsRead

use crate::dispatch::offers;
use crate::facts::input::ManifestRead;
use crate::world::turn::Turn;
use meridian_shared::ids::Uid;

/// Takes the shell's findings. A finding about a manifest that was replaced meanwhile is ignored.
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

/// Whether the manifest of a workload can be read now. If not, notes the damage.
pub(crate) fn is_readable(turn: &mut Turn<'_>, uid: Uid) -> bool {
    let readable = turn.workload(uid).is_some_and(|workload| turn.body(workload.body()).is_some());
    if !readable {
        note_damaged(turn, uid);
    }
    readable
}

/// Notes damage: from now on the workload is neither offered nor granted.
pub(crate) fn note_damaged(turn: &mut Turn<'_>, uid: Uid) {
    if turn.world.live_mut().damaged_mut().note_damaged(uid) {
        offers::withdraw_open(turn, uid);
        changed(turn, uid);
    }
}

/// Notes that the manifest can be read again.
pub(crate) fn note_intact(turn: &mut Turn<'_>, uid: Uid) {
    if turn.world.live_mut().damaged_mut().forget(uid) {
        changed(turn, uid);
    }
}

fn changed(turn: &mut Turn<'_>, uid: Uid) {
    turn.world.mirror_mut().touch(uid);
    turn.view_changed(uid);
    turn.capacity_changed();
}
