//! Why pending scale-ups of running gangs haven't started.

use crate::facts::reason::Why;
use meridian_shared::ids::Uid;
use std::collections::BTreeMap;

/// The latest reason of each pending scale-up. Text for display only: no decision reads it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ScaleUpReasons(BTreeMap<Uid, Why>);

impl ScaleUpReasons {
    pub fn get(&self, uid: Uid) -> Option<&Why> {
        self.0.get(&uid)
    }

    pub(crate) fn set(&mut self, uid: Uid, why: Why) {
        self.0.insert(uid, why);
    }

    /// Forgets the reason: the scale-up started, is evaluated anew, or isn't wanted any more.
    pub(crate) fn take(&mut self, uid: Uid) -> Option<Why> {
        self.0.remove(&uid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_kept_until_it_is_taken() {
        let mut reasons = ScaleUpReasons::default();
        reasons.set(Uid(1), Why::NotConnected);
        assert_eq!(reasons.get(Uid(1)), Some(&Why::NotConnected));
        assert_eq!(reasons.take(Uid(1)), Some(Why::NotConnected));
        assert_eq!(reasons.get(Uid(1)), None);
    }
}
