//! Copies of ConfigMaps and Secrets: which clusters may have them, and what the audit log says.

use super::*;
use meridian_manager_core::facts::audit::Action;
use meridian_manager_core::facts::outcome::NoCopies;
use meridian_shared::copies::CopyRequest;
use meridian_shared::protocol::{Reference, ReferenceKind};

const UID: Uid = Uid(0xfeed);

fn secret(name: &str) -> Reference {
    Reference { kind: ReferenceKind::Secret, name: name.into() }
}

/// A fleet with a job whose pods name the Secret `token` and a PersistentVolumeClaim.
fn fleet(actor: &Actor) -> Fleet {
    let mut f = Fleet::regions();
    let mut job = job("default", "reader", 1, &json!({"kueue.x-k8s.io/queue-name": "lq"}), "");
    let pod = &mut job["spec"]["template"]["spec"];
    pod["containers"][0]["envFrom"] = json!([{"secretRef": {"name": "token"}}]);
    pod["volumes"] = json!([{"name": "data", "persistentVolumeClaim": {"claimName": "token"}}]);
    let change = Change::Put { object: object(job), scope: None, uid: UID, mode: PutMode::Create };
    let write = Write::new(actor.clone(), vec![change], false);
    assert!(matches!(f.input(Input::Write(Box::new(write))), Reply::Written(_)));
    f
}

impl Fleet {
    /// Schedules until the workload has an offer, and returns it with its cluster.
    fn offered(&mut self) -> (OfferId, ClusterName) {
        for _ in 0..6 {
            self.now += 20;
            self.input(Input::Turn);
            if let Some((offer, leg)) = self.world.state().workloads()[&UID].legs().iter().next() {
                return (*offer, leg.cluster().clone());
            }
        }
        panic!("no offer")
    }

    fn ask_copies(
        &mut self,
        cluster: &ClusterName,
        offer: OfferId,
        fence: Option<Fence>,
        what: Reference,
    ) -> Result<Arc<str>, NoCopies> {
        let request = CopyRequest { uid: UID, offer, fence, references: vec![what] };
        match self.input(Input::Copies { cluster: cluster.clone(), request }) {
            Reply::Copies(answer) => answer,
            other => panic!("{other:?}"),
        }
    }

    /// Objects that the audit log names as copied.
    fn copied(&self) -> Vec<(String, Option<String>)> {
        let lines = self.records.iter().filter_map(|(_, record)| match record {
            Record::Audited(line) if line.entry.action == Action::Copy => {
                Some((line.by.to_string(), line.entry.detail.clone()))
            }
            _ => None,
        });
        lines.collect()
    }
}

#[test]
fn content_is_only_for_the_cluster_with_the_right_to_run_and_is_audited_by_name() {
    let mut f = fleet(&Actor::ManagementCluster);
    f.settle();
    let home: ClusterName = f.cluster_of(UID).unwrap().as_str().into();
    let (offer, fence) = {
        let workload = &f.world.state().workloads()[&UID];
        let (offer, leg) = workload.legs().iter().next().unwrap();
        (*offer, leg.fence().unwrap())
    };
    // The gang runs by now: nothing more has to be copied for it.
    assert_eq!(f.ask_copies(&home, offer, Some(fence), secret("token")), Err(NoCopies::NotOffered));
    let mut f = fleet(&Actor::ManagementCluster);
    f.hold_starts = true;
    f.settle();
    let namespace: Arc<str> = "default".into();
    assert_eq!(f.ask_copies(&home, offer, Some(fence), secret("token")), Ok(namespace.clone()));
    assert_eq!(f.copied(), [(format!("agent:{home}"), Some("Secret token".to_owned()))]);
    // Names alone are no content, and no line.
    assert_eq!(f.ask_copies(&home, offer, None, secret("token")), Ok(namespace));
    for other in ["eu", "us", "asia"].map(ClusterName::from).iter().filter(|name| **name != home) {
        for fence in [None, Some(fence)] {
            assert_eq!(f.ask_copies(other, offer, fence, secret("token")), Err(NoCopies::NotOffered));
        }
    }
    let later = Fence { counter: fence.counter + 1, ..fence };
    assert_eq!(f.ask_copies(&home, offer, Some(later), secret("token")), Err(NoCopies::NotOffered));
    assert_eq!(f.copied().len(), 1);
}

#[test]
fn before_the_grant_there_are_names_only_and_only_of_what_the_pods_name() {
    let mut f = fleet(&Actor::ManagementCluster);
    let (offer, home) = f.offered();
    assert_eq!(f.ask_copies(&home, offer, None, secret("token")).as_deref(), Ok("default"));
    let fence = Fence { epoch: 1, leadership: 1, counter: 1 };
    assert_eq!(f.ask_copies(&home, offer, Some(fence), secret("token")), Err(NoCopies::NotOffered));
    let claim = Reference { kind: ReferenceKind::PersistentVolumeClaim, name: "token".into() };
    for unnamed in [secret("other"), claim] {
        let refused = f.ask_copies(&home, offer, None, unnamed.clone());
        assert_eq!(refused, Err(NoCopies::NotNamed(unnamed)));
    }
    let unknown = OfferId { counter: offer.counter + 100, ..offer };
    assert_eq!(f.ask_copies(&home, unknown, None, secret("token")), Err(NoCopies::NotOffered));
}

#[test]
fn a_policy_that_closes_a_region_ends_its_copies_at_once() {
    let mut f = fleet(&Actor::ManagementCluster);
    let (offer, home) = f.offered();
    assert!(f.ask_copies(&home, offer, None, secret("token")).is_ok());
    let deny = json!({"applies": {"namespaces": ["default"]}, "deny": {"clusters": [home.as_str()]}});
    f.apply(vec![meridian_object("ResidencyPolicy", "closed", deny)]);
    assert_eq!(f.ask_copies(&home, offer, None, secret("token")), Err(NoCopies::NotOffered));
}

#[test]
fn a_job_that_was_submitted_at_the_manager_gets_nothing_of_the_management_cluster() {
    let mut f = fleet(&Actor::user("ana"));
    let (offer, home) = f.offered();
    assert_eq!(f.ask_copies(&home, offer, None, secret("token")), Err(NoCopies::NotManaged));
}
