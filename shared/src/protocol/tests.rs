//! Bounds of one body, and the wire form of version 2.

use super::*;
use crate::ids::ContentHash;
use crate::ids::{Fence, JournalId, Leadership, OfferId, RecordNumber, Session, Uid};
use crate::indexes::RANGES_MAX;
use crate::mac::Mac;
use crate::time::Millis;
use serde::Serialize;
use std::collections::BTreeMap;

fn bytes(value: &impl Serialize, count: usize) -> usize {
    (serde_json::to_vec(value).unwrap().len() + 1) * count
}

#[test]
fn the_largest_report_fits_one_body() {
    let most = u64::MAX;
    let fence = Fence { epoch: most, leadership: most, counter: most };
    let offer = OfferId { epoch: most, leadership: most, counter: most };
    let (uid, mac) = (Uid(u128::MAX), Mac("f".repeat(32)));
    // Only elastic jobs scale up, and they have one pod set.
    let size = Size { parallelism: u32::MAX, completions: Some(u32::MAX) };
    let scale_up =
        ScaleUp { number: RecordNumber(most), places: vec![u32::MAX], size, mac: Some(mac.clone()) };
    let run = Run {
        uid,
        fence,
        offer,
        attempt: u32::MAX,
        job: None,
        running: false,
        stopping: false,
        term: Millis(most),
        on_loss: OnLoss::Fence,
        spec: ContentHash::of(b""),
        mac: Some(mac.clone()),
        placement: None,
        spare: BTreeMap::from([("main".into(), u32::MAX)]),
        scale_up: Some(Box::new(scale_up)),
        priority: Some(i64::MIN),
    };
    // A quote takes the most bytes of all cleaned characters.
    let message = clean(&"\"".repeat(9_999));
    let proof = Proof { offer, attempt: u32::MAX, term: Millis(most), on_loss: OnLoss::Fence, mac };
    let result = EndResult::Failed { reason: "BackoffLimitExceeded".into(), message };
    let mut completed = crate::indexes::Indexes::default();
    (0..2 * RANGES_MAX).for_each(|n| completed.insert(4_000_000_000 + 2 * u32::try_from(n).unwrap()));
    let end = End {
        uid,
        fence,
        result,
        pod_failures: u32::MAX,
        ran: Millis(most),
        completed: completed.clone(),
        proof: Some(Box::new(proof)),
    };
    let ended = Event::Ended(end.clone());
    assert!(bytes(&ended, 1) <= ended.weight());
    let total = bytes(&run, RUNS_MAX)
        + bytes(&end, ENDS_MAX)
        + EVENTS_BYTES_MAX
        + PLACEMENTS_BYTES_MAX
        + JOB_NAMES_BYTES_MAX
        + bytes(&(offer, uid), RUNS_MAX);
    let total = total
        + bytes(
            &PodReport { uid, fence, pods: run.spare.clone(), failures: u32::MAX, completed },
            POD_REPORTS_MAX,
        );
    assert!(total + CAPACITY_BYTES_MAX + RECEIPTS_BYTES_MAX + 4 * 1024 < BODY_BYTES_MAX, "{total} bytes");
}

#[test]
fn text_is_cut_between_characters_and_holds_no_control() {
    assert_eq!(clean("a\u{1b}[2J\nb"), "a [2J b");
    assert_eq!(clean(&"é".repeat(600)).len(), TEXT_BYTES_MAX);
    assert_eq!(clean(&format!("x{}", "é".repeat(600))).len(), TEXT_BYTES_MAX - 1);
}

#[test]
fn the_wire_form_of_version_2_is_fixed() {
    let fence = Fence { epoch: 2, leadership: 7, counter: 3 };
    let offer = OfferId { epoch: 2, leadership: 7, counter: 1 };
    let answer = SyncAnswer::Ok(Box::new(SyncResponse {
        version: VERSION,
        leadership: Leadership { epoch: 2, id: 7 },
        session: Session { counter: 1, id: 5 },
        transmission: 4,
        receipt: Receipt {
            journal: JournalId(1),
            leadership: Leadership { epoch: 2, id: 7 },
            record: RecordNumber(9),
            rules: RecordNumber(3),
            audit_head: None,
            mac: None,
        },
        members: vec!["eu".into()],
        events_through: 2,
        ends_acknowledged: vec![(Uid(1), fence, RecordNumber(8))],
        commands: vec![
            Command::Withdraw { offer, uid: Uid(1) },
            Command::Stop { uid: Uid(1), fence, reason: StopReason::Cancelled },
        ],
        commands_from: 1,
        renewals: vec![(Uid(2), fence)],
        want_inventory: false,
        capacity_acknowledged: 1,
        ranges: vec![(Leadership { epoch: 2, id: 7 }, RecordNumber(1), RecordNumber(9))],
        poll: Millis(1_000),
    }));
    let text = serde_json::to_string(&answer).unwrap();
    assert_eq!(
        text,
        concat!(
            r#"{"Ok":{"version":2,"leadership":"2-7","session":"1-5","transmission":4,"#,
            r#""receipt":{"journal":"00000000-0000-0000-0000-000000000001","#,
            r#""leadership":"2-7","record":9,"rules":3,"audit_head":null,"mac":null},"#,
            r#""members":["eu"],"events_through":2,"#,
            r#""ends_acknowledged":[["00000000-0000-0000-0000-000000000001","2-7-3",8]],"#,
            r#""commands":[{"Withdraw":{"offer":"2-7-1","uid":"00000000-0000-0000-0000-000000000001"}},"#,
            r#"{"Stop":{"uid":"00000000-0000-0000-0000-000000000001","fence":"2-7-3","#,
            r#""reason":"Cancelled"}}],"commands_from":1,"#,
            r#""renewals":[["00000000-0000-0000-0000-000000000002","2-7-3"]],"want_inventory":false,"#,
            r#""capacity_acknowledged":1,"ranges":[["2-7",1,9]],"poll":1000}}"#
        )
    );
    assert_eq!(serde_json::from_str::<SyncAnswer>(&text).unwrap(), answer);
}

#[test]
fn digests_ignore_order_and_distinguish_offers_from_grants() {
    let fence = Fence { epoch: 1, leadership: 2, counter: 3 };
    let offer = OfferId { epoch: 1, leadership: 2, counter: 3 };
    let a = Digest::default().with_offer(offer).with_grant(Uid(9), fence);
    let b = Digest::default().with_grant(Uid(9), fence).with_offer(offer);
    assert_eq!(a, b);
    assert_ne!(Digest::default().with_offer(offer), Digest::default().with_grant(Uid(0), fence));
    assert_ne!(Digest::default().with_grant(Uid(1), fence), Digest::default().with_grant(Uid(2), fence));
}

#[test]
fn the_words_of_reasons_are_those_on_the_wire() {
    let refusals = [
        RefuseReason::NoCapacity,
        RefuseReason::NeverFits,
        RefuseReason::Unsupported,
        RefuseReason::Overloaded,
        RefuseReason::ProviderFailed,
        RefuseReason::StillRuns,
        RefuseReason::Precondition,
    ];
    for reason in refusals {
        assert_eq!(serde_json::to_value(reason).unwrap(), reason.word());
    }
    let stops = [
        StopReason::Cancelled,
        StopReason::Residency,
        StopReason::Drained,
        StopReason::Evicted,
        StopReason::Superseded,
        StopReason::StartTimeout,
    ];
    for reason in stops {
        assert_eq!(serde_json::to_value(reason).unwrap(), reason.word());
    }
}
