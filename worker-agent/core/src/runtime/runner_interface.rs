//! The interface to runners, which run gangs.

use super::{Answer, Error, Found, LogSource, PodPlacement, Start};
use meridian_shared::ids::{Fence, Uid};
use meridian_shared::protocol::{RunnerKind, Size};
use meridian_shared::time::{Mono, Now};

/// Whether the gangs of a runner end by themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Enforcement {
    /// Gangs end at their deadline whatever happens to the agent.
    Guarded,
    /// Something else (the agent, an API server) must be running to end the pods.
    Supervised,
}

/// Kinds of jobs whose operators put the commands of containers together, so that no guard can be put before
/// them.
const UNGUARDED_KINDS: [&str; 3] = ["RayCluster", "RayJob", "TrainJob"];

/// Whether the pods of such jobs can have guards in a cluster of containers.
pub fn can_be_guarded(kind: &str) -> bool {
    !UNGUARDED_KINDS.contains(&kind)
}

/// Runs gangs. The core decides everything: a runner never starts, renews or retries a grant by itself.
///
/// **Commands** only hand an order over and return at once; a runner that has to ask an API server does so in
/// a task of its own. What happens comes back as [`super::RunnerEvent`]s through the channel that the runner
/// was opened with. A full channel delays events and loses none.
///
/// **Duplicates, lost replies, two live copies.** A run is named by (uid, fence), and every command is
/// idempotent by that name and the numbers that it carries. A command may repeat, because a restarted agent
/// doesn't know which commands were carried out, and two agents (an old one and its successor) may command
/// the same runs. After a lost reply the runner gives the order again, or reads the state; it never assumes
/// either outcome.
///
/// - *One start per name.* The name is occupied durably before anything starts. A second `start` starts
///   nothing and reports the state of the run. A `stop` occupies an unknown name, so that a paused twin can't
///   start it afterwards.
/// - *Confirmed ended.* `Ended` is reported only after every process or container of the run was seen ended,
///   whatever the result. A deleted object, a force-deleted pod, or a node that does not answer confirms
///   nothing.
/// - *Unknown is not gone.* A read that failed or timed out means that the state is unknown: the runner
///   reports nothing, keeps the run, and reads again. Only a complete, current answer that lacks the run
///   means that it is gone.
/// - *Nothing runs at the deadline*, as far as [`Enforcement`] promises.
///
/// **Events** may repeat, for instance after [`Runner::adopt`], and give the whole state of a run.
pub trait Runner: Send {
    fn kind(&self) -> RunnerKind;

    /// Name for logs, metrics and the store.
    fn name(&self) -> &'static str;

    fn enforcement(&self) -> Enforcement;

    /// Finds the runs that exist. Called once, before the first command. Fails if the runs can't be listed
    /// completely: the agent then does not start, because it would treat runs that it can't see as ended.
    fn adopt(&mut self) -> Answer<'_, Result<Vec<Found>, Error>>;

    /// Starts a gang. `decided` is what the clocks read when the deadline was computed: a pause of the
    /// machine since then shortens the lease, however long the order took to arrive.
    fn start(&mut self, start: Start, decided: Now);

    /// Extends a deadline, computed at `decided`. Never revives a run that has begun to stop, and never
    /// shortens a lease.
    fn renew(&mut self, uid: Uid, fence: Fence, deadline: Mono, decided: Now);

    /// Moves pods: those with a changed placement are ended and started anew, as further tries that don't
    /// count as failures; the others continue. `placement` has as many entries as the start. `Moved` follows
    /// when every moved pod was seen ended; at most one process of a pod is alive at any time. A number that
    /// is repeated or behind moves nothing and is answered once its move is done. Ignored if nothing runs.
    fn move_pods(&mut self, uid: Uid, fence: Fence, number: u32, placement: Vec<PodPlacement>);

    /// Continues a run with at most `size.parallelism` pods at once and, if `size.completions` is set, with
    /// that many completions. Surplus pods are ended (with their grace) and don't count as failed: if
    /// completions are set, those of the highest indexes; else those in the last positions, and their indexes
    /// are tried again elsewhere. `Reclaimable` follows when the positions were seen empty. A size that isn't
    /// smaller changes nothing. Survives restarts of the agent. Ignored if nothing runs.
    fn scale_down(&mut self, uid: Uid, fence: Fence, size: Size);

    /// Continues a run with more pods: `placement` has all pods, the added ones last and the others
    /// unchanged. Only added pods start. `Moved` follows as for a move of this number; `size` is as for
    /// [`Runner::scale_down`]. A scale-down that was ordered before is finished first. Ignored if nothing
    /// runs.
    fn scale_up(&mut self, uid: Uid, fence: Fence, number: u32, placement: Vec<PodPlacement>, size: Size);

    /// Stops a run, known or not. `Ended` follows when all its processes were seen ended.
    fn stop(&mut self, uid: Uid, fence: Fence);

    /// The manager has recorded the end of a run: its objects may be removed once people had time to read its
    /// logs. A runner whose leftovers cost nothing waits for [`Runner::forget`].
    fn settle(&mut self, _uid: Uid, _fence: Fence) {}

    /// Removes the files or objects of an ended run. Ignored while the run is live.
    fn forget(&mut self, uid: Uid, fence: Fence);

    /// Opens the output of a run: of one pod, or of all. Fails if the run is not known here.
    fn logs(&self, uid: Uid, fence: Fence, pod: Option<u32>) -> Result<Box<dyn LogSource>, Error>;
}
