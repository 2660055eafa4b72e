//! The example manifests, embedded: a program without its source tree has them too.

/// One example file.
#[derive(Debug)]
pub(crate) struct Example {
    pub(crate) name: &'static str,
    /// Subject that the example demonstrates.
    pub(crate) about: &'static str,
    /// The command that uses the file after `meridian example NAME > FILE`.
    pub(crate) usage: &'static str,
    pub(crate) text: &'static str,
}

pub(crate) const FLEET: &str = include_str!("../../manifests/examples/fleet.yaml");

pub(crate) const FLEX_START_FLEET: &str = include_str!("../../manifests/examples/flex-start/fleet.yaml");

/// The tutorial's queues.
pub(crate) const TUTORIAL: Example = Example {
    name: "tutorial",
    about: "one queue for three regions, as in the public DWS and MultiKueue tutorial",
    usage: "apply -f FILE",
    text: include_str!("../../manifests/examples/tutorial/manager.yaml"),
};

/// A worker cluster's side of the tutorial.
pub(crate) const TUTORIAL_WORKER: Example = Example {
    name: "tutorial-worker",
    about: "a worker's own quota under the same names",
    usage: "apply --cluster NAME -f FILE",
    text: include_str!("../../manifests/examples/tutorial/worker.yaml"),
};

/// The tutorial's job.
pub(crate) const TUTORIAL_JOB: Example = Example {
    name: "tutorial-job",
    about: "a gang of three pods with one T4 GPU each",
    usage: "create -f FILE",
    text: include_str!("../../manifests/examples/tutorial/job.yaml"),
};

/// A namespace whose jobs stay in the EU.
pub(crate) const RESIDENCY: Example = Example {
    name: "residency",
    about: "a namespace whose jobs stay in the EU, with its policy and queue",
    usage: "apply -f FILE",
    text: include_str!("../../manifests/examples/residency-eu.yaml"),
};

/// Queues whose jobs race in all regions.
pub(crate) const FLEX_START: Example = Example {
    name: "flex-start",
    about: "jobs ask for nodes in all regions at once; a queue with T4, A100 and H100 GPUs",
    usage: "apply -f FILE",
    text: include_str!("../../manifests/examples/flex-start/queues.yaml"),
};

/// All of them, in the order of their list.
pub(crate) const EXAMPLES: [Example; 12] = [
    TUTORIAL,
    TUTORIAL_WORKER,
    TUTORIAL_JOB,
    Example {
        name: "tutorial-job-cpu",
        about: "the same gang without GPUs",
        usage: "create -f FILE",
        text: include_str!("../../manifests/examples/tutorial/job-cpu-only.yaml"),
    },
    RESIDENCY,
    Example {
        name: "dispatch-race",
        about: "offers each job to all allowed clusters at once",
        usage: "apply -f FILE",
        text: include_str!("../../manifests/examples/dispatch-race.yaml"),
    },
    Example {
        name: "fleet",
        about: "three clusters with simulated T4 GPUs",
        usage: "up --fleet FILE",
        text: FLEET,
    },
    FLEX_START,
    Example {
        name: "flex-start-fleet",
        about: "three clusters whose GPU nodes must be asked for, from a simulated Flex Start",
        usage: "up --fleet FILE",
        text: FLEX_START_FLEET,
    },
    Example {
        name: "plan-queues",
        about: "two teams in a cohort",
        usage: "plan -f FILE -f WORKLOADS",
        text: include_str!("../../manifests/examples/plan/queues.yaml"),
    },
    Example {
        name: "plan-workloads",
        about: "workloads for plan-queues",
        usage: "plan -f QUEUES -f FILE",
        text: include_str!("../../manifests/examples/plan/workloads.yaml"),
    },
    Example {
        name: "plan-what-if",
        about: "more quota for the tutorial's queue",
        usage: "plan --what-if -f FILE",
        text: include_str!("../../manifests/examples/plan-what-if.yaml"),
    },
];

/// The example of this name.
pub(crate) fn find(name: &str) -> Option<&'static Example> {
    EXAMPLES.iter().find(|example| example.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    /// Examples of other programs' settings.
    const ELSEWHERE: &str = "helm";

    #[test]
    fn every_example_file_is_embedded() {
        fn files(directory: &Path, found: &mut Vec<String>) {
            for entry in std::fs::read_dir(directory).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() && !path.ends_with(ELSEWHERE) {
                    files(&path, found);
                } else if path.is_file() {
                    found.push(std::fs::read_to_string(path).unwrap());
                }
            }
        }
        let mut found = Vec::new();
        files(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../manifests/examples"), &mut found);
        assert_eq!(found.len(), EXAMPLES.len());
        assert!(found.iter().all(|text| EXAMPLES.iter().any(|example| example.text == text)));
    }
}
