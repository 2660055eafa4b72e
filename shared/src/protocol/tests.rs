//! Bounds of one body, and the wire form of version 2.

use super::*;
use crate::gang::{Gang, PodSet};
use crate::ids::{ContentHash, Fence, JournalId, Leadership, LedgerId, OfferId, RecordNumber, Session, Uid};
use crate::indexes::{Indexes, RANGES_MAX};
use crate::mac::Mac;
use crate::placement::{PlacedDomain, PlacedPodSet, Placement};
use crate::time::Millis;
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::Arc;

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
    let mut completed = Indexes::default();
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

#[test]
fn the_weight_of_an_event_is_its_size_and_a_little_more() {
    let fence = Fence { epoch: 2, leadership: 7, counter: 3 };
    let offer = OfferId { epoch: 2, leadership: 7, counter: 1 };
    let (uid, number, reason) = (Uid(1), RecordNumber(9), RefuseReason::NoCapacity);
    let text = "\"".repeat(4_000);
    let domain = PlacedDomain { values: vec![text.clone()], pods: 1, kind: 0 };
    let pod_set = PlacedPodSet { name: "main".into(), domains: vec![domain], ..PlacedPodSet::default() };
    let placed = Placement { pod_sets: vec![pod_set], ..Placement::default() };
    let placement = Some(Arc::new(placed));
    let ended = |result| {
        let completed = Indexes::default();
        Event::Ended(End { uid, fence, result, pod_failures: 0, ran: Millis(1), completed, proof: None })
    };
    for event in [
        Event::Held { offer, uid },
        Event::Waiting { offer, uid, reason: text.clone(), estimate: Some(Millis(1)) },
        Event::Refused { offer, uid, reason, text: text.clone() },
        Event::Gone { offer, uid, expired: true },
        Event::Accepted { uid, fence, placement: None },
        Event::Accepted { uid, fence, placement: placement.clone() },
        Event::GrantRefused { uid, fence, why: GrantRefusal::NoHold },
        Event::Running { uid, fence, placement },
        Event::ScaledUp { uid, fence, number },
        Event::ScaleUpRefused { uid, fence, number, reason, text: text.clone() },
        ended(EndResult::Succeeded),
        ended(EndResult::Failed { reason: text.clone(), message: text.clone() }),
        ended(EndResult::NodeLost { message: text }),
    ] {
        let (size, weight) = (bytes(&event, 1), event.weight());
        assert!((size..size + 1_024).contains(&weight), "{weight} for {size} bytes of {event:?}");
    }
}

#[test]
fn a_digest_depends_on_every_part_of_an_identifier() {
    let digests = (0..64).flat_map(|n| {
        let (offer, fence) = (
            OfferId { epoch: 1_000, leadership: 1_000, counter: 1_000 },
            Fence { epoch: 1_000, leadership: 1_000, counter: 1_000 },
        );
        let none = Digest::default();
        [
            none.with_offer(OfferId { epoch: n, ..offer }),
            none.with_offer(OfferId { leadership: n, ..offer }),
            none.with_offer(OfferId { counter: n, ..offer }),
            none.with_grant(Uid(u128::from(n)), fence),
            none.with_grant(Uid(1_000), Fence { epoch: n, ..fence }),
            none.with_grant(Uid(1_000), Fence { leadership: n, ..fence }),
            none.with_grant(Uid(1_000), Fence { counter: n, ..fence }),
        ]
    });
    assert_eq!(digests.collect::<std::collections::BTreeSet<_>>().len(), 7 * 64);
}

#[test]
fn both_sides_compute_the_same_digest() {
    let offer = OfferId { epoch: 2, leadership: 7, counter: 1 };
    let (uid, fence) = (Uid(5), Fence { epoch: 2, leadership: 7, counter: 3 });
    let digest = Digest::default().with_offer(offer).with_grant(uid, fence);
    // Manager and agent may be of different versions.
    assert_eq!(digest, Digest(11_819_600_464_815_070_383));
}

#[test]
fn the_weight_of_a_command_is_its_size_and_a_little_more() {
    let fence = Fence { epoch: 2, leadership: 7, counter: 3 };
    let offer = OfferId { epoch: 2, leadership: 7, counter: 1 };
    let (uid, text) = (Uid(1), "\"".repeat(4_000));
    let reference = Reference { kind: ReferenceKind::ConfigMap, name: text.as_str().into() };
    let size = Size { parallelism: 3, completions: None };
    let places = vec![u32::MAX; 1_000];
    let node_selector = BTreeMap::from([("pool".to_owned(), "p".repeat(4_000))]);
    let pods = PodSet { name: "main".into(), count: 3, node_selector, ..PodSet::default() };
    let scale_up = Box::new(ScaleUp { number: RecordNumber(9), places, size, mac: None });
    for command in [
        Command::Offer(Box::new(Offer {
            offer,
            uid,
            namespace: "default".into(),
            kind: "Job".into(),
            gang: Arc::new(Gang { pod_sets: vec![pods], ..Gang::default() }),
            hold: Millis(1),
            requires_guarded: true,
            container_needs: None,
            without_image: None,
            references: vec![reference.clone(), reference],
        })),
        Command::Withdraw { offer, uid },
        Command::Grant(Box::new(Grant {
            offer,
            uid,
            fence,
            attempt: 1,
            namespace: "default".into(),
            name: "job".into(),
            spec: text.into(),
            term: Millis(1),
            on_loss: OnLoss::Fence,
            start_within: Millis(1),
            run_left: None,
            pod_failures: 0,
            completed: Indexes::default(),
            priority: -7,
            mac: None,
        })),
        Command::Stop { uid, fence, reason: StopReason::Cancelled },
        Command::ScaleDown { uid, fence, size },
        Command::ScaleUp { uid, fence, scale_up },
        Command::SetPriority { uid, fence, priority: i64::MIN },
    ] {
        let (size, weight) = (bytes(&command, 1), command.weight());
        assert!((size..size + 2_048).contains(&weight), "{weight} for {size} bytes of {command:?}");
        let sent = serde_json::to_string(&command).unwrap();
        assert_eq!(serde_json::from_str::<Command>(&sent).unwrap(), command);
    }
}

#[test]
fn the_text_of_a_grant_that_is_authenticated_is_fixed() {
    let fence = Fence { epoch: 2, leadership: 7, counter: 3 };
    let offer = OfferId { epoch: 2, leadership: 7, counter: 1 };
    let message =
        grant_message(&"eu".into(), LedgerId(1), Uid(1), fence, offer, 4, Millis(60_000), OnLoss::Wait);
    // A later version must be able to check the grants of this one.
    let expected = "grant 1\neu\n00000000-0000-0000-0000-000000000001\n\
                    00000000-0000-0000-0000-000000000001\n2-7-3\n2-7-1\n4\n60000\nWait\n";
    assert_eq!(String::from_utf8(message).unwrap(), expected);
}

#[test]
fn the_texts_of_receipts_and_scale_ups_that_are_authenticated_are_fixed() {
    let leadership = Leadership { epoch: 2, id: 7 };
    let mut receipt = Receipt {
        journal: JournalId(1),
        leadership,
        record: RecordNumber(9),
        rules: RecordNumber(3),
        audit_head: Some("12:abc".into()),
        mac: None,
    };
    let text = |receipt: &Receipt| String::from_utf8(receipt.message(&["eu".into(), "us".into()])).unwrap();
    assert_eq!(
        text(&receipt),
        "receipt 1\n00000000-0000-0000-0000-000000000001\n2-7\n9\n3\n12:abc\neu\nus\n"
    );
    receipt.audit_head = None;
    assert!(text(&receipt).ends_with("\n3\n-\neu\nus\n"));
    let size = Size { parallelism: 4, completions: Some(8) };
    let scale_up = ScaleUp { number: RecordNumber(5), places: vec![4, 1], size, mac: None };
    let fence = Fence { epoch: 2, leadership: 7, counter: 3 };
    let message = scale_up.message(&"eu".into(), LedgerId(1), Uid(1), fence);
    let expected = "scale-up 1\neu\n00000000-0000-0000-0000-000000000001\n\
                    00000000-0000-0000-0000-000000000001\n2-7-3\n5\n[4, 1]\n4 Some(8)\n";
    assert_eq!(String::from_utf8(message).unwrap(), expected);
}

#[test]
fn what_is_left_out_of_a_report_reads_as_it_was() {
    let fence = Fence { epoch: 2, leadership: 7, counter: 3 };
    let completed = Indexes::default();
    for failures in [0, 3] {
        let report =
            PodReport { uid: Uid(1), fence, pods: BTreeMap::new(), failures, completed: completed.clone() };
        let text = serde_json::to_string(&report).unwrap();
        assert_eq!(text.contains("failures"), failures > 0);
        assert_eq!(serde_json::from_str::<PodReport>(&text).unwrap(), report);
    }
    for holds in [HoldMethod::Ledger, HoldMethod::Placeholders, HoldMethod::Kueue] {
        let capacity = Capacity {
            version: 1,
            after_command: 0,
            base: None,
            blocks: Vec::new(),
            provisionable: Vec::new(),
            managed: crate::managed::ManagedResources::default(),
            runner: RunnerKind::Simulated,
            guarded: true,
            located: None,
            holds,
        };
        let text = serde_json::to_string(&capacity).unwrap();
        assert_eq!(text.contains("holds"), holds != HoldMethod::Ledger);
        assert_eq!(serde_json::from_str::<Capacity>(&text).unwrap(), capacity);
    }
}

#[test]
fn kinds_of_references_have_the_names_of_kubernetes() {
    let copied = |kind: ReferenceKind| (kind.name(), kind.copied_plural());
    assert_eq!(copied(ReferenceKind::Secret), ("Secret", Some("secrets")));
    assert_eq!(copied(ReferenceKind::ConfigMap), ("ConfigMap", Some("configmaps")));
    assert_eq!(copied(ReferenceKind::ServiceAccount), ("ServiceAccount", None));
    assert_eq!(copied(ReferenceKind::PersistentVolumeClaim), ("PersistentVolumeClaim", None));
    assert_eq!(copied(ReferenceKind::PriorityClass), ("PriorityClass", None));
}
