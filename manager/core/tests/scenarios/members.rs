//! What an agent is known to have taken, while two of its requests are under way: an answer composed later may have a lower number.

use super::*;

struct Parked {
    f: Fleet,
    /// A poll that is parked, behind whose number another answer was taken.
    parked: SyncRequest,
}

fn eu() -> ClusterName {
    ClusterName::new("eu")
}

impl Fleet {
    fn compose(&mut self, name: &str, lane: Lane) -> SyncRequest {
        self.agents.get_mut(&ClusterName::new(name)).unwrap().compose(now(self.now), lane)
    }

    /// The manager takes a request and answers it.
    fn ask(&mut self, name: &str, request: SyncRequest) -> Box<SyncAnswer> {
        match self.input(Input::Sync { cluster: name.into(), request: Box::new(request), may_park: false }) {
            Reply::Sync(answer) => answer,
            other => panic!("{other:?}"),
        }
    }

    fn park(&mut self, name: &str, request: &SyncRequest) {
        let parked = self.input(Input::Sync {
            cluster: name.into(),
            request: Box::new(request.clone()),
            may_park: true,
        });
        assert!(matches!(parked, Reply::Park), "{parked:?}");
    }

    fn unpark(&mut self, name: &str, request: &SyncRequest) -> Box<SyncAnswer> {
        match self.input(Input::Unpark {
            cluster: name.into(),
            session: request.session,
            transmission: request.transmission,
        }) {
            Reply::Sync(answer) => answer,
            other => panic!("{other:?}"),
        }
    }

    fn take(&mut self, name: &str, answer: Box<SyncAnswer>) {
        let name = ClusterName::new(name);
        let out = self.agents.get_mut(&name).unwrap().apply(now(self.now), AgentInput::Answer(answer));
        self.perform(&name, out.effects);
    }

    fn news(&mut self, name: &str) {
        let request = self.compose(name, Lane::News);
        let answer = self.ask(name, request);
        self.take(name, answer);
    }

    fn admitted(&self, name: &str) -> bool {
        self.world.state.members()[&ClusterName::new(name)].admitted
    }

    /// Whether an agent remembers a cluster's name.
    fn remembers(&self, name: &str, other: &str) -> bool {
        let receipts = &self.agents[&ClusterName::new(name)].durable().receipts;
        receipts
            .values()
            .flat_map(BTreeMap::values)
            .any(|(_, members)| members.contains(&ClusterName::new(other)))
    }
}

impl Parked {
    fn new() -> Self {
        let mut f = Fleet::new(&[("eu", "europe-west4", "EU")]);
        f.apply(vec![
            json!({"apiVersion": "meridian.dev/v1alpha1", "kind": "Cluster", "metadata": {"name": "us"}, "spec": {"region": "us-east4", "jurisdiction": "US"}}),
        ]);
        let parked = f.compose("eu", Lane::Poll);
        f.park("eu", &parked);
        f.news("eu");
        Self { f, parked }
    }

    /// Meanwhile another cluster has joined.
    fn joined(mut self) -> Self {
        self.f.add_agent("us", 77);
        self.f.news("us");
        assert!(!self.f.admitted("us"));
        self
    }
}

#[test]
fn an_answer_that_nobody_took_acknowledges_nothing() {
    let Parked { mut f, parked } = Parked::new().joined();
    drop(f.unpark("eu", &parked));
    let request = f.compose("eu", Lane::News);
    assert!(request.answered > parked.transmission);
    let answer = f.ask("eu", request);
    assert!(!f.remembers("eu", "us") && !f.admitted("us"), "nobody has stored its name");
    f.take("eu", answer);
    f.news("eu");
    assert!(f.remembers("eu", "us") && f.admitted("us"));
}

/// What comes again after its agent has named it is answered anew, and that answer is nobody's (simulation seed 7010494).
#[test]
fn an_answer_to_what_came_twice_acknowledges_nothing_when_the_first_was_taken() {
    let Parked { mut f, .. } = Parked::new();
    let request = f.compose("eu", Lane::News);
    let answer = f.ask("eu", request.clone());
    f.take("eu", answer);
    let names_it = f.compose("eu", Lane::News);
    assert_eq!(names_it.answered, request.transmission);
    drop(f.ask("eu", names_it.clone()));
    f.add_agent("us", 77);
    f.news("us");
    drop(f.ask("eu", request));
    drop(f.ask("eu", names_it));
    assert!(!f.remembers("eu", "us") && !f.admitted("us"), "nobody has stored its name");
    f.news("eu");
    f.news("eu");
    assert!(f.remembers("eu", "us") && f.admitted("us"));
}

#[test]
fn a_late_answer_of_a_lower_number_is_made_good_by_the_next_which_isnt_parked() {
    let Parked { mut f, parked } = Parked::new().joined();
    let answer = f.unpark("eu", &parked);
    f.take("eu", answer);
    let poll = f.compose("eu", Lane::Poll);
    f.park("eu", &poll);
    assert!(f.world.owes(&eu(), Mono(f.now)), "nobody waits for the time of a poll");
    let answer = f.unpark("eu", &poll);
    f.take("eu", answer);
    let poll = f.compose("eu", Lane::Poll);
    f.park("eu", &poll);
    assert!(f.admitted("us") && f.remembers("eu", "us"));
    assert!(!f.world.owes(&eu(), Mono(f.now)), "and now it may wait");
}

#[test]
fn an_answer_from_before_a_cluster_joined_doesnt_make_an_agent_forget_it() {
    let mut f = Fleet::new(&[("eu", "europe-west4", "EU")]);
    f.apply(vec![
        json!({"apiVersion": "meridian.dev/v1alpha1", "kind": "Cluster", "metadata": {"name": "us"}, "spec": {"region": "us-east4", "jurisdiction": "US"}}),
    ]);
    let request = f.compose("eu", Lane::News);
    let before = f.ask("eu", request);
    f.add_agent("us", 77);
    f.news("us");
    let poll = f.compose("eu", Lane::Poll);
    let after = f.ask("eu", poll);
    f.take("eu", after);
    f.take("eu", before);
    assert!(f.remembers("eu", "us"));
}

#[test]
fn an_end_is_acknowledged_until_its_agent_has_heard_so() {
    let Parked { mut f, parked } = Parked::new();
    let job = f.submit("job", 3);
    f.news("eu");
    f.news("eu");
    f.end_unheard(job, EndResult::Succeeded);
    // The poll is answered before the request that told of the end, and that answer is lost.
    let told = f.compose("eu", Lane::News);
    f.park("eu", &told);
    drop(f.unpark("eu", &parked));
    let request = f.compose("eu", Lane::News);
    assert!(request.answered > parked.transmission);
    let SyncAnswer::Ok(answer) = *f.ask("eu", request) else { panic!("not answered") };
    let (uid, _, _) = answer.ends_acknowledged[0];
    assert_eq!(uid, job);
    f.take("eu", Box::new(SyncAnswer::Ok(answer)));
    f.news("eu");
    assert!(f.world.live.clusters[&eu()].acknowledge.is_empty());
}
