//! Certificates of agents: which are valid after joins, revocations, deletions and restores.

use super::*;
use meridian_manager_core::facts::audit::Action;
use meridian_manager_core::facts::input::ClusterPlace;
use meridian_manager_core::state::certificates::{
    CertificateUse, InvalidCertificate, RENEWAL_GRACE, check_certificate,
};
use meridian_shared::identity::CertificateBinding;

const EU: &str = "eu";

impl Fleet {
    fn act(&mut self, action: Operator) -> Reply {
        self.input(Input::Operator { actor: Actor::user("op"), action })
    }

    fn mint(&mut self, hash: &str, replace: bool) {
        let token = Operator::MintToken {
            hash: hash.into(),
            cluster: EU.into(),
            region: "europe-west4".into(),
            jurisdiction: "EU".into(),
            ttl: Millis::mins(10),
            replace,
        };
        let minted = self.act(token);
        assert!(matches!(minted, Reply::Done(_)), "{minted:?}");
    }

    /// Joins with a token; returns the binding of the certificate.
    fn join_with(&mut self, hash: &str) -> Option<CertificateBinding> {
        match self.act(Operator::UseToken { hash: hash.into() }) {
            Reply::Joined { binding, .. } => Some(binding),
            Reply::Rejected(_) => None,
            other => panic!("{other:?}"),
        }
    }

    fn join(&mut self, hash: &str) -> CertificateBinding {
        self.mint(hash, true);
        self.join_with(hash).expect("the token is valid")
    }

    fn check(&self, presented: CertificateBinding) -> Result<(), InvalidCertificate> {
        let valid = self.world.state().valid_certificates(&EU.into());
        check_certificate(valid, (presented, Wall(1)), CertificateUse::Request, Wall(0))
    }

    fn adopt(&mut self, binding: CertificateBinding) -> bool {
        matches!(self.act(Operator::AdoptCertificate { cluster: EU.into(), binding }), Reply::Done(_))
    }

    fn delete_cluster(&mut self) {
        let key = Key::global(Kind::Cluster, EU);
        assert!(matches!(
            self.write(vec![Change::Delete { key, uid: None, force: false }]),
            Reply::Written(_)
        ));
    }

    fn create_cluster(&mut self) {
        assert!(matches!(self.apply(vec![cluster_object(EU, "europe-west4", "EU")]), Reply::Written(_)));
    }

    /// The cluster's state as it is displayed.
    fn cluster_state(&self) -> String {
        let key = Key::global(Kind::Cluster, EU);
        let view = self.object_at(&key).unwrap();
        view["status"]["state"].as_str().unwrap().to_owned()
    }

    fn audited(&self, action: Action) -> usize {
        let audited = self.records.iter().filter_map(|(_, record)| match record {
            Record::Audited(line) => Some(line.entry.action),
            _ => None,
        });
        audited.filter(|of| *of == action).count()
    }
}

fn fleet() -> Fleet {
    Fleet::without_agents(&[(EU, "europe-west4", "EU")])
}

#[test]
fn each_join_voids_the_certificates_and_tokens_before_it() {
    let mut f = fleet();
    let first = f.join("first");
    assert_eq!(f.check(first), Ok(()));
    f.mint("spare", true);
    let second = f.join("second");
    assert!(second.generation > first.generation && second.cluster_uid == first.cluster_uid);
    assert_eq!((f.check(first), f.check(second)), (Err(InvalidCertificate::Revoked), Ok(())));
    assert_eq!((f.join_with("spare"), f.join_with("second")), (None, None));
}

#[test]
fn a_replacement_disconnects_the_old_agent() {
    let mut f = Fleet::regions();
    f.join("first");
    f.advance(Millis::secs(30));
    f.mint("second", true);
    assert_eq!(f.cluster_state(), "Connected", "the old agent serves until the new one joins");
    f.join_with("second").unwrap();
    assert_eq!(f.cluster_state(), "Disconnected");
}

#[test]
fn a_deleted_cluster_leaves_neither_certificates_nor_tokens() {
    let mut f = fleet();
    let old = f.join("used");
    f.mint("unused", true);
    f.delete_cluster();
    assert_eq!(f.check(old), Err(InvalidCertificate::NotIssuedHere));
    assert_eq!((f.join_with("used"), f.join_with("unused")), (None, None));
    f.create_cluster();
    assert_eq!(f.check(old), Err(InvalidCertificate::NotIssuedHere));
    assert_eq!((f.join_with("used"), f.join_with("unused")), (None, None), "a token is spent for ever");
    assert!(!f.adopt(old));
    let new = f.join("new");
    assert!(new.cluster_uid != old.cluster_uid && new.generation > old.generation);
    assert_eq!((f.check(old), f.check(new)), (Err(InvalidCertificate::Revoked), Ok(())));
}

#[test]
fn a_revoked_agent_gets_no_renewals_and_its_gang_moves_after_the_lapse() {
    let mut f = Fleet::regions();
    f.join("token");
    f.settle();
    for other in ["us", "asia"] {
        f.act(Operator::Cordon(other.into()));
    }
    let uid = f.submit("job", 3);
    f.advance(Millis::secs(30));
    assert_eq!(f.cluster_of(uid).as_deref(), Some(EU));
    let binding = f.world.state().valid_certificates(&EU.into()).unwrap();
    f.mint("spare", true);
    let Reply::Done(message) = f.act(Operator::Revoke(EU.into())) else { panic!("not revoked") };
    assert!(message.contains("the leases of 1 workload there are not renewed"), "{message}");
    assert_eq!((f.check(binding), f.join_with("spare")), (Err(InvalidCertificate::Revoked), None));
    assert_eq!(f.cluster_state(), "Disconnected");
    assert_eq!(f.audited(Action::Revoke), 1);
    // Its certificate is refused before its syncs reach the core.
    f.disconnected.push(EU.into());
    for other in ["us", "asia"] {
        f.act(Operator::Uncordon(other.into()));
    }
    f.advance(Millis(5_000));
    assert_eq!(f.cluster_of(uid).as_deref(), Some(EU), "its lease still holds");
    f.advance(Millis(7_000));
    assert!(f.cluster_of(uid).is_some_and(|cluster| cluster != EU), "{:?}", f.cluster_of(uid));
    assert!(matches!(f.act(Operator::Revoke("mars".into())), Reply::Rejected(_)));
}

#[test]
fn an_expired_certificate_is_good_for_renewal_for_a_week() {
    let binding = CertificateBinding { cluster_uid: Uid(1), generation: RecordNumber(7) };
    let other = CertificateBinding { generation: RecordNumber(6), ..binding };
    let end = Wall(1_000);
    let check = |presented, purpose, at| check_certificate(Some(binding), (presented, end), purpose, at);
    let (renewal, request) = (CertificateUse::Renewal, CertificateUse::Request);
    let last = end + RENEWAL_GRACE;
    assert_eq!(check(binding, request, end), Ok(()));
    assert_eq!(check(binding, request, Wall(1_001)), Err(InvalidCertificate::Expired));
    assert_eq!(check(binding, renewal, last), Ok(()));
    assert_eq!(check(binding, renewal, last + Millis(1)), Err(InvalidCertificate::GraceOver));
    assert_eq!(check(other, renewal, Wall(0)), Err(InvalidCertificate::Revoked));
    assert_eq!(
        check_certificate(None, (binding, end), renewal, Wall(0)),
        Err(InvalidCertificate::NotIssuedHere)
    );
}

#[test]
fn a_restored_journal_adopts_later_certificates_and_no_earlier_ones() {
    let mut f = fleet();
    let before = f.join("first");
    f.mint("spent after the backup", true);
    let backup = f.world.snapshot();
    let lost = f.join_with("spent after the backup").unwrap();
    let newest = f.join("third");
    f.lead_from_backup(&backup);
    assert_eq!(f.join_with("spent after the backup"), None, "a restored journal has no tokens");
    assert_eq!(f.check(before), Ok(()), "the backup doesn't know better");
    assert!(f.adopt(lost) && f.check(before).is_err() && f.check(lost).is_ok());
    assert!(f.adopt(newest) && !f.adopt(lost) && !f.adopt(newest));
    assert_eq!((f.check(lost), f.check(newest)), (Err(InvalidCertificate::Revoked), Ok(())));
    // What an operator voids now stays void, whatever number the lost journal gave it.
    f.act(Operator::Revoke(EU.into()));
    let later = CertificateBinding { generation: RecordNumber(1_000_000), ..newest };
    assert!(!f.adopt(newest) && !f.adopt(later));
    f.delete_cluster();
    f.create_cluster();
    assert!(!f.adopt(newest) && !f.adopt(later));
}

#[test]
fn a_new_journal_adopts_certificates_until_recovery_is_over() {
    let mut f = fleet();
    let (old, other) = (f.join("first"), f.join("second"));
    let mut world = World::empty(JournalId(2), config());
    let start = start(78, f.now, Some(RecoveryStart { restored: false, members_unknown: true }), false);
    world.lead(start, &f.bodies);
    world.committed(Mono(f.now));
    f.world = world;
    assert!(!f.adopt(old), "the cluster is not declared");
    f.create_cluster();
    assert_eq!(f.check(old), Err(InvalidCertificate::NotIssuedHere));
    assert!(f.adopt(old) && f.check(old).is_ok());
    f.act(Operator::ConfirmRecovery);
    f.act(Operator::ConfirmRules);
    f.advance(Millis(3 * TERM.0));
    assert!(f.world.state().recovery().is_none());
    assert!(!f.adopt(other), "recovery is over");
    assert_eq!(f.check(old), Ok(()));
    // A certificate of this journal voids adopted ones.
    f.join("new");
    assert_eq!(f.check(old), Err(InvalidCertificate::Revoked));
}

fn eu_place() -> ClusterPlace {
    ClusterPlace { cluster: EU.into(), region: "europe-west4".into(), jurisdiction: "EU".into() }
}

impl Fleet {
    fn join_by_account(&mut self, place: ClusterPlace) -> Result<CertificateBinding, String> {
        match self.input(Input::Operator { actor: Actor::System, action: Operator::JoinByIssuer(place) }) {
            Reply::Joined { binding, .. } => Ok(binding),
            Reply::Rejected(why) => Err(why[0].message.clone()),
            other => panic!("{other:?}"),
        }
    }

    #[track_caller]
    fn assert_account_locked(&mut self) {
        let refused = self.join_by_account(eu_place()).unwrap_err();
        assert!(refused.contains("were revoked") && refused.contains("--replace --issuer"), "{refused}");
    }

    fn let_account_join(&mut self, replace: bool) -> Reply {
        self.act(Operator::LetAccountJoin { place: eu_place(), replace })
    }
}

#[test]
fn a_service_account_joins_again_with_certificates_of_the_same_agent() {
    let mut f = Fleet::regions();
    let place =
        || ClusterPlace { cluster: "new".into(), region: "us-east4".into(), jurisdiction: "US".into() };
    let first = f.join_by_account(place()).unwrap();
    assert!(f.object_at(&Key::global(Kind::Cluster, "new")).is_some(), "its object is made");
    assert_eq!(f.join_by_account(place()).unwrap(), first, "a second replica doesn't lock out the first");
    let moved = ClusterPlace { region: "europe-west4".into(), ..place() };
    assert!(f.join_by_account(moved).is_err(), "the object says another region");
}

#[test]
fn a_revoked_service_account_stays_out_until_an_operator_lets_it_in() {
    let mut f = fleet();
    let first = f.join_by_account(eu_place()).unwrap();
    assert!(matches!(f.act(Operator::Revoke(EU.into())), Reply::Done(_)));
    f.assert_account_locked();
    f.restart(2, None);
    f.assert_account_locked();
    f.delete_cluster();
    f.assert_account_locked();
    assert!(f.object_at(&Key::global(Kind::Cluster, EU)).is_none(), "it makes no object");
    let snapshot = f.world.snapshot();
    f.create_cluster();
    f.assert_account_locked();
    assert_eq!(f.check(first), Err(InvalidCertificate::NotIssuedHere));
    f.join("token");
    f.assert_account_locked();
    f.delete_cluster();
    f.restart(3, RECOVERY);
    f.confirm_rules();
    f.act(Operator::ConfirmRecovery);
    f.advance(Millis(3 * TERM.0));
    f.assert_account_locked();
    assert!(matches!(f.let_account_join(false), Reply::Done(_)), "it makes the object");
    let second = f.join_by_account(eu_place()).unwrap();
    assert_eq!((f.check(first), f.check(second)), (Err(InvalidCertificate::Revoked), Ok(())));
    f.lead_from_backup(&snapshot);
    f.assert_account_locked();
}

#[test]
fn a_join_with_a_token_locks_the_service_account_out() {
    let mut f = Fleet::regions();
    let account = f.join_by_account(eu_place()).unwrap();
    let replaced = f.join("token");
    f.assert_account_locked();
    f.advance(Millis::secs(30));
    assert_eq!((f.check(account), f.check(replaced)), (Err(InvalidCertificate::Revoked), Ok(())));
    assert!(matches!(f.let_account_join(false), Reply::Rejected(_)), "the cluster has an agent");
    assert_eq!(f.check(replaced), Ok(()));
    assert!(matches!(f.let_account_join(true), Reply::Done(_)));
    assert_eq!(f.check(replaced), Err(InvalidCertificate::Revoked), "it takes the agent's place");
    assert_eq!(f.cluster_state(), "Disconnected");
    let again = f.join_by_account(eu_place()).unwrap();
    assert!(again.generation > replaced.generation);
    assert_eq!((f.join_by_account(eu_place()), f.check(again)), (Ok(again), Ok(())));
    f.restart(2, None);
    assert_eq!(f.join_by_account(eu_place()), Ok(again));
}

/// The store of an agent in the manager's process may be lost while the journal survives.
#[test]
fn the_manager_replaces_its_own_agent_and_no_other() {
    let mut f = Fleet::regions();
    let mint = |f: &mut Fleet, actor: Actor, hash: &str, replace: bool| {
        let token = Operator::MintToken {
            hash: hash.into(),
            cluster: EU.into(),
            region: "europe-west4".into(),
            jurisdiction: "EU".into(),
            ttl: Millis::mins(1),
            replace,
        };
        matches!(f.input(Input::Operator { actor, action: token }), Reply::Done(_))
    };
    assert!(!mint(&mut f, Actor::System, "first", false), "its agent didn't join by the manager");
    assert!(mint(&mut f, Actor::System, "own", true));
    f.join_with("own").unwrap();
    assert!(!mint(&mut f, Actor::user("op"), "user", false), "a user has to say so");
    f.restart(2, None);
    assert!(mint(&mut f, Actor::System, "again", false), "after a restart too");
    f.join_with("again").unwrap();
    // another agent joins from elsewhere: it may still run
    f.join("other");
    assert!(!mint(&mut f, Actor::System, "late", false));
    // back to the manager's own, and an operator locks it out
    assert!(mint(&mut f, Actor::System, "back", true));
    f.join_with("back").unwrap();
    assert!(matches!(f.act(Operator::Revoke(EU.into())), Reply::Done(_)));
    assert!(!mint(&mut f, Actor::System, "revoked", false));
}
