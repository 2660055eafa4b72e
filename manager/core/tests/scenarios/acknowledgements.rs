//! What the manager may take as acknowledged while two requests of an agent are open. Answers can arrive out
//! of order, and a later answer can have a lower number.

use super::*;

struct Parked {
    f: Fleet,
    /// A parked poll. The agent handled the answer to a later request already.
    parked: SyncRequest,
}

fn eu() -> ClusterName {
    ClusterName::new("eu")
}

impl Fleet {
    pub(super) fn compose(&mut self, name: &str, lane: Lane) -> SyncRequest {
        self.agents.get_mut(&ClusterName::new(name)).unwrap().compose(now(self.now), lane)
    }

    /// The manager handles a request and answers it.
    pub(super) fn answer(&mut self, name: &str, request: SyncRequest) -> Box<SyncAnswer> {
        match self.input(Input::Sync { cluster: name.into(), request: Box::new(request), may_park: false }) {
            Reply::Sync(answer) => answer,
            other => panic!("{other:?}"),
        }
    }

    pub(super) fn park(&mut self, name: &str, request: &SyncRequest) {
        let parked = self.input(Input::Sync {
            cluster: name.into(),
            request: Box::new(request.clone()),
            may_park: true,
        });
        assert!(matches!(parked, Reply::Park), "{parked:?}");
    }

    pub(super) fn unpark(&mut self, name: &str, request: &SyncRequest) -> Box<SyncAnswer> {
        match self.input(Input::Unpark {
            cluster: name.into(),
            session: request.session,
            transmission: request.transmission,
        }) {
            Reply::Sync(answer) => answer,
            other => panic!("{other:?}"),
        }
    }

    /// The agent handles an answer.
    pub(super) fn deliver(&mut self, name: &str, answer: Box<SyncAnswer>) {
        let name = ClusterName::new(name);
        let out = self.agents.get_mut(&name).unwrap().apply(now(self.now), AgentInput::Answer(answer));
        self.perform(&name, out.into_effects());
    }

    /// One request of the news lane and its answer.
    pub(super) fn exchange_news(&mut self, name: &str) {
        let request = self.compose(name, Lane::News);
        let answer = self.answer(name, request);
        self.deliver(name, answer);
    }

    fn admitted(&self, name: &str) -> bool {
        self.world.state().members()[&ClusterName::new(name)].admitted()
    }

    /// Whether an agent has stored the name of another cluster.
    fn has_stored(&self, name: &str, other: &str) -> bool {
        let receipts = &self.agents[&ClusterName::new(name)].durable().receipts();
        receipts
            .values()
            .flat_map(BTreeMap::values)
            .any(|(_, members)| members.contains(&ClusterName::new(other)))
    }
}

impl Parked {
    fn new() -> Self {
        let mut f = Fleet::new(EU);
        f.apply(vec![cluster_object("us", "us-east4", "US")]);
        let parked = f.compose("eu", Lane::Poll);
        f.park("eu", &parked);
        f.exchange_news("eu");
        Self { f, parked }
    }

    /// Another cluster joins meanwhile.
    fn with_joined_cluster(mut self) -> Self {
        self.f.add_agent("us", 77);
        self.f.exchange_news("us");
        assert!(!self.f.admitted("us"));
        self
    }
}

#[test]
fn an_undelivered_answer_acknowledges_nothing() {
    let Parked { mut f, parked } = Parked::new().with_joined_cluster();
    drop(f.unpark("eu", &parked));
    let request = f.compose("eu", Lane::News);
    assert!(request.answered > parked.transmission);
    let answer = f.answer("eu", request);
    assert!(!f.has_stored("eu", "us") && !f.admitted("us"), "no agent has stored the new cluster's name");
    f.deliver("eu", answer);
    f.exchange_news("eu");
    assert!(f.has_stored("eu", "us") && f.admitted("us"));
}

/// A duplicate of a request that is answered already gets a second answer, which the agent doesn't handle
/// (simulation seed 7010494).
#[test]
fn the_answer_to_a_duplicated_request_acknowledges_nothing() {
    let Parked { mut f, .. } = Parked::new();
    let request = f.compose("eu", Lane::News);
    let answer = f.answer("eu", request.clone());
    f.deliver("eu", answer);
    let next = f.compose("eu", Lane::News);
    assert_eq!(next.answered, request.transmission);
    drop(f.answer("eu", next.clone()));
    f.add_agent("us", 77);
    f.exchange_news("us");
    drop(f.answer("eu", request));
    drop(f.answer("eu", next));
    assert!(!f.has_stored("eu", "us") && !f.admitted("us"), "no agent has stored the new cluster's name");
    f.exchange_news("eu");
    f.exchange_news("eu");
    assert!(f.has_stored("eu", "us") && f.admitted("us"));
}

#[test]
fn after_a_late_answer_the_next_poll_is_answered_at_once() {
    let Parked { mut f, parked } = Parked::new().with_joined_cluster();
    let answer = f.unpark("eu", &parked);
    f.deliver("eu", answer);
    let poll = f.compose("eu", Lane::Poll);
    f.park("eu", &poll);
    assert!(f.world.owes(&eu(), Mono(f.now)), "the poll is answered without waiting");
    let answer = f.unpark("eu", &poll);
    f.deliver("eu", answer);
    let poll = f.compose("eu", Lane::Poll);
    f.park("eu", &poll);
    assert!(f.admitted("us") && f.has_stored("eu", "us"));
    assert!(!f.world.owes(&eu(), Mono(f.now)), "this poll may stay parked");
}

#[test]
fn an_older_answer_doesnt_remove_a_joined_cluster() {
    let mut f = Fleet::new(EU);
    f.apply(vec![cluster_object("us", "us-east4", "US")]);
    let request = f.compose("eu", Lane::News);
    let before = f.answer("eu", request);
    f.add_agent("us", 77);
    f.exchange_news("us");
    let poll = f.compose("eu", Lane::Poll);
    let after = f.answer("eu", poll);
    f.deliver("eu", after);
    f.deliver("eu", before);
    assert!(f.has_stored("eu", "us"));
}

#[test]
fn an_end_is_acknowledged_until_the_agent_received_it() {
    let Parked { mut f, parked } = Parked::new();
    let job = f.submit("job", 3);
    f.exchange_news("eu");
    f.exchange_news("eu");
    f.end_unreported(job, EndResult::Succeeded);
    // The poll is answered before the request that reports the end, and that answer is lost.
    let report = f.compose("eu", Lane::News);
    f.park("eu", &report);
    drop(f.unpark("eu", &parked));
    let request = f.compose("eu", Lane::News);
    assert!(request.answered > parked.transmission);
    let SyncAnswer::Ok(answer) = *f.answer("eu", request) else { panic!("not answered") };
    let (uid, _, _) = answer.ends_acknowledged[0];
    assert_eq!(uid, job);
    f.deliver("eu", Box::new(SyncAnswer::Ok(answer)));
    f.exchange_news("eu");
    assert!(f.world.live().clusters()[&eu()].answers().ends_waiting() == 0);
}
