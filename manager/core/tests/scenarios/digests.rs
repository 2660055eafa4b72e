//! Digests of what runs where: an agent that knows the same as the manager is never asked for an inventory.

use super::*;
use meridian_manager_core::live::counts::Count;

#[test]
fn digests_agree_while_offers_grants_and_ends_come_and_go() {
    let mut f = Fleet::regions();
    f.apply(vec![meridian_object(
        "DispatchPolicy",
        "race",
        json!({"applies": {"queues": ["*"]}, "mode": "Race"}),
    )]);
    let mut open = Vec::new();
    for round in 0..24 {
        open.push(f.submit(&format!("job-{round}"), 1 + round % 3));
        // The requests of a round carry everything from an offer on its way to an end that isn't known yet.
        f.advance(Millis::secs(1));
        if round % 3 == 2 {
            let running = open.iter().position(|uid| f.cluster_of(*uid).is_some()).expect("one runs");
            f.end_unreported(open.remove(running), EndResult::Succeeded);
        }
    }
    assert_eq!(f.world.live().counts().of(Count::DigestMismatches), 0);
}

#[test]
fn an_agent_with_another_digest_is_asked_once_in_a_while() {
    let mut f = Fleet::new(EU);
    f.submit("gang", 2);
    for mismatches in 1..=2 {
        f.settle();
        f.now += TERM.0 / 2;
        f.world.committed(Mono(f.now));
        let mut request = f.compose("eu", Lane::News);
        request.digest = meridian_shared::protocol::Digest::default();
        let answer = f.answer("eu", request.clone());
        let SyncAnswer::Ok(response) = &*answer else { panic!("{answer:?}") };
        assert!(response.want_inventory);
        f.deliver("eu", answer);
        assert_eq!(f.world.live().counts().of(Count::DigestMismatches), mismatches);
    }
}

#[test]
fn what_an_older_ledger_ran_is_no_part_of_the_digest() {
    let mut f = Fleet::new(EU);
    f.submit("gang", 2);
    f.settle();
    f.add_agent("eu", 9_999);
    f.running.clear();
    f.advance(Millis(TERM.0 - 2_000));
    assert_eq!(f.world.live().counts().of(Count::DigestMismatches), 0);
}
