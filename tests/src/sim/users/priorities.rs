//! Users change the values of priority classes.

use crate::sim::fleet::queues::{PRIORITIES, priority_class};
use crate::sim::random::Random;
use crate::sim::requests::request::RequestBody;
use crate::sim::world::Simulation;

/// Values that a priority class may get.
const VALUES: [i64; 5] = [-10, 0, 10, 50, 100];

impl Simulation {
    /// Sometimes gives a priority class another value. The draw uses a separate random stream.
    pub(super) fn change_some_priority(&mut self) {
        let mut random = Random::new(self.cx.scenario.seed, &format!("priority at {}", self.cx.now));
        if !self.users.declared.shared || !random.permille(100) {
            return;
        }
        let (name, _) = *random.pick(&PRIORITIES).expect("not empty");
        let value = *random.pick(&VALUES).expect("not empty");
        self.cx.counters.one("priorities changed");
        self.request(RequestBody::Apply(vec![priority_class(name, value)]));
    }
}
