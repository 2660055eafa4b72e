//! Objects into a brain.

use meridian_objects::plan::PlanObject;
use meridian_queueing::Brain;
use meridian_queueing::model::Moment;
use meridian_queueing::settings::Settings;

/// How objects are read.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Switches and cluster-wide settings.
    pub settings: Settings,
    /// Milliseconds since the Unix epoch.
    pub now: Moment,
}

/// What was read.
#[derive(Clone, Debug, Default)]
pub struct Loaded {
    /// Ready to decide.
    pub brain: Brain,
    /// What a person should know: a workload without a queue, a queue that names what isn't there.
    pub notes: Vec<String>,
}

/// Reads objects.
pub fn load(_objects: &[PlanObject], options: &Options) -> Loaded {
    let mut brain = Brain::new(options.settings.clone());
    brain.now = options.now;
    Loaded { brain, notes: Vec::new() }
}
