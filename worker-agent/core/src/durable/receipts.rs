//! Receipts: what managers reported of their journals, for recovery after a journal was lost or restored.

use super::values::{StoreOp, Writes, put};
use meridian_shared::ids::{ClusterName, JournalId, Leadership};
use meridian_shared::protocol::Receipt;
use std::collections::BTreeMap;

/// Leaderships per journal with a kept receipt; the oldest are dropped first.
const RECEIPTS_MAX: usize = 16;

type Entry = (Receipt, Vec<ClusterName>);

/// The newest receipt of each leadership, with the members that it named.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Receipts(BTreeMap<JournalId, BTreeMap<Leadership, Entry>>);

impl Receipts {
    pub(super) fn by_journal(&self) -> &BTreeMap<JournalId, BTreeMap<Leadership, Entry>> {
        &self.0
    }

    pub(super) fn load(&mut self, receipt: Receipt, members: Vec<ClusterName>) {
        self.0.entry(receipt.journal).or_default().insert(receipt.leadership, (receipt, members));
    }

    pub(super) fn note(&mut self, receipt: &Receipt, members: &[ClusterName], out: &mut Writes) {
        let kept = self.0.entry(receipt.journal).or_default();
        // Answers may arrive out of order. An older one must not drop members that joined since and were
        // acknowledged.
        if kept.get(&receipt.leadership).is_some_and(|(known, _)| known.record >= receipt.record) {
            return;
        }
        out.push(put(&format!("receipts/{}/{}", receipt.journal, receipt.leadership), &(receipt, members)));
        kept.insert(receipt.leadership, (receipt.clone(), members.to_vec()));
        while kept.len() > RECEIPTS_MAX {
            let (oldest, _) = kept.pop_first().expect("more than RECEIPTS_MAX entries");
            out.push(StoreOp { key: format!("receipts/{}/{oldest}", receipt.journal), value: None });
        }
    }

    /// The followed leadership first, then the newest of each journal, then the next of each, while they fit.
    pub(super) fn newest(&self, follows: Option<Leadership>, bytes_max: usize) -> Vec<Entry> {
        let by_age = self.0.values().flat_map(|by| by.iter().rev().enumerate());
        let mut sorted: Vec<_> =
            by_age.map(|(age, (leadership, entry))| (follows != Some(*leadership), age, entry)).collect();
        sorted.sort_by_key(|(other, age, _)| (*other, *age));
        let mut bytes = 0;
        let fits = |(at, entry): &(usize, &Entry)| {
            bytes += serde_json::to_vec(entry).expect("our own types serialise").len() + 1;
            *at == 0 || bytes <= bytes_max
        };
        sorted
            .into_iter()
            .map(|(_, _, entry)| entry)
            .enumerate()
            .take_while(fits)
            .map(|(_, entry)| entry.clone())
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use meridian_shared::ids::RecordNumber;
    use meridian_shared::protocol::RECEIPTS_BYTES_MAX;

    #[test]
    fn newest_receipts_of_each_journal_come_first() {
        let mut receipts = Receipts::default();
        let members: Vec<ClusterName> = (0..500).map(|i| format!("{i:063}").as_str().into()).collect();
        for (journal, epoch) in
            (1..=3_u128).flat_map(|journal| (1..=16_u64).map(move |epoch| (journal, epoch)))
        {
            let leadership = Leadership { epoch, id: 7 };
            let receipt = Receipt {
                journal: JournalId(journal),
                leadership,
                record: RecordNumber(epoch),
                rules: RecordNumber(1),
                audit_head: None,
                mac: None,
            };
            receipts.note(&receipt, &members, &mut Writes::default());
        }
        let follows = Some(Leadership { epoch: 3, id: 7 });
        let newest = receipts.newest(follows, RECEIPTS_BYTES_MAX);
        let bytes: usize = newest.iter().map(|entry| serde_json::to_vec(entry).unwrap().len() + 1).sum();
        assert!(bytes <= RECEIPTS_BYTES_MAX, "{bytes}");
        let epochs: Vec<u64> = newest.iter().map(|(receipt, _)| receipt.leadership.epoch).collect();
        assert_eq!(epochs[..6], [3, 3, 3, 16, 16, 16]);
        assert_eq!(receipts.newest(follows, 1).len(), 1, "the followed leadership is always included");
        assert_eq!(receipts.newest(follows, usize::MAX).len(), 48);
    }

    fn receipt(epoch: u64, record: u64) -> Receipt {
        let leadership = Leadership { epoch, id: 7 };
        let (record, rules) = (RecordNumber(record), RecordNumber(1));
        Receipt { journal: JournalId(1), leadership, record, rules, audit_head: None, mac: None }
    }

    fn members(name: &str) -> Vec<ClusterName> {
        vec![name.into()]
    }

    #[test]
    fn an_overtaken_receipt_drops_no_member() {
        let (mut receipts, mut writes) = (Receipts::default(), Writes::default());
        receipts.load(receipt(1, 5), members("eu"));
        receipts.note(&receipt(1, 5), &members("same"), &mut writes);
        receipts.note(&receipt(1, 4), &members("older"), &mut writes);
        let kept = |receipts: &Receipts| receipts.newest(None, usize::MAX)[0].1.clone();
        assert_eq!((kept(&receipts), writes.ops().len()), (members("eu"), 0));
        receipts.note(&receipt(1, 6), &members("newer"), &mut writes);
        assert_eq!((kept(&receipts), writes.ops().len()), (members("newer"), 1));
    }

    #[test]
    fn the_oldest_leaderships_are_forgotten_in_the_store_too() {
        let (mut receipts, mut writes) = (Receipts::default(), Writes::default());
        for epoch in 1..=18 {
            receipts.note(&receipt(epoch, 1), &members("eu"), &mut writes);
        }
        let kept = &receipts.by_journal()[&JournalId(1)];
        assert_eq!(
            kept.keys().map(|leadership| leadership.epoch).collect::<Vec<_>>(),
            (3..=18).collect::<Vec<_>>()
        );
        let removed = writes.ops().iter().filter(|op| op.value.is_none()).map(|op| op.key.clone());
        let keys = [1, 2].map(|epoch| format!("receipts/{}/{}", JournalId(1), Leadership { epoch, id: 7 }));
        assert_eq!(removed.collect::<Vec<_>>(), keys);
    }

    #[test]
    fn receipts_fit_to_the_byte() {
        let mut receipts = Receipts::default();
        (1..=3).for_each(|epoch| receipts.note(&receipt(epoch, 1), &members("eu"), &mut Writes::default()));
        let all = receipts.newest(None, usize::MAX);
        let bytes: usize = all.iter().map(|entry| serde_json::to_vec(entry).unwrap().len() + 1).sum();
        assert_eq!((all.len(), receipts.newest(None, bytes).len()), (3, 3));
        assert_eq!(receipts.newest(None, bytes - 1).len(), 2);
    }
}
