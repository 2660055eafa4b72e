# shellcheck shell=bash disable=SC2154
# Steps of tests/kubernetes/run about a worker cluster: crowds of pods, an API server that refuses, agents that
# are frozen and killed, and changes while a gang runs.

client() { local context="$1"; shift; python3 "$HERE/client.py" "$kubectl" "$kubeconfig" "$context" "$@"; }

# Kills an agent at once.
kill_agent() {
    kill -KILL "$1"
    { wait "$1"; } 2>/dev/null || true
    await 5 is_over "$1"
}
# Whether a process has ended; it may not have been waited for.
is_over() { ! grep -q '^State:[[:space:]]*[^Z]' "/proc/$1/status"; }
resident_kib() { awk '$1 == "VmRSS:" {print $2}' "/proc/$1/status"; }
# The containers of a job end now.
end_pods() { kube "$1" annotate pods -l "batch.kubernetes.io/job-name=$2" test.meridian.dev/seconds=0 >/dev/null; }
amount() { meridian get clusters "$1" -o json | jq ".status.resources.$2.$3"; }
amount_is() { [ "$(amount "$1" "$2" "$3")" = "$4" ]; }
job_is() { [ "$(meridian get jobs "$1" -o json | jq -r .status.meridian.state)" = "$2" ]; }

# Notes every change of a cluster's pods from now on, for `ran_once`.
note_pods() {
    client "$1" watch /api/v1/namespaces/default/pods >"$work/$1.pods" 2>/dev/null &
    programs+=($!)
    await 30 grep -q WATCHING "$work/$1.pods" || fail "the pods of $1 can't be watched"
}
# Fails unless $3 pods of job $2 ever ran in cluster $1: a gang that started twice has more.
ran_once() {
    local ran
    ran="$(awk -v name="^$2-[0-9]" '$4 == "Running" && $2 ~ name {print $3}' "$work/$1.pods" | sort -u | wc -l)"
    [ "$ran" -eq "$3" ] || { grep " $2-" "$work/$1.pods"; why "$2"; fail "$ran pods of job $2 ran in $1, not $3"; }
}

step_crowd() {
    start_fleet
    local region="${REGIONS[2]}" cpu crowd=5000 rss logged
    cpu="$(amount "$region" cpu free)"
    kube "$region" apply -f - >/dev/null <<NODE
apiVersion: v1
kind: Node
metadata: {name: crowd, labels: {kubernetes.io/hostname: crowd, topology.kubernetes.io/region: $region}}
status:
  capacity: {cpu: "$((crowd + 10))", memory: 1Ti, pods: "$((crowd + 10))"}
  allocatable: {cpu: "$((crowd + 10))", memory: 1Ti, pods: "$((crowd + 10))"}
NODE
    await 30 amount_is "$region" cpu free "$((cpu + (crowd + 10) * 1000))" || fail 'a new node is not reported'
    client "$region" crowd "$crowd" crowd
    await 30 amount_is "$region" cpu free "$((cpu + 10 * 1000))" || fail "the use of $crowd pods of other workloads is not reported: $(amount "$region" cpu free)"
    pass "the use of $crowd pods of other workloads is reported exactly"
    # A pod that gets the mark of an agent changes to the other watch, and is still a pod of others. An ended pod leaves both.
    kube "$region" label pod crowd-0 crowd-1 app.kubernetes.io/managed-by=meridian >/dev/null
    kube "$region" patch pod crowd-2 --subresource status --type merge -p '{"status": {"phase": "Succeeded"}}' >/dev/null
    await 30 amount_is "$region" cpu free "$((cpu + 11 * 1000))" || fail "an ended pod still counts: $(amount "$region" cpu free)"
    kube "$region" label pod crowd-1 app.kubernetes.io/managed-by- >/dev/null
    sleep 2
    amount_is "$region" cpu free "$((cpu + 11 * 1000))" || fail "a pod that changed its label counts wrongly: $(amount "$region" cpu free)"
    pass 'pods of others count once, whatever their labels, until they end'
    # The first list of a new agent needs the most memory.
    kill_agent "$(agent_of "$region")"
    logged="$(wc -l <"$work/$region-agent.log")"
    start_agent "$region"
    await 60 connected "$region" || fail 'the agent does not come back'
    if tail -n "+$((logged + 1))" "$work/$region-agent.log" | has 'in pages from now on'; then fail 'lists are not streamed'; fi
    await 30 amount_is "$region" cpu free "$((cpu + 11 * 1000))" || fail "a restarted agent counts pods wrongly: $(amount "$region" cpu free)"
    create guest region="$region"
    all_running guest
    amount_is "$region" cpu capacity "$((16000 + (crowd + 10) * 1000))" || fail 'a restarted agent reports other nodes'
    rss="$(resident_kib "$(agent_of "$region")")"
    [ "$rss" -lt 102400 ] || fail "an agent with $crowd pods of other workloads uses $rss KiB"
    pass "an agent that starts beside $crowd pods runs a gang, with $((rss / 1024)) MiB"
    remove guest
    client "$region" delete "$crowd" '/api/v1/namespaces/default/pods/crowd-NUMBER?gracePeriodSeconds=0'
    await 30 amount_is "$region" cpu free "$((cpu + (crowd + 10) * 1000))" || fail 'room of deleted pods does not come back'
    kube "$region" delete node crowd >/dev/null
    await 30 amount_is "$region" cpu free "$cpu" || fail 'a deleted node is still reported'
    pass 'their capacity is free after their end'
}

# Puts a proxy between an agent and its API server, which answers with a status while `$work/REGION.answer` has one.
proxy_api_server() {
    local region="$1" port api
    read -r _ api _ <"$work/$region.pid"
    port="$(free_port)"
    python3 "$HERE/api_proxy.py" "$port" "$api" "$work/pki/$region/apiserver.crt" "$work/pki/$region/apiserver.key" \
        "$work/$region.answer" 2>>"$work/$region-proxy.log" &
    programs+=($!)
    echo 0 >"$work/$region.answer.count"
    await 10 bash -c "exec 3<>/dev/tcp/127.0.0.1/$port" || fail "the proxy of $region does not start"
    cp -p "$work/$region.agent-kubeconfig" "$work/$region.direct"
    sed -i "s|server: .*|server: https://127.0.0.1:$port|" "$work/$region.agent-kubeconfig"
    kill_agent "$(agent_of "$region")"
    start_agent "$region"
}
completed_in() { [ "$(kube "$1" get job "$2" -o 'jsonpath={.status.succeeded}')" = 1 ]; }
refused_more() { [ "$(cat "$work/$1.answer.count")" -ge "$2" ]; }

step_answers() {
    start_fleet
    local region statuses=(429 500 410) index uids=()
    for region in "${REGIONS[@]}"; do proxy_api_server "$region"; done
    for region in "${REGIONS[@]}"; do
        await 60 connected "$region" || { tail -n 20 "$work/$region-agent.log"; fail 'the agent does not connect through the proxy'; }
        note_pods "$region"
        create "steady-$region" region="$region"
        create "ending-$region" region="$region" pods=1
    done
    for index in 0 1 2; do
        region="${REGIONS[index]}"
        all_running "steady-$region"
        all_running "ending-$region" 1
        await 30 job_is "steady-$region" Running || fail 'a running gang is not shown as running'
        uids[index]="$(uids_in "$region" "steady-$region")"
    done
    for index in 0 1 2; do echo "${statuses[index]}" >"$work/${REGIONS[index]}.answer"; done
    for region in "${REGIONS[@]}"; do
        create "new-$region" region="$region" pods=2
        # The pod ends while its agent gets no answers from the API server.
        end_pods "$region" "ending-$region"
    done
    # All of this takes less than the 10 s after which an agent no longer trusts its Lease.
    for index in 0 1 2; do
        region="${REGIONS[index]}"
        await 8 completed_in "$region" "ending-$region" || fail 'the job does not complete in its cluster'
        await 8 job_is "new-$region" Granted || { why "new-$region"; fail 'the job is not granted to its cluster'; }
        await 8 refused_more "$region" 10 || fail "only $(cat "$work/$region.answer.count") requests got ${statuses[index]}"
        job_is "steady-$region" Running || fail "a status ${statuses[index]} ended a gang"
        rm "$work/$region.answer"
    done
    for index in 0 1 2; do
        region="${REGIONS[index]}"
        all_running "new-$region" 2
        await 60 has_condition "ending-$region" Complete || { why "ending-$region"; fail 'the end of a job is not reported after the API server failed'; }
        ! is_over "$(agent_of "$region")" 2>/dev/null || fail 'the agent ended'
        [ "$(uids_in "$region" "steady-$region")" = "${uids[index]}" ] || { why "steady-$region"; fail "a status ${statuses[index]} restarted a gang"; }
        ran_once "$region" "steady-$region" 3
        ran_once "$region" "new-$region" 2
        ran_once "$region" "ending-$region" 1
        pass "an API server that answers ${statuses[index]} ends nothing and starts nothing twice, and its agent goes on by itself"
    done
    # The outage is longer than a term: the agent renews its leases at the manager, so no gang starts elsewhere.
    region="${REGIONS[1]}"
    echo 500 >"$work/$region.answer"
    await 30 grep -q 'nothing is written to the cluster until it is' "$work/$region-agent.log" || fail 'an agent that can not renew its Lease does not say so'
    sleep "$((TERM_SECONDS + 5))"
    ! is_over "$(agent_of "$region")" || fail 'an agent ends because its API server is away'
    job_is "steady-$region" Running || { why "steady-$region"; fail 'a gang is lost although its agent renews its lease'; }
    rm "$work/$region.answer"
    meridian delete job "steady-$region" >/dev/null
    await 60 gone "steady-$region" || fail 'the agent does not act when its API server answers again'
    ran_once "$region" "steady-$region" 3
    pass 'an agent whose API server answers nothing else for longer than a term keeps its gangs, and goes on afterwards'
    for index in 0 1 2; do
        region="${REGIONS[index]}"
        mv "$work/$region.direct" "$work/$region.agent-kubeconfig"
        kill_agent "$(agent_of "$region")"
        start_agent "$region"
    done
    deny_suspension "${REGIONS[0]}"
    meridian delete job "steady-${REGIONS[0]}" >/dev/null
    await 40 gone "steady-${REGIONS[0]}" || fail 'the pods of a job that can not be suspended still run'
    kube "${REGIONS[0]}" delete validatingadmissionpolicy,validatingadmissionpolicybinding deny-suspension >/dev/null
    pass 'a stop ends the pods of a job although its cluster denies the suspension'
    meridian delete jobs "steady-${REGIONS[2]}" "${REGIONS[@]/#/new-}" "${REGIONS[@]/#/ending-}" >/dev/null
    for region in "${REGIONS[@]}"; do await 60 gone "steady-$region" || fail 'pods of a deleted job stay'; done
}

# An admission policy that denies the change by which jobs are suspended, until it is in force.
deny_suspension() {
    kube "$1" apply -f - >/dev/null <<'YAML'
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: deny-suspension}
spec:
  failurePolicy: Fail
  matchConstraints:
    resourceRules: [{apiGroups: [batch], apiVersions: [v1], operations: [UPDATE], resources: [jobs]}]
  validations: [{expression: 'object.spec.suspend == oldObject.spec.suspend', message: the test denies it}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: deny-suspension}
spec: {policyName: deny-suspension, validationActions: [Deny]}
YAML
    await 30 suspension_is_denied "$1" || fail 'the policy is not in force'
}
suspension_is_denied() {
    local answer
    answer="$(kube "$1" patch job "steady-$1" --dry-run=server --type merge -p '{"spec": {"suspend": true}}' 2>&1 || true)"
    has 'the test denies it' <<<"$answer"
}

# Two replicas: with the same identity, each with a store of its own.
step_replicas() {
    start_fleet
    local region="${REGIONS[0]}" first before
    proxy_api_server "$region"
    await 60 connected "$region" || fail 'the agent does not connect through the proxy'
    create frozen region="$region"
    all_running frozen
    mv "$work/$region.direct" "$work/$region.agent-kubeconfig"
    mkdir -p "$work/agents/$region-second"
    cp -p "$work/agents/$region/identity.json" "$work/agents/$region-second/"
    first="$(agent_of "$region")"
    kill -STOP "$first"
    replica=second start_agent "$region"
    await 40 grep -q 'the agent starts' "$work/$region-second-agent.log" || fail 'the second replica does not take over'
    pass 'the second replica takes the Lease of a frozen one'
    # The new ledger stops the old one's gang, and the manager starts it again when the old lease has lapsed.
    await $((2 * TERM_SECONDS)) attempts_are frozen 2 || { why frozen; fail 'the gang does not start again'; }
    all_running frozen
    before="$(job_and_pods "$region" frozen)"
    note_pods "$region"
    # The proxy keeps the old replica from reading the Lease, so it can't know yet that another one has it.
    echo 'hold /leases/' >"$work/$region.answer"
    kill -CONT "$first"
    await 10 refused_more "$region" 1 || fail 'the thawed replica does not renew its Lease'
    create between region="$region" pods=1
    all_running between 1
    rm "$work/$region.answer"
    await 30 is_over "$first" || fail 'a replica that lost its Lease does not end'
    { wait "$first"; } 2>/dev/null || true
    # By now the watches of the second replica have shown everything that the first one did.
    create after region="$region" pods=1
    all_running after 1
    [ "$(job_and_pods "$region" frozen)" = "$before" ] ||
        { printf '%s\n---\n' "$before"; job_and_pods "$region" frozen; fail 'the thawed replica changed the gang of the other one'; }
    ran_once "$region" frozen 3
    job_is frozen Running || { why frozen; fail 'the manager lost the gang of the second replica'; }
    pass 'a thawed replica starts, stops and deletes nothing, and ends'
    remove between
    remove after
    remove frozen
    # Later steps use the second replica as the agent.
    mv "$work/agents/$region" "$work/agents/$region-first"
    mv "$work/agents/$region-second" "$work/agents/$region"
    mv "$work/$region-second.agent" "$work/$region.agent"
}
attempts_are() { [ "$(meridian get jobs "$1" -o json | jq .status.meridian.attempts)" = "$2" ]; }
# Uid and generation of a job, and its pods: a start, a stop or a resize changes one of them.
job_and_pods() {
    kube "$1" get job "$2" -o 'jsonpath={.metadata.uid} {.metadata.generation}{"\n"}'
    kube "$1" get pods -l "batch.kubernetes.io/job-name=$2" -o 'jsonpath={range .items[*]}{.metadata.uid} {.status.phase}{"\n"}{end}' | sort
}

# Kills the agent again and again while its gangs start and end, so that a kill falls between any two writes.
step_kills() {
    start_fleet
    local region="${REGIONS[1]}" seed="${MERIDIAN_SEED:-$RANDOM}" number kills=0 names=() objects
    RANDOM="$seed"
    note_pods "$region"
    client "$region" watch /apis/batch/v1/namespaces/default/jobs >"$work/$region.jobs" 2>/dev/null &
    programs+=($!)
    await 30 grep -q WATCHING "$work/$region.jobs" || fail "the jobs of $region can't be watched"
    for number in {0..9}; do
        names+=("killed-$number")
        create "killed-$number" region="$region" pods=2 seconds=1
    done
    while [ "$kills" -lt 12 ]; do
        sleep "$((RANDOM % 2)).$(printf '%03d' "$((RANDOM % 1000))")"
        kill_agent "$(agent_of "$region")"
        start_agent "$region"
        kills=$((kills + 1))
    done
    for number in {0..9}; do
        await 60 has_condition "killed-$number" Complete || { why "killed-$number"; fail "a gang does not end after $kills kills (MERIDIAN_SEED=$seed)"; }
    done
    for number in {0..9}; do ran_once "$region" "killed-$number" 2; done
    objects="$(awk '$1 == "ADDED" && $2 ~ /^killed-/ {print $3}' "$work/$region.jobs" | sort -u | wc -l)"
    pass "10 gangs ran once each and ended while their agent was killed $kills times ($objects objects, MERIDIAN_SEED=$seed)"
    meridian delete jobs "${names[@]}" >/dev/null
}

# A queue of three GPUs, in which a job of higher priority preempts.
ranked_queue() {
    meridian apply -f - >/dev/null <<'QUEUE'
apiVersion: kueue.x-k8s.io/v1beta1
kind: ClusterQueue
metadata: {name: ranked}
spec:
  namespaceSelector: {}
  preemption: {withinClusterQueue: LowerPriority}
  resourceGroups:
  - coveredResources: [cpu, memory, nvidia.com/gpu]
    flavors:
    - name: t4
      resources:
      - {name: cpu, nominalQuota: "1000"}
      - {name: memory, nominalQuota: 1000Gi}
      - {name: nvidia.com/gpu, nominalQuota: "3"}
---
apiVersion: kueue.x-k8s.io/v1beta1
kind: LocalQueue
metadata: {name: ranked, namespace: default}
spec: {clusterQueue: ranked}
---
apiVersion: kueue.x-k8s.io/v1beta1
kind: WorkloadPriorityClass
metadata: {name: low}
value: 10
---
apiVersion: kueue.x-k8s.io/v1beta1
kind: WorkloadPriorityClass
metadata: {name: middle}
value: 100
---
apiVersion: kueue.x-k8s.io/v1beta1
kind: WorkloadPriorityClass
metadata: {name: high}
value: 1000
QUEUE
}
rank() { "$kubectl" --kubeconfig "$work/admin" label job "$1" --overwrite "kueue.x-k8s.io/priority-class=$2" >/dev/null; }

step_changes() {
    start_fleet
    local region="${REGIONS[0]}" uids pod
    ranked_queue
    job_manifest lower queue=ranked region="$region" | sed 's/queue-name: ranked/&\n    kueue.x-k8s.io\/priority-class: low/' | meridian create -f - >/dev/null
    all_running lower
    uids="$(uids_in "$region" lower)"
    rank lower high
    job_manifest upper queue=ranked region="$region" | sed 's/queue-name: ranked/&\n    kueue.x-k8s.io\/priority-class: middle/' | meridian create -f - >/dev/null
    await 30 says upper 'nvidia.com/gpu' || { why upper; fail 'the second job does not say what it waits for'; }
    [ "$(uids_in "$region" lower)" = "$uids" ] || { why lower; fail 'a gang whose priority was raised was preempted or restarted'; }
    rank lower low
    await 60 gone lower || { why upper; fail 'a gang whose priority was lowered is not preempted'; }
    all_running upper
    pass "a running gang's priority is changed in place, and decides whether it is preempted"
    remove upper
    all_running lower
    remove lower
    create moving region="$region" retries=3
    all_running moving
    pod="$(kube "$region" get pods -l batch.kubernetes.io/job-name=moving -o 'jsonpath={.items[0].metadata.name}')"
    client "$region" evict default "$pod"
    await 60 evicted "$region" "$pod" || { why moving; fail 'an evicted pod does not go'; }
    all_running moving
    attempts_are moving 1 || { why moving; fail 'an eviction ended the attempt'; }
    pass "an evicted pod is replaced within its gang's attempt"
    remove moving
    job_manifest brief region="$region" | sed 's/^spec:/&\n  ttlSecondsAfterFinished: 15/' | meridian create -f - >/dev/null
    all_running brief
    [ "$(kube "$region" get job brief -o 'jsonpath={.spec.ttlSecondsAfterFinished}')" = '' ] || fail 'the cluster may delete a job before its end was reported'
    end_pods "$region" brief
    await 30 has_condition brief Complete || { why brief; fail 'the job does not complete'; }
    await 30 eval '! meridian get jobs brief' || fail 'a job stays after ttlSecondsAfterFinished'
    await 30 eval "! kube $region get job brief" || fail 'the object of a job that is gone stays in its cluster'
    pass 'ttlSecondsAfterFinished counts at the manager, after the end was reported'
    printf 'apiVersion: v1\nkind: Namespace\nmetadata: {name: later}\n---\napiVersion: kueue.x-k8s.io/v1beta1\nkind: LocalQueue\nmetadata: {name: main, namespace: later}\nspec: {clusterQueue: main}\n' |
        meridian apply -f - >/dev/null
    create early namespace=later region="$region" pods=1
    await 60 eval "meridian why early -n later 2>&1 | tr -s ' \n' ' ' | has 'no namespace .later.'" ||
        { meridian why early -n later; fail 'a missing namespace is not named'; }
    kube "$region" create namespace later >/dev/null
    await 90 eval "[ \"\$(running_pods $region early)\" = 1 ]" || { meridian why early -n later; fail 'a job does not start when its namespace is there'; }
    meridian delete job early -n later >/dev/null
    pass 'a job starts once the namespace that it lacked is there'
}
evicted() { ! kube "$1" get pod "$2"; }
