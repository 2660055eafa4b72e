# shellcheck shell=bash disable=SC2154
# Steps of tests/kubernetes/run about what a hold depends on in its cluster.

readonly AGENT_ROLE=meridian-system-meridian-agent

# A job of two pods that read a Secret, and a ConfigMap that may be missing.
create_reader() {
    job_manifest "$1" pods=2 |
        sed "s/^      - name: main$/      - name: main\n        envFrom:\n        - secretRef: {name: $2}\n        - configMapRef: {name: nowhere, optional: true}/" |
        meridian create -f - >/dev/null
}
jobs_named() { kube "$1" get jobs -A -o name | grep -c "/$2$" || true; }
log_of_agent_says() { grep -q -- "$2" "$work/$1-agent.log"; }

step_references() {
    start_fleet
    local region with=europe-west4 without=us-east4
    create_reader reader hf-token
    await 60 says reader 'namespace .default. has no Secret .hf-token.' || { why reader; fail 'a missing Secret is not named'; }
    for region in "${REGIONS[@]}"; do
        [ "$(jobs_named "$region" reader)" -eq 0 ] || fail "$region has a job whose Secret is missing there"
    done
    says reader nowhere && fail 'an optional ConfigMap is called missing'
    pass 'a Secret that a job names and no cluster has is named, nothing starts, and optional ones are not asked for'
    kube "$with" create secret generic hf-token --from-literal=token=never-in-a-log >/dev/null
    await 120 runs_whole reader 2 || { why reader; fail 'the job does not start in the region with its Secret'; }
    [ "$(regions_of reader)" = "$with " ] || fail "the job runs without its Secret: $(regions_of reader)"
    if grep -rq never-in-a-log "$work"/*-agent.log "$work/manager.log" "$work/agents" "$work/manager"; then fail "a Secret's value was kept or logged"; fi
    pass "the job runs in the cluster that got the Secret, whose value is in no file"
    remove reader
    kube "$with" delete secret hf-token >/dev/null
    # An agent that may not read Secrets.
    kube "$without" get clusterrole "$AGENT_ROLE" -o json | jq 'del(.rules[] | select(.resources == ["secrets"]))' |
        kube "$without" apply -f - >/dev/null 2>&1
    create_reader blind other-token
    await 120 runs_whole blind 2 || { why blind; fail 'a job does not start where its Secret may not be read'; }
    [ "$(regions_of blind)" = "$without " ] || fail "the job runs without its Secret: $(regions_of blind)"
    [ "$(grep -c 'may not `get` `secrets`' "$work/$without-agent.log")" -eq 1 ] || fail 'the agent does not log exactly once which objects it may not read'
    pass 'objects that an agent may not read are not checked, and its log says so once with verb and resource'
    remove blind
    kube "$without" apply -f "$work/rbac.yaml" >/dev/null
}

# Starts the agent of a region again, with other settings.
with_settings() {
    local region="$1"
    kill "$(agent_of "$region")"
    { wait "$(agent_of "$region")"; } 2>/dev/null || true
    start_agent "$@"
    await 60 connected "$region" || fail "the agent of $region does not come back"
}
# Applies the objects that the agent's chart renders with these values.
apply_chart() {
    local context="$1" template="$2"
    shift 2
    "$(tests/ground/build --path helm)" template meridian-agent manifests/helm/meridian-agent --namespace meridian-system \
        --values "$HERE/agent-values.yaml" "$@" --show-only "templates/$template.yaml" | kube "$context" apply -f - >/dev/null
}
# A job that may run in one region only.
create_in() {
    local region="$1"
    shift
    job_manifest "$@" | sed "s/^  labels:$/  annotations: {meridian.dev\/region: $region}\n  labels:/" | meridian create -f - >/dev/null
}
held_by() { kube "$1" get "$2" -A -l meridian.dev/hold -o name | wc -l; }
holds_are() { [ "$(held_by "$1" "$2")" -eq "$3" ]; }
hold_method() { meridian get clusters "$1" -o json | jq -r .status.holds; }

step_placeholders() {
    start_fleet
    local region=europe-west4 node scheduler
    scheduler="$(cat "$work/$region.scheduler")"
    apply_chart "$region" priorityclass --set kubernetes.hold.method=placeholders
    with_settings "$region" --hold placeholders --placeholder-image registry.example/pause \
        --placeholder-priority-class meridian-system-meridian-agent-placeholder
    await 10 eval "[[ \"\$(hold_method $region)\" == placeholders:* ]]" || fail "the method is not shown: $(hold_method "$region")"
    kill -STOP "$scheduler"
    create_in "$region" shared
    await 60 holds_are "$region" pods 3 || { why shared; fail 'no placeholders are made'; }
    await 30 says shared '0 of 3 placeholder pods are scheduled' || { why shared; fail 'the reason does not say what the hold waits for'; }
    [ "$(jobs_named "$region" shared)" -eq 0 ] || fail 'a gang starts before its placeholders are scheduled'
    pass 'a gang is not held before its placeholders have their nodes'
    kill -CONT "$scheduler"
    all_running shared
    await 30 holds_are "$region" pods 0 || fail 'placeholders stay beside the pods of their gang'
    pass "the gang's pods take the places of their placeholders"
    remove shared
    # Pods of other workloads are bound while the placeholders wait. The scheduler is restarted, not frozen: after its start it reads
    # all pods before it schedules one, but after a pause it might schedule the placeholders first.
    kill -KILL "$scheduler"
    { wait "$scheduler"; } 2>/dev/null || true
    create_in "$region" robbed
    await 60 holds_are "$region" pods 3 || { why robbed; fail 'no placeholders are made'; }
    for node in 1 2; do
        sed -e "s/PODS/1/" -e "s/: others$/: robber-$node/" -e "s/app: others/app: robber-$node/" \
            -e "s/gpu: 1}/gpu: 4}/" -e "s/^      containers:/      nodeName: $region-node-$node\n      containers:/" "$HERE/others.yaml" |
            kube "$region" apply -f - >/dev/null
    done
    await 30 free_is "$region" 0 || fail 'the use of other pods is not reported'
    start_scheduler "$region"
    scheduler="$(cat "$work/$region.scheduler")"
    await 90 says robbed 'placeholder pods are scheduled: Unschedulable' || { why robbed; fail 'the reason does not say that other pods took the room'; }
    await 30 holds_are "$region" pods 0 || fail 'placeholders of a lost hold stay'
    pass 'a hold is refused if other pods took the room meanwhile, with the reason of the scheduler'
    kube "$region" delete deployment robber-1 robber-2 --wait=false >/dev/null
    await 120 runs_whole robbed 3 || { why robbed; fail 'the gang does not start when the room is back'; }
    remove robbed
    # Placeholders of an agent that was killed.
    kill -STOP "$scheduler"
    create_in "$region" orphan
    await 60 holds_are "$region" pods 3 || { why orphan; fail 'no placeholders are made'; }
    kill -KILL "$(agent_of "$region")"
    { wait "$(agent_of "$region")"; } 2>/dev/null || true
    meridian delete job orphan >/dev/null
    start_agent "$region"
    await 60 holds_are "$region" pods 0 || fail 'placeholders of an earlier agent stay'
    kill -CONT "$scheduler"
    await 60 connected "$region" || fail 'the agent does not come back'
    pass 'placeholders of an earlier agent are found by their label and deleted'
}

# kueue.py acts as Kueue.
step_own_kueue() {
    start_fleet
    local region=us-east4 word="$work/kueue-word"
    kube "$region" apply -f "$HERE/kueue-crd.yaml" >/dev/null
    await 30 kube "$region" get workloads.kueue.x-k8s.io || fail "$region does not serve Workloads"
    apply_chart "$region" rbac --set kubernetes.provisioningRequests=false,kubernetes.hold.method=kueue,kubernetes.hold.localQueue=gangs
    echo wait >"$word"
    python3 "$HERE/kueue.py" "$kubectl" "$kubeconfig" "$region" "$word" >>"$work/$region-kueue.log" 2>&1 &
    programs+=($!)
    without_provider=yes with_settings "$region" --hold kueue --local-queue gangs
    await 10 eval "[[ \"\$(hold_method $region)\" == kueue:* ]]" || fail "the method is not shown: $(hold_method "$region")"
    create_in "$region" queued
    await 60 says queued 'insufficient unused quota for nvidia.com/gpu' || { why queued; fail "Kueue's own reason is not shown"; }
    [ "$(jobs_named "$region" queued)" -eq 0 ] || fail 'a gang starts before Kueue admits it'
    [ "$(kube "$region" get workloads.kueue.x-k8s.io -A -o 'jsonpath={.items[*].spec.queueName}')" = gangs ] || fail 'the Workload is in another queue'
    pass 'a gang waits in the LocalQueue, with the reason of Kueue'
    echo admit >"$word"
    all_running queued
    holds_are "$region" workloads.kueue.x-k8s.io 1 || fail 'the Workload of a running gang is gone'
    pass 'a gang that Kueue admitted runs whole, and keeps its quota'
    kill -KILL "$(agent_of "$region")"
    { wait "$(agent_of "$region")"; } 2>/dev/null || true
    without_provider=yes start_agent "$region" --hold kueue --local-queue gangs
    await 60 connected "$region" || fail 'the agent does not come back'
    sleep 3
    holds_are "$region" workloads.kueue.x-k8s.io 1 && runs_whole queued 3 || fail 'a restarted agent gave the quota of a run back'
    pass 'a restarted agent keeps the Workload of its run'
    echo evict >"$word"
    await 60 says queued 'Kueue evicted the gang of queue .gangs.: Preempted' || { why queued; fail 'the reason does not name the eviction'; }
    await 60 gone queued || fail 'the pods of an evicted gang stay'
    echo admit >"$word"
    all_running queued
    pass 'a gang that Kueue evicts ends, says why, and takes its turn again'
    remove queued
    await 30 holds_are "$region" workloads.kueue.x-k8s.io 0 || fail 'the Workload outlives its gang'
    pass 'with the job its Workload goes'
    kube "$region" apply -f "$work/rbac.yaml" >/dev/null
    with_settings "$region"
}
