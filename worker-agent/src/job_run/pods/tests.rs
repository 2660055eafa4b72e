use super::*;

fn job(spec: &str) -> JobSpec {
    let text =
        format!(r#"{{"spec":{{{spec} "template":{{"spec":{{"containers":[{{"command":["x"]}}]}}}}}}}}"#);
    JobSpec::parse(&text).unwrap()
}

fn pods(spec: &str, places: usize) -> Pods {
    Pods::new(&job(spec), places, 0, &Indexes::default(), Millis(100))
}

#[test]
fn fewer_places_are_fewer_completions_only_where_the_job_says_so() {
    for (follow, ends) in [("", 4), (r#""kueue.x-k8s.io/job-completions-equal-parallelism":"true""#, 2)] {
        let spec =
            r#"{"parallelism":4,"completions":4,"template":{"spec":{"containers":[{"command":["x"]}]}}}"#;
        let text = format!(r#"{{"metadata":{{"annotations":{{{follow}}}}},"spec":{spec}}}"#);
        let mut pods = Pods::new(&JobSpec::parse(&text).unwrap(), 2, 0, &Indexes::default(), Millis(100));
        let (mut running, mut ended) = (pods.due(Mono(0)), 0);
        while pods.verdict().is_none() {
            let done = running.remove(0);
            assert!(!pods.ended(done, 0, None, Mono(0)));
            ended += 1;
            running.extend(pods.due(Mono(0)));
        }
        assert_eq!(ended, ends);
    }
}

#[test]
fn every_completion_runs_once_and_no_more_at_a_time_than_there_are_places() {
    let mut pods = pods(r#""parallelism":2,"completions":5,"#, 2);
    let mut seen = Vec::new();
    let mut running = pods.due(Mono(0));
    while pods.verdict().is_none() {
        assert!(running.len() <= 2);
        let done = running.remove(0);
        seen.push(done.index);
        assert!(!pods.ended(done, 0, None, Mono(0)));
        running.extend(pods.due(Mono(0)));
    }
    assert_eq!(seen, [0, 1, 2, 3, 4]);
    assert_eq!(pods.verdict(), Some(&EndResult::Succeeded));
    assert_eq!(pods.outcomes().len(), 5);
}

#[test]
fn failures_are_retried_after_longer_waits_until_the_limit() {
    let mut pods = pods(r#""backoffLimit":2,"#, 1);
    let mut now = Mono(0);
    for (attempt, wait) in [(0, 100), (1, 200)] {
        let due = pods.due(now);
        assert_eq!(due, [Try { slot: 0, index: 0, attempt }]);
        assert!(pods.ended(due[0], 7, None, now));
        assert_eq!(pods.verdict(), None);
        assert_eq!(pods.due(now), [], "not before its time");
        assert_eq!(pods.next_due(), Some(now + Millis(wait)));
        now = now + Millis(wait);
    }
    let last = pods.due(now);
    pods.ended(last[0], 7, None, now);
    assert!(
        matches!(pods.verdict(), Some(EndResult::Failed { reason, .. }) if reason == "BackoffLimitExceeded"),
        "{:?}",
        pods.verdict()
    );
    assert_eq!((pods.failures(), pods.due(Mono(u64::MAX)).len()), (3, 0));
}

#[test]
fn a_pod_that_moves_is_tried_again_and_has_not_failed() {
    let mut pods = pods(r#""backoffLimit":0,"#, 1);
    let due = pods.due(Mono(0));
    pods.restart(due[0], Mono(7));
    assert_eq!((pods.verdict(), pods.failures(), pods.next_due()), (None, 0, Some(Mono(7))));
    let due = pods.due(Mono(7));
    assert_eq!(due, [Try { slot: 0, index: 0, attempt: 1 }]);
    pods.ended(due[0], 0, None, Mono(8));
    assert_eq!(pods.verdict(), Some(&EndResult::Succeeded));
}

#[test]
fn failures_of_earlier_attempts_count() {
    let mut pods = Pods::new(&job(r#""backoffLimit":2,"#), 1, 2, &Indexes::default(), Millis(1));
    let due = pods.due(Mono(0));
    pods.ended(due[0], 1, None, Mono(0));
    assert!(matches!(pods.verdict(), Some(EndResult::Failed { .. })));
    assert_eq!(pods.failures(), 3);
}

#[test]
fn one_success_ends_a_work_queue_when_the_others_are_done() {
    let mut pods = pods(r#""parallelism":3,"#, 3);
    let due = pods.due(Mono(0));
    pods.ended(due[0], 1, None, Mono(0));
    pods.ended(due[1], 0, None, Mono(0));
    assert_eq!(pods.verdict(), None, "one still runs");
    assert_eq!(pods.due(Mono(u64::MAX)), [], "the failed one is not replaced");
    pods.ended(due[2], 1, None, Mono(0));
    assert_eq!(pods.verdict(), Some(&EndResult::Succeeded));
}

const FOUR: &str = r#""parallelism":4,"completions":4,"completionMode":"Indexed","#;

fn size(parallelism: u32, completions: Option<u32>) -> Size {
    Size { parallelism, completions }
}

/// Lets every pod that is due succeed, until none is left; returns the tries.
fn succeed(pods: &mut Pods, mut running: Vec<Try>, now: Mono) -> Vec<Try> {
    let mut seen = Vec::new();
    while pods.verdict().is_none() {
        running.extend(pods.due(now));
        let done = running.remove(0);
        seen.push(done);
        pods.ended(done, 0, None, now);
    }
    seen
}

#[test]
fn where_completions_follow_the_highest_indexes_go_and_are_spare_once_they_are_gone() {
    let mut pods = pods(FOUR, 4);
    let running = pods.due(Mono(0));
    assert_eq!(pods.scale_down(size(2, Some(2))), Some(running[2..].to_vec()));
    assert_eq!(
        (pods.reclaimable(), pods.due(Mono(1)), pods.next_due()),
        (vec![], vec![], None),
        "they still run"
    );
    assert_eq!(pods.scale_down(size(2, Some(2))), None, "a repetition");
    assert_eq!(pods.scale_down(size(3, Some(3))), None, "larger");
    pods.removed(running[3], Mono(2));
    assert_eq!((pods.reclaimable(), pods.due(Mono(2))), (vec![3], vec![]));
    pods.removed(running[2], Mono(2));
    assert_eq!((pods.reclaimable(), pods.due(Mono(2)), pods.failures()), (vec![2, 3], vec![], 0));
    assert_eq!(succeed(&mut pods, running[..2].to_vec(), Mono(3)), running[..2]);
    assert_eq!(pods.outcomes().iter().map(|o| (o.index, o.exit_code)).collect::<Vec<_>>(), [(0, 0), (1, 0)]);
}

#[test]
fn only_successes_that_still_count_are_counted_and_all_of_them_end_the_job_at_once() {
    // The two surplus pods have succeeded; the others continue.
    let mut one = pods(FOUR, 4);
    let running = one.due(Mono(0));
    one.ended(running[2], 0, None, Mono(1));
    one.ended(running[3], 0, None, Mono(1));
    assert_eq!((one.scale_down(size(2, Some(2))), one.verdict()), (Some(vec![]), None));
    assert_eq!(one.due(Mono(1)), []);
    assert_eq!(one.reclaimable(), [2, 3]);
    one.ended(running[0], 0, None, Mono(2));
    assert_eq!(one.verdict(), None);
    one.ended(running[1], 0, None, Mono(2));
    assert_eq!(one.verdict(), Some(&EndResult::Succeeded));
    // All needed completions have succeeded, so a failed pod and a running one are ignored.
    let mut two = pods(FOUR, 4);
    let running = two.due(Mono(0));
    two.ended(running[0], 0, None, Mono(1));
    two.ended(running[1], 0, None, Mono(1));
    two.ended(running[2], 1, None, Mono(1));
    assert_eq!(two.scale_down(size(2, Some(2))), Some(vec![running[3]]));
    assert_eq!((two.verdict(), two.failures(), two.outcomes().len()), (Some(&EndResult::Succeeded), 1, 2));
    assert_eq!(two.scale_down(size(1, Some(1))), None, "it is over");
}

#[test]
fn a_pod_that_waits_for_its_retry_and_is_too_many_leaves_its_place() {
    let mut pods = pods(FOUR, 4);
    let running = pods.due(Mono(0));
    pods.ended(running[3], 1, None, Mono(0));
    assert_eq!(pods.scale_down(size(3, Some(3))), Some(vec![]));
    assert_eq!(pods.due(Mono(100_000)), []);
    assert_eq!((pods.reclaimable(), pods.failures(), pods.outcomes()), (vec![3], 1, vec![]));
}

#[test]
fn where_completions_stay_what_lost_its_place_is_tried_again_in_one_that_is_left() {
    let mut pods = pods(r#""parallelism":3,"completions":6,"backoffLimit":0,"#, 3);
    let running = pods.due(Mono(0));
    assert_eq!(pods.scale_down(size(1, None)), Some(vec![running[2], running[1]]));
    pods.removed(running[1], Mono(1));
    assert_eq!(
        (pods.due(Mono(1)), pods.reclaimable(), pods.next_due()),
        (vec![], vec![1], None),
        "the first one is busy"
    );
    pods.ended(running[0], 0, None, Mono(2));
    let second = pods.due(Mono(2));
    assert_eq!(second, [Try { slot: 0, index: 1, attempt: 1 }], "before the fourth, which was never tried");
    pods.removed(running[2], Mono(3));
    let seen = succeed(&mut pods, second, Mono(3));
    assert_eq!(
        seen.iter().map(|t| (t.slot, t.index, t.attempt)).collect::<Vec<_>>(),
        [(0, 1, 1), (0, 2, 1), (0, 3, 0), (0, 4, 0), (0, 5, 0)]
    );
    assert_eq!((pods.failures(), pods.verdict(), pods.outcomes().len()), (0, Some(&EndResult::Succeeded), 6));
}

#[test]
fn a_place_is_kept_for_each_pod_that_is_not_yet_gone_or_waits_and_no_others() {
    let mut pods = pods(r#""parallelism":4,"completions":4,"#, 4);
    let running = pods.due(Mono(0));
    // The last pod waits until 100, and keeps its wait in the next slot; the one before it is slow to end.
    pods.ended(running[3], 1, None, Mono(0));
    assert_eq!(pods.scale_down(size(2, None)), Some(vec![running[2]]));
    assert_eq!(pods.reclaimable(), [3]);
    pods.ended(running[0], 0, None, Mono(1));
    pods.ended(running[1], 0, None, Mono(1));
    assert_eq!((pods.due(Mono(1)), pods.next_due(), pods.reclaimable()), (vec![], Some(Mono(100)), vec![3]));
    let last = pods.due(Mono(100));
    assert_eq!(last, [Try { slot: 0, index: 3, attempt: 1 }]);
    assert_eq!(
        (pods.next_due(), pods.reclaimable()),
        (None, vec![3]),
        "the other place is for the one that takes its time"
    );
    pods.ended(last[0], 0, None, Mono(101));
    assert_eq!(pods.next_due(), Some(Mono(0)));
    assert_eq!(
        (pods.due(Mono(101)), pods.reclaimable(), pods.next_due()),
        (vec![], vec![1, 3], None),
        "one pod, one place"
    );
    pods.removed(running[2], Mono(102));
    assert_eq!(pods.due(Mono(102)), [Try { slot: 0, index: 2, attempt: 1 }]);
    assert_eq!(pods.reclaimable(), [1, 2, 3]);
}

#[test]
fn it_can_shrink_again_before_the_first_is_done_and_before_anything_has_started() {
    let mut again = pods(r#""parallelism":3,"completions":3,"#, 3);
    let running = again.due(Mono(0));
    assert_eq!(again.scale_down(size(2, None)), Some(vec![running[2]]));
    assert_eq!(again.scale_down(size(0, None)), Some(vec![running[1]]), "one always stays");
    assert_eq!(again.scale_down(size(1, Some(1))), Some(vec![]), "what is ending isn't ended twice");
    again.removed(running[1], Mono(1));
    again.removed(running[2], Mono(1));
    assert_eq!(again.due(Mono(1)), []);
    again.ended(running[0], 0, None, Mono(2));
    assert_eq!(again.verdict(), Some(&EndResult::Succeeded));

    let mut early = pods(FOUR, 4);
    assert_eq!(early.scale_down(size(2, Some(2))), Some(vec![]));
    assert_eq!(early.reclaimable(), [2, 3]);
    let running = early.due(Mono(0));
    assert_eq!(succeed(&mut early, running, Mono(0)).len(), 2);
}

#[test]
fn completions_that_go_after_places_went_leave_a_place_for_what_is_owed() {
    let mut pods = pods(r#""parallelism":3,"completions":4,"#, 3);
    let running = pods.due(Mono(0));
    pods.scale_down(size(1, None));
    pods.ended(running[0], 0, None, Mono(0));
    pods.removed(running[1], Mono(0));
    let second = pods.due(Mono(0));
    pods.ended(second[0], 0, None, Mono(0));
    // The fourth completion gets the only free slot, because the pod of the third hasn't ended yet.
    let fourth = pods.due(Mono(0));
    assert_eq!(fourth, [Try { slot: 0, index: 3, attempt: 0 }]);
    assert_eq!(pods.scale_down(size(1, Some(3))), Some(fourth.clone()));
    pods.removed(fourth[0], Mono(1));
    pods.removed(running[2], Mono(2));
    let third = pods.due(Mono(2));
    assert_eq!(third.iter().map(|t| (t.index, t.attempt)).collect::<Vec<_>>(), [(2, 1)]);
    pods.ended(third[0], 0, None, Mono(3));
    assert_eq!(pods.verdict(), Some(&EndResult::Succeeded));
}

#[test]
fn a_work_queue_goes_on_with_fewer_and_one_success_still_ends_it() {
    let mut pods = pods(r#""parallelism":3,"#, 3);
    let running = pods.due(Mono(0));
    assert_eq!(
        pods.scale_down(size(2, Some(2))),
        Some(vec![running[2]]),
        "it has no completions that could follow"
    );
    pods.removed(running[2], Mono(1));
    assert_eq!((pods.due(Mono(1)), pods.reclaimable(), pods.verdict()), (vec![], vec![2], None));
    pods.ended(running[0], 0, None, Mono(2));
    assert_eq!((pods.reclaimable(), pods.verdict()), (vec![0, 2], None), "one still runs");
    pods.ended(running[1], 1, None, Mono(3));
    assert_eq!((pods.verdict(), pods.failures()), (Some(&EndResult::Succeeded), 1));
}

#[test]
fn places_that_the_job_never_needed_are_spare_from_its_new_size_on() {
    let mut pods = pods(r#""parallelism":5,"completions":2,"#, 5);
    let running = pods.due(Mono(0));
    assert!(pods.reclaimable().is_empty());
    assert_eq!((pods.scale_down(size(4, None)), pods.reclaimable()), (Some(vec![]), vec![4]));
    assert_eq!((pods.scale_down(size(1, None)), pods.reclaimable()), (Some(vec![running[1]]), vec![2, 3, 4]));
    pods.removed(running[1], Mono(0));
    assert_eq!(pods.reclaimable(), [1, 2, 3, 4]);
}

#[test]
fn no_place_is_an_answer_and_not_a_wait() {
    assert!(matches!(pods("", 0).verdict(), Some(EndResult::Failed { reason, .. }) if reason == "NoPods"));
}

#[test]
fn what_is_added_starts_and_what_runs_is_left_alone() {
    let mut pods = pods(r#""parallelism":2,"completions":2,"completionMode":"Indexed","#, 2);
    let running = pods.due(Mono(0));
    pods.scale_up(size(4, Some(4)), 4);
    let added = pods.due(Mono(0));
    assert_eq!(
        added.iter().map(|this| (this.slot, this.index, this.attempt)).collect::<Vec<_>>(),
        [(2, 2, 0), (3, 3, 0)]
    );
    pods.scale_up(size(4, Some(4)), 4);
    assert_eq!((pods.due(Mono(0)).len(), pods.verdict()), (0, None), "a repetition");
    for this in running.into_iter().chain(added) {
        pods.ended(this, 0, None, Mono(1));
    }
    assert_eq!(pods.verdict(), Some(&EndResult::Succeeded));
    pods.scale_up(size(5, Some(5)), 5);
    assert!(pods.due(Mono(1)).is_empty(), "it is over");
}

#[test]
fn places_that_were_given_up_stay_so_and_their_indexes_run_in_new_ones() {
    let mut pods = pods(FOUR, 4);
    let running = pods.due(Mono(0));
    assert_eq!(pods.scale_down(size(2, Some(2))), Some(running[2..].to_vec()));
    running[2..].iter().for_each(|this| pods.removed(*this, Mono(0)));
    assert_eq!(pods.reclaimable(), [2, 3]);
    pods.scale_up(size(3, Some(3)), 5);
    assert_eq!(pods.due(Mono(0)), [Try { slot: 4, index: 2, attempt: 0 }]);
    assert_eq!(pods.reclaimable(), [2, 3]);
    // Then smaller than the original size.
    assert_eq!(pods.scale_down(size(1, Some(1))).map(|leaving| leaving.len()), Some(2));
}

#[test]
fn a_work_queue_scales_up_until_a_pod_of_it_has_succeeded() {
    let mut queue = pods(r#""parallelism":2,"#, 2);
    let running = queue.due(Mono(0));
    queue.scale_up(size(3, None), 3);
    assert_eq!(queue.due(Mono(0)).len(), 1);
    queue.ended(running[0], 0, None, Mono(0));
    queue.scale_up(size(5, None), 5);
    assert_eq!((queue.due(Mono(0)).len(), queue.reclaimable()), (0, vec![0, 3, 4]));
    // With fixed completions, the remaining ones use every added slot that they need.
    let mut fixed = pods(r#""parallelism":1,"completions":3,"#, 1);
    assert_eq!(fixed.due(Mono(0)).len(), 1);
    fixed.scale_up(size(4, None), 4);
    assert_eq!((fixed.due(Mono(0)).len(), fixed.reclaimable()), (2, vec![3]));
}

#[test]
fn indexes_that_succeeded_in_an_earlier_attempt_dont_run_again() {
    let spec = r#""parallelism":3,"completions":6,"completionMode":"Indexed","#;
    let completed = "0-1,4".parse().unwrap();
    let mut rest = Pods::new(&job(spec), 3, 0, &completed, Millis(100));
    let due = rest.due(Mono(0));
    assert_eq!(due.iter().map(|this| this.index).collect::<Vec<_>>(), [2, 3, 5]);
    for this in due {
        assert_eq!(rest.verdict(), None);
        rest.ended(this, 0, None, Mono(1));
    }
    assert_eq!(rest.verdict(), Some(&EndResult::Succeeded));
    assert_eq!(rest.completed().to_string(), "0-5");
    let nothing_left = Pods::new(&job(spec), 1, 0, &"0-5".parse().unwrap(), Millis(100));
    assert_eq!(nothing_left.verdict(), Some(&EndResult::Succeeded));
    // A placement with more entries than remaining completions starts no more pods.
    let mut last = Pods::new(&job(spec), 3, 0, &"0-4".parse().unwrap(), Millis(100));
    assert_eq!(last.due(Mono(0)).len(), 1);
}
