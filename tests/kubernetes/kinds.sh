# shellcheck shell=bash disable=SC2154
# Steps of tests/kubernetes/run about other kinds of jobs than Job.

create_jobset() {
    sed -e "s/: NAME$/: $1/" -e "s/# seconds/test.meridian.dev\/seconds: \"$2\"/" "$HERE/jobset.yaml" | meridian create -f - >/dev/null
}
jobset_says() { meridian why "$1" 2>&1 | tr -s ' \n' ' ' | grep -q -- "$2"; }
jobset_pods() {
    kube "$1" get pods -A -l "jobset.sigs.k8s.io/jobset-name=$2" -o json |
        jq '[.items[] | select(.status.phase == "Running")] | length'
}
jobset_runs() { [ "$(jobset_pods "$1" "$2")" -eq 5 ]; }
jobset_gone() { [ "$(jobset_pods "$1" "$2")" -eq 0 ]; }
jobset_has() { meridian get jobsets "$1" -o json | jq -e --arg type "$2" '.status.conditions[]? | select(.status == "True" and .type == $type)'; }

# A cluster that gets the kind while its agent runs.
step_kinds() {
    start_fleet
    local with=europe-west4 placed
    create_jobset set 20
    await 60 jobset_says set 'has no JobSet of .jobset.x-k8s.io/v1alpha2.' || { why set; fail 'a missing CRD is not named'; }
    create beside seconds=5
    all_running beside
    pass 'clusters without the CRD say so, and run Jobs'
    kube "$with" apply -f "$HERE/jobset-crd.yaml" >/dev/null
    python3 "$HERE/operator.py" "$kubectl" "$kubeconfig" "$with" >>"$work/$with-operator.log" 2>&1 &
    programs+=($!)
    await 180 jobset_runs "$with" set || { why set; fail 'the JobSet does not run whole'; }
    placed="$(kube "$with" get pods -l jobset.sigs.k8s.io/jobset-name=set -o json |
        jq -r '[.items[] | .metadata.labels["meridian.dev/pod-set"]] | sort | join(",")')"
    [ "$placed" = driver,workers,workers,workers,workers ] || fail "the pods are of other sets: $placed"
    [ "$(meridian get jobsets set -o json | jq .status.meridian.runningPods)" = 5 ] || fail 'the manager does not count 5 running pods'
    pass 'a JobSet of two pod sets runs whole in the cluster that got the CRD'
    await 90 jobset_has set Completed || { why set; fail 'the JobSet does not complete'; }
    pass 'its completion reaches the manager'
    create_jobset held 600
    await 120 jobset_runs "$with" held || { why held; fail 'the second JobSet does not run'; }
    meridian stop jobset held >/dev/null
    await 60 jobset_gone "$with" held || fail 'pods of a stopped JobSet stay'
    meridian delete jobset held >/dev/null
    pass "a stopped JobSet's pods end"
}
