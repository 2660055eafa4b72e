# shellcheck shell=bash disable=SC2154
# Steps of tests/kubernetes/run about other kinds of jobs than Job. operator.py acts as their operators.

# Kinds, with the number of pods in each pod set of tests/kubernetes/kinds/KIND.yaml.
readonly JOBS_THAT_END=(
    "jobset driver,workers,workers,workers,workers"
    "pytorchjob master,worker,worker"
    "mpijob launcher,worker,worker"
    "rayjob gpus,gpus,head,submitter"
    "trainjob node,node,node"
    "pod main"
    "podgroup role-1,role-2,role-2"
)
readonly JOBS_THAT_STAY=(
    "raycluster gpus,gpus,head"
    "leaderworkerset leader,leader,workers,workers"
)

# Creates a job whose pods run until `end_pods_of`.
create_kind() { sed -e "s/: NAME\b/: $2/" "$HERE/kinds/$1.yaml" | meridian create -f - >/dev/null; }
end_pods_of() { kube "$1" annotate pods -l "meridian.dev/uid=$2" test.meridian.dev/seconds=0 >/dev/null; }
field_of() { meridian get "$1" "$2" -o json | jq -r "$3"; }
# The pod sets of a job's running pods in a region.
running_sets() {
    kube "$1" get pods -A -l "meridian.dev/uid=$2" -o json |
        jq -r '[.items[] | select(.status.phase == "Running") | .metadata.labels["meridian.dev/pod-set"]] | sort | join(",")'
}
sets_are() { [ "$(running_sets "$1" "$2")" = "$3" ]; }
counts() { [ "$(field_of "$1" "$2" .status.meridian.runningPods)" = "$3" ]; }
state_is() { [ "$(field_of "$1" "$2" .status.meridian.state)" = "$3" ]; }
# A group of pods has no object except its pods.
lacks_object() {
    if [ "$2" = podgroup ]; then
        [ -z "$(kube "$1" get pods -A -l "meridian.dev/pod-group=$3" -o name)" ]
    else
        [ -z "$(kube "$1" get "$2" "$3" --ignore-not-found -o name)" ]
    fi
}

# A cluster that gets the kinds while its agent runs.
step_kinds() {
    start_fleet
    local with=europe-west4
    create_kind jobset set
    await 60 says set 'has no JobSet of .jobset.x-k8s.io/v1alpha2.' || { why set; fail 'a missing CRD is not named'; }
    create beside
    all_running beside
    remove beside
    pass 'clusters without the CRD say so, and run Jobs'
    meridian delete jobset set >/dev/null
    define_kinds "$with"
    python3 "$HERE/operator.py" "$kubectl" "$kubeconfig" "$with" >>"$work/$with-operator.log" 2>&1 &
    programs+=($!)
    run_kinds "$with"
    group_fails "$with"
    group_needs_all_pods
}

# Number of kinds that are tried at the same time: the cluster has room for their gangs.
readonly LANES=3

# Tries all kinds, LANES at a time. A failure ends its lane, and at the end the step.
run_kinds() {
    local with="$1" lane lanes=() failed=0 entry kind sets number
    for ((lane = 0; lane < LANES; lane++)); do
        (
            trap - EXIT ERR
            number=0
            for entry in "${JOBS_THAT_END[@]}" "${JOBS_THAT_STAY[@]}"; do
                number=$((number + 1))
                [ $((number % LANES)) -eq "$lane" ] || continue
                read -r kind sets <<<"$entry"
                if [ "$number" -le "${#JOBS_THAT_END[@]}" ]; then job_ends "$with" "$kind" "$sets"; fi
                job_stops "$with" "$kind" "$sets"
            done
        ) &
        lanes+=($!)
    done
    for lane in "${lanes[@]}"; do wait "$lane" || failed=1; done
    [ "$failed" -eq 0 ] || fail 'a kind of jobs fails, as said above'
    passed=$((passed + 2 * ${#JOBS_THAT_END[@]} + ${#JOBS_THAT_STAY[@]}))
}

only_pod_is() { [ "$(kube "$1" get pods -l "meridian.dev/pod-group=$2" -o name)" = "pod/$3" ]; }
# A pod of a group that fails ends the others. The group's name and its pods' names can be used again.
group_fails() {
    local with="$1" name=group-fails uid round
    for round in 1 2; do
        sed -e "s/: NAME\b/: $name/" -e '/# exit-code/ { s/#.*/test.meridian.dev\/exit-code: "3"/p; s/exit-code: "3"/seconds: "10"/ }' \
            "$HERE/kinds/podgroup.yaml" | meridian create -f - >/dev/null
        uid="$(field_of podgroup "$name" .metadata.uid)"
        await 180 sets_are "$with" "$uid" role-1,role-2,role-2 || kind_fails "$with" podgroup "$name" "does not run in round $round"
        await 90 state_is podgroup "$name" Failed || kind_fails "$with" podgroup "$name" 'does not fail'
        [[ "$(meridian get podgroup "$name" -o json)" == *"pod \`$name-worker-1\` of the group failed"* ]] || kind_fails "$with" podgroup "$name" 'does not say which pod failed'
        await 60 sets_are "$with" "$uid" '' || kind_fails "$with" podgroup "$name" 'keeps pods after its failure'
        await 60 only_pod_is "$with" "$name" "$name-worker-1" || kind_fails "$with" podgroup "$name" 'keeps not only the pod that failed, for its logs'
        # The next round begins while that pod is still there.
        meridian delete podgroup "$name" >/dev/null
    done
    pass 'a failed pod fails its group and ends the others, and the group can be created again'
}

group_needs_all_pods() {
    local said
    said="$(sed -e 's/: NAME\b/: part/' "$HERE/kinds/podgroup.yaml" | head -n 22 | meridian create -f - 2>&1)" && fail 'the manager accepts a part of a group'
    [[ "$said" == *'1 of 3 pods of group `part` are here'* ]] || fail "a part of a group is refused with: $said"
    pass 'a part of a group is refused, and the message names what is missing'
}

# Runs a job, checks the manager's counts of its pods, and waits until its end reaches the manager.
job_ends() {
    local with="$1" kind="$2" sets="$3" name="$2-ends" uid pods
    create_kind "$kind" "$name"
    uid="$(field_of "$kind" "$name" .metadata.uid)"
    await 180 sets_are "$with" "$uid" "$sets" ||
        kind_fails "$with" "$kind" "$name" "runs $(running_sets "$with" "$uid"), and not $sets"
    pods="$(tr ',' '\n' <<<"$sets" | wc -l)"
    await 30 counts "$kind" "$name" "$pods" || kind_fails "$with" "$kind" "$name" "has not $pods running pods at the manager"
    end_pods_of "$with" "$uid"
    await 90 state_is "$kind" "$name" Finished || kind_fails "$with" "$kind" "$name" 'does not finish'
    await 60 sets_are "$with" "$uid" '' || kind_fails "$with" "$kind" "$name" 'keeps pods'
    meridian delete "$kind" "$name" >/dev/null
    pass "a $kind runs whole ($sets), and its end reaches the manager"
}

# Stops a running job, and runs it again.
job_stops() {
    local with="$1" kind="$2" sets="$3" name="$2-held" uid
    create_kind "$kind" "$name"
    uid="$(field_of "$kind" "$name" .metadata.uid)"
    await 180 sets_are "$with" "$uid" "$sets" || kind_fails "$with" "$kind" "$name" "runs $(running_sets "$with" "$uid"), and not $sets"
    meridian stop "$kind" "$name" >/dev/null
    await 60 sets_are "$with" "$uid" '' || kind_fails "$with" "$kind" "$name" 'keeps pods after a stop'
    meridian resume "$kind" "$name" >/dev/null
    await 60 sets_are "$with" "$uid" "$sets" || kind_fails "$with" "$kind" "$name" 'does not run again'
    meridian delete "$kind" "$name" >/dev/null
    await 60 sets_are "$with" "$uid" '' || kind_fails "$with" "$kind" "$name" 'keeps pods after its deletion'
    await 30 lacks_object "$with" "$kind" "$name" || kind_fails "$with" "$kind" "$name" 'leaves its object behind'
    pass "a $kind is stopped, runs again, and is deleted"
}

kind_fails() {
    why "$3" >&2 || true
    kube "$1" get "$2" "$3" -o yaml >&2 || true
    kube "$1" get pods -A >&2 || true
    tail -n 20 "$work/$1-operator.log" >&2
    fail "the $2 $4"
}

# Runs the real guard with the lease that an agent writes into a pod. The test acts as the kubelet.
step_guards() {
    start_fleet
    local region=europe-west4 guard="${MERIDIAN_POD_GUARD_BIN:-$(dirname "$MERIDIAN_BIN")/meridian-pod-guard}" pid pod kubelet code=0
    [ -x "$guard" ] || fail "$guard is missing: build it with \`cargo build --release --bin meridian-pod-guard\`"
    pid="$(agent_of "$region")"
    kill "$pid"
    { wait "$pid"; } 2>/dev/null || true
    MERIDIAN_AGENT_POD_GUARD_IMAGE=registry.example/agent start_agent "$region"
    await 60 connected "$region" || fail 'the agent does not come back'
    job_manifest guarded pods=1 |
        sed "s|queue-name: main|&\\n    meridian.dev/region: $region|; s|image: registry.example/none|&\\n        command: [train]|" |
        meridian create -f - >/dev/null
    all_running guarded 1
    pod="$(kube "$region" get pods -l batch.kubernetes.io/job-name=guarded -o 'jsonpath={.items[0].metadata.name}')"
    [ "$(kube "$region" get pod "$pod" -o 'jsonpath={.spec.containers[0].command}')" = '["/meridian-guard/meridian-pod-guard","run","--","train"]' ] ||
        fail 'the container is not started by a guard'
    write_lease "$region" "$pod"
    ( while :; do write_lease "$region" "$pod"; sleep 1; done ) &
    kubelet=$!
    programs+=("$kubelet")
    "$guard" run --lease "$work/lease" -- sleep 600 2>"$work/guard.log" &
    pid=$!
    programs+=("$pid")
    sleep $((TERM_SECONDS + TERM_SECONDS / 2))
    kill -0 "$pid" 2>/dev/null || { cat "$work/guard.log" >&2; fail 'a guard whose lease is renewed ended'; }
    pass 'the lease that the agent renews keeps a guarded command for longer than its term'
    kill "$kubelet"
    await $((TERM_SECONDS + 5)) ended "$pid" || fail 'a guard that sees no renewal does not end'
    wait "$pid" || code=$?
    [ "$code" -eq 124 ] || fail "the guard ends with $code"
    [ "$(running_pods "$region" guarded)" -eq 1 ] || fail 'the agent ended the pod too'
    pass 'a guard that is cut off from the agent ends its command by itself'
    remove guarded
    pid="$(agent_of "$region")"
    kill "$pid"
    { wait "$pid"; } 2>/dev/null || true
    start_agent "$region"
    await 60 connected "$region" || fail 'the agent does not come back'
}
write_lease() {
    kube "$1" get pod "$2" -o 'jsonpath={.metadata.annotations.meridian\.dev/lease}' >"$work/lease.new" && mv "$work/lease.new" "$work/lease"
}
ended() { ! kill -0 "$1" 2>/dev/null; }
