//! Objects that the files of the setting `objects` declare.

use super::*;
use meridian_manager_core::requests::file_objects::{FILE, declared_in};

impl Fleet {
    /// The files declare these objects, and no others.
    fn declare(&mut self, objects: Vec<Value>) -> Reply {
        let put = |value| {
            self.next_uid += 1;
            let object = Box::new(declared_in(&object(value), "clusters.yaml").unwrap());
            Change::Put { object, scope: None, uid: Uid(self.next_uid), mode: PutMode::Apply }
        };
        let changes = objects.into_iter().map(put).collect();
        let reply = self.input(Input::Write(Box::new(Write::new(Actor::System, changes, false).of_files())));
        self.input(Input::Turn);
        reply
    }

    fn command(&mut self, action: Operator) {
        let done = self.input(Input::Operator { actor: Actor::user("op"), action });
        assert!(matches!(done, Reply::Done(_)), "{done:?}");
    }

    fn is_cordoned(&self, cluster: &str) -> bool {
        self.world.state().catalog().cluster(&cluster.into()).expect("it stays").cordoned
    }
}

fn eu() -> Value {
    cluster(&json!({}))
}

fn us() -> Value {
    cluster_object("us", "us-east4", "US")
}

/// Field and message of the only refusal.
fn refused(reply: Reply) -> (String, String) {
    match reply {
        Reply::Rejected(why) if why.len() == 1 => {
            (why[0].field.clone().unwrap_or_default(), why[0].message.clone())
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_file_owns_its_fields_and_changes_nothing_when_it_is_read_again() {
    let mut f = Fleet::new(EU);
    f.declare(vec![cluster(&json!({"limits": {GPU: "8"}})), resource_flavor("racks")]);
    f.command(Operator::Cordon("eu".into()));
    let before = f.world.state().last();
    f.declare(vec![cluster(&json!({"limits": {GPU: "8"}})), resource_flavor("racks")]);
    assert_eq!(f.world.state().last(), before);
    f.declare(vec![eu(), resource_flavor("racks")]);
    let there = f.stored(&Key::global(Kind::Cluster, "eu"));
    assert!(there.stored["spec"].get("limits").is_none(), "{}", there.stored);
    assert_eq!(there.annotations[FILE], "clusters.yaml");
    assert!(f.is_cordoned("eu"), "the operator's cordon stays");
}

#[test]
fn a_cluster_that_leaves_the_files_stays_with_its_gang_and_gets_no_other() {
    let mut f = Fleet::new(EU);
    f.declare(vec![eu(), us(), resource_flavor("racks")]);
    let first = f.submit("first", 1);
    f.settle();
    assert_eq!(f.cluster_of(first).as_deref(), Some("eu"));
    let Reply::Written(written) = f.declare(vec![us()]) else { panic!("refused") };
    let said: Vec<&str> = written.iter().flat_map(|written| &written.warnings).map(String::as_str).collect();
    assert!(said.iter().any(|text| text.contains("cordoned, and its workloads continue")), "{said:?}");
    assert!(said.iter().any(|text| text.contains("racks") && text.contains("stays")), "{said:?}");
    let second = f.submit("second", 1);
    f.settle();
    assert_eq!((f.phase(first), f.cluster_of(second)), (Some(Phase::Running), None));
    assert!(f.is_cordoned("eu") && !f.is_cordoned("us"));
    let before = f.world.state().last();
    f.declare(vec![us()]);
    assert_eq!(f.world.state().last(), before, "it is released once");
    f.declare(vec![eu(), us()]);
    f.settle();
    assert_eq!(f.cluster_of(second).as_deref(), Some("eu"), "the cordon was the files' own");
}

#[test]
fn an_operators_command_about_a_cluster_that_left_the_files_outlives_its_return() {
    let mut f = Fleet::new(EU);
    let commands = [(Operator::Drain("eu".into()), true), (Operator::Uncordon("eu".into()), false)];
    for (action, cordoned) in commands {
        f.declare(vec![eu(), us()]);
        f.declare(vec![us()]);
        f.command(action);
        assert_eq!(f.is_cordoned("eu"), cordoned);
        f.declare(vec![eu(), us()]);
        assert_eq!(f.is_cordoned("eu"), cordoned);
    }
    f.command(Operator::Drain("eu".into()));
    f.declare(vec![us()]);
    f.declare(vec![eu(), us()]);
    assert!(f.is_cordoned("eu"), "it was drained before it left");
}

#[test]
fn an_object_of_a_user_never_counts_as_absent() {
    let mut f = Fleet::new(EU);
    f.apply(vec![us(), eu_only()]);
    f.declare(vec![eu()]);
    assert!(!f.is_cordoned("us"));
    assert!(f.world.state().catalog().get(&Key::global(Kind::ResidencyPolicy, "eu-only")).is_some());
}

#[test]
fn files_change_no_policy_no_place_no_cordon_and_nothing_of_the_management_cluster() {
    let mut f = Fleet::new(EU);
    f.apply(vec![eu_only()]);
    let mut loose = eu_only();
    loose["spec"]["allow"]["jurisdictions"] = json!(["EU", "US"]);
    let (field, message) = refused(f.declare(vec![eu(), loose]));
    assert!(field == "kind" && message.contains("`meridian apply` for a ResidencyPolicy"), "{message}");

    let (field, message) = refused(f.declare(vec![cluster(&json!({"jurisdiction": "CH"}))]));
    assert!(field == "spec.jurisdiction" && message.contains("`EU`"), "{field}: {message}");
    let (field, message) = refused(f.declare(vec![cluster(&json!({"region": "europe-west1"}))]));
    assert!(field == "spec.region" && message.contains("`europe-west4`"), "{field}: {message}");

    let (field, message) = refused(f.declare(vec![cluster(&json!({"cordoned": false}))]));
    assert!(field == "spec.cordoned" && message.contains("uncordon"), "{field}: {message}");
    let mut marked = eu();
    marked["metadata"]["annotations"] = json!({"meridian.dev/cordoned-by": "objects-files"});
    assert_eq!(refused(f.declare(vec![marked])).0, "metadata.annotations");

    let (change, by) = (object(us()), Actor::ManagementCluster);
    let change = Change::Put { object: change, scope: None, uid: Uid(9), mode: PutMode::Apply };
    f.input(Input::Write(Box::new(Write::new(by, vec![change], false))));
    let (_, message) = refused(f.declare(vec![eu(), us()]));
    assert!(message.contains("management cluster, which takes precedence"), "{message}");
}
