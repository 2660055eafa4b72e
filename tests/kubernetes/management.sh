# A fourth control plane as the management cluster: users submit there with kubectl, and see the state of their jobs there.
# Sourced by `run`.

readonly MANAGEMENT=management

# Prepares the management cluster and the manager's account there. Run before the manager starts.
prepare_management() {
    kube "$MANAGEMENT" apply -f manifests/crds/kueue -f manifests/crds/meridian -f manifests/admission >/dev/null
    await 30 kube "$MANAGEMENT" get clusters.meridian.dev || fail 'the management cluster does not serve the definitions'
    local region
    for region in "${REGIONS[@]}"; do
        kube "$MANAGEMENT" apply -f - >/dev/null <<CLUSTER
apiVersion: meridian.dev/v1alpha1
kind: Cluster
metadata: {name: $region}
spec: {region: $region, jurisdiction: $(jurisdiction "$region")}
CLUSTER
    done
    start_controllers "$MANAGEMENT" "$HERE/stages.yaml"
    grant_manager_rights
}

# The service account and the rights of the manager's chart, and a kubeconfig with a token of it.
grant_manager_rights() {
    kube "$MANAGEMENT" create namespace meridian-system >/dev/null
    kube "$MANAGEMENT" create namespace kueue-system >/dev/null
    "$(tests/ground/build --path helm)" template meridian-manager manifests/helm/meridian-manager --namespace meridian-system \
        --set url=https://manager.example.com:7443,kubernetes.enabled=true,kubernetes.hostClusters=kueue-system \
        --show-only templates/rbac.yaml --show-only templates/admission.yaml >"$work/manager-rbac.yaml"
    kube "$MANAGEMENT" apply -f "$work/manager-rbac.yaml" >/dev/null
    kube "$MANAGEMENT" -n meridian-system create serviceaccount meridian-manager >/dev/null
    account_kubeconfig "$MANAGEMENT" meridian-manager >"$work/manager-kubeconfig"
    chmod 600 "$work/manager-kubeconfig"
}

front() { kube "$MANAGEMENT" "$@"; }

# Creates a job in the management cluster. Options as for `create`.
submit() {
    job_manifest "$@" | sed '/^spec:/a\  managedBy: kueue.x-k8s.io/multikueue' | front create -f - >/dev/null
}

job_field() { [ "$(front get job "$1" -o "jsonpath={$2}")" = "$3" ]; }
job_has() { front get job "$1" -o json | jq -e --arg type "$2" '.status.conditions[]? | select(.status == "True" and .type == $type)'; }
workload_of() { front get workloads -o json | jq -r --arg job "$1" '.items[] | select(.metadata.ownerReferences[0].name == $job) | .metadata.name'; }
event_says() { front get events -o json | jq -e --arg job "$1" --arg text "$2" '.items[] | select(.involvedObject.name == $job and (.message | contains($text)))'; }
runs_in_front() { await 90 runs_whole "$1" "${2:-3}" || { why "$1" >&2; front get job "$1" -o yaml >&2; tail -n 20 "$work/manager.log" >&2; fail "job $1 of the management cluster does not run"; }; }
uids_in() { kube "$1" get pods -l "batch.kubernetes.io/job-name=$2" -o 'jsonpath={.items[*].metadata.uid}'; }

step_management() {
    start_fleet
    local region
    sed 's/main$/front/' "$HERE/queues.yaml" | front apply -f - >/dev/null
    submit fronted queue=front
    runs_in_front fronted
    region="$(regions_of fronted)"; region="${region% }"
    await 30 job_field fronted .status.active 3 || fail 'the management cluster does not show the running pods'
    await 30 workload_field fronted .status.clusterName "$region" || fail 'the Workload does not name the cluster'
    [ "$(front get pods -o name | wc -l)" -eq 0 ] || fail 'pods run in the management cluster'
    pass "a job of the management cluster runs in $region, and its Workload names the cluster"
    await 30 event_says fronted "runs in cluster $region" || fail 'no event names the cluster'
    end_pods "$region" fronted
    await 60 job_has fronted Complete || { front get job fronted -o yaml; tail -n 20 "$work/manager.log"; fail 'the job does not complete in the management cluster'; }
    job_field fronted .status.succeeded 3 || fail 'the management cluster does not count 3 pods that succeeded'
    pass 'its completion is written there as the job controller would, with an event'
    front wait --for=condition=Complete job/fronted --timeout=5s >/dev/null || fail 'kubectl wait does not see the end'
    await 30 bash -c "[ \"\$('$kubectl' --kubeconfig '$kubeconfig' --context $MANAGEMENT get clusterqueue front -o 'jsonpath={.status.admittedWorkloads}')\" = 0 ]" ||
        { front get clusterqueue front -o yaml; fail 'the status of the queue is not written'; }
    pass 'queues have their status there'
    front -n meridian-system create serviceaccount migrator >/dev/null
    front create clusterrolebinding migrator --clusterrole cluster-admin --serviceaccount meridian-system:migrator >/dev/null
    account_kubeconfig "$MANAGEMENT" migrator >"$work/migrator"
    chmod 600 "$work/migrator"
    "$MERIDIAN_BIN" migrate check --kubeconfig "$work/migrator" -o json >"$work/migrate.json" ||
        { cat "$work/migrate.json"; fail 'an object of the management cluster does not carry over'; }
    jq -e '.objects[] | select(.kind == "ClusterQueue" and .name == "front") | .reasons[0].message | contains("no MultiKueue check")' \
        "$work/migrate.json" >/dev/null || { cat "$work/migrate.json"; fail 'the check does not say what changes for the queue'; }
    # Under other names: the manager already has these objects from the cluster, and only the cluster may change them.
    "$MERIDIAN_BIN" migrate plan --kubeconfig "$work/migrator" --queue front --manifests queue | sed 's/\bfront\b/moved/g; s/\bt4\b/moved/g' |
        meridian apply --dry-run=server -f - >/dev/null || fail 'the manager does not take what the plan copies'
    pass 'migrate reads the cluster, and the manager takes the manifests that it prints'
}

step_management_changes() {
    start_fleet
    front_queue
    local workload uids region
    submit lost queue=nowhere 2>"$work/warned"
    grep -q 'no local queue' "$work/warned" || fail "a missing queue is not warned of at creation: $(cat "$work/warned")"
    await 60 event_says lost 'no local queue' || { front get events; fail 'no event reports a refusal'; }
    front delete job lost >/dev/null
    pass 'what the manager refuses is an event of the job'
    submit moved queue=front
    runs_in_front moved
    if meridian delete job moved >/dev/null 2>"$work/refused"; then fail 'an object of the management cluster can be deleted at the manager'; fi
    grep -q 'management cluster' "$work/refused" || fail "the refusal does not say where: $(cat "$work/refused")"
    pass 'objects of the management cluster are changed there only'
    workload="$(workload_of moved)"
    front patch workload "$workload" --type=merge -p '{"spec":{"active":false}}' >/dev/null
    await 60 gone moved || fail 'a deactivated Workload goes on'
    front patch workload "$workload" --type=merge -p '{"spec":{"active":true}}' >/dev/null
    runs_in_front moved
    pass 'a Workload is deactivated and activated again by its spec.active'
    front patch job moved --subresource=status --type=merge -p '{"status":{"active":5}}' >/dev/null
    front patch workload "$workload" --subresource=status --type=merge -p '{"status":{"conditions":[]}}' >/dev/null
    await 60 job_field moved .status.active 3 || fail 'a status that was changed by hand stays'
    await 60 workload_has moved Admitted || { front get workload "$workload" -o yaml; fail 'the status of a Workload that was changed by hand stays'; }
    pass 'statuses of a job and its Workload that were changed by hand are repaired'
    region="$(regions_of moved)"; uids="$(uids_in "${region% }" moved)"
    front delete job moved >/dev/null
    submit moved queue=front
    await 60 replaced "${region% }" moved "$uids" || fail 'a job that was made again does not run'
    runs_in_front moved
    pass 'a job that was deleted and made again runs once, after the old one'
    front delete job moved >/dev/null
    await 60 gone moved || fail 'pods of a deleted job stay'
    pass 'the pods are deleted with their job'
    # If a Job's spec isn't suspended, the API server takes another startTime only with the end of a suspension.
    local spec began
    for spec in true false; do
        job_manifest again queue=front | sed -e '/^spec:/a\  managedBy: kueue.x-k8s.io/multikueue' -e "s/suspend: true/suspend: $spec/" |
            front create -f - >/dev/null
        runs_in_front again
        await 30 started_after again 2000 || { front get job again -o yaml; fail 'a running job has no start time'; }
        began="$(front get job again -o 'jsonpath={.status.startTime}')"
        workload="$(workload_of again)"
        front patch workload "$workload" --type=merge -p '{"spec":{"active":false}}' >/dev/null
        await 60 gone again || fail 'a deactivated Workload goes on'
        await 30 job_has again Suspended || { front get job again -o yaml; fail 'a job that was stopped is not shown as suspended'; }
        front patch workload "$workload" --type=merge -p '{"spec":{"active":true}}' >/dev/null
        runs_in_front again
        await 30 started_after again "$began" || { front get job again -o yaml; fail "a job with suspend: $spec keeps its first start time"; }
        job_has again Suspended >/dev/null && fail 'a job that runs again is shown as suspended'
        event_says again 'startTime' >/dev/null && { front get events; fail 'the API server refuses a start time'; }
        front delete job again >/dev/null
        await 60 gone again || fail 'pods of a deleted job stay'
    done
    pass 'each activation of a job shows its own start'
    edited_jobs
}
# Users change jobs in the management cluster: the queue of a waiting job, and the pod counts of a running one.
edited_jobs() {
    local uids region workload
    sed -e 's/main$/held/' -e 's/^  namespaceSelector/  stopPolicy: Hold\n&/' "$HERE/queues.yaml" | front apply -f - >/dev/null
    await 30 meridian get localqueue held || fail 'a second queue does not reach the manager'
    submit edited queue=held pods=2
    await 60 says edited 'cluster queue .held. is stopped' || { why edited; fail 'a job of a stopped queue does not wait for it'; }
    front label job edited kueue.x-k8s.io/queue-name=front --overwrite >/dev/null
    runs_in_front edited 2
    region="$(regions_of edited)"; region="${region% }"; uids="$(uids_in "$region" edited)"
    await 30 job_field edited .status.active 2 || fail 'the management cluster does not show the running pods'
    if front label job edited kueue.x-k8s.io/queue-name=held --overwrite >"$work/refused" 2>&1; then fail 'a running job can be moved to another queue'; fi
    grep -q 'while the job runs; set `spec.active: false`' "$work/refused" || fail "the refusal has no remedy: $(cat "$work/refused")"
    workload="$(workload_of edited)"
    front patch workload "$workload" --type=merge -p '{"spec":{"active":false}}' >/dev/null
    await 60 gone edited || fail 'a deactivated Workload goes on'
    await 30 job_has edited Suspended || { front get job edited -o yaml; fail 'a job that was stopped is not shown as suspended'; }
    front label job edited kueue.x-k8s.io/queue-name=held --overwrite >/dev/null || fail 'a job that was stopped keeps its queue'
    await 30 queue_is edited held || fail 'the other queue of a job that was stopped does not reach the manager'
    front patch workload "$workload" --type=merge -p '{"spec":{"active":true}}' >/dev/null
    await 60 says edited 'cluster queue .held. is stopped' || { why edited; fail 'a job that was stopped and moved does not wait in its other queue'; }
    front label job edited kueue.x-k8s.io/queue-name=front --overwrite >/dev/null
    runs_in_front edited 2
    region="$(regions_of edited)"; region="${region% }"; uids="$(uids_in "$region" edited)"
    front patch job edited --type=merge -p '{"spec":{"parallelism":1}}' >/dev/null
    await 90 replaced "$region" edited "$uids" || { why edited; fail 'a running gang keeps the former number of pods of its job'; }
    runs_in_front edited 1
    remove_front edited
    front delete localqueue held >/dev/null
    front delete clusterqueue held >/dev/null
    pass 'a waiting job moves to another queue, a running one does when it was stopped, and one whose parallelism changes is stopped and queued again, as Kueue does'
}
queue_is() { [ "$(meridian get jobs "$1" -o json | jq -r '.metadata.labels["kueue.x-k8s.io/queue-name"]')" = "$2" ]; }
started_after() { local at; at="$(front get job "$1" -o 'jsonpath={.status.startTime}')"; [[ "$at" > "$2" ]]; }
replaced() { local uid; for uid in $3; do ! kube "$1" get pods -A -o 'jsonpath={.items[*].metadata.uid}' | has "$uid" || return 1; done; }

step_management_faults() {
    start_fleet
    front_queue
    local region uids second
    submit steady queue=front
    runs_in_front steady
    region="$(regions_of steady)"; region="${region% }"
    uids="$(uids_in "$region" steady)"
    kill -KILL "$manager_pid"
    { wait "$manager_pid"; } 2>/dev/null || true
    submit later queue=front pods=2
    start_manager
    runs_in_front later 2
    [ "$(uids_in "$region" steady)" = "$uids" ] || fail 'a killed manager restarted a gang'
    pass 'a killed manager comes back to the same gangs, and takes jobs that were submitted meanwhile'
    front delete job later >/dev/null
    # The journal is lost; the state comes back from the cluster's objects and the agents.
    kill "$manager_pid"
    { wait "$manager_pid"; } 2>/dev/null || true
    rm "$work/manager/journal.redb"
    start_manager --init --recover
    await 60 meridian get clusters || fail 'the manager does not start with a new journal'
    for second in "${REGIONS[@]}"; do await 60 connected "$second" || fail "the agent of $second does not come back"; done
    meridian journal confirm --yes >/dev/null
    await 90 managed_runs steady "$region" || { why steady; meridian journal recovery; tail -n 30 "$work/manager.log"; fail 'a running job is not adopted after the journal was lost'; }
    [ "$(uids_in "$region" steady)" = "$uids" ] && runs_whole steady 3 || fail 'a lost journal started a second copy, or restarted the gang'
    pass 'with a lost journal the state comes back from objects and agents, and no gang starts twice'
    front delete job steady >/dev/null
    await 60 gone steady || fail 'the pods of an adopted job stay after its deletion'
    pass 'an adopted job ends with its object'
    second_installation
    kill -KILL "$manager_pid"
    { wait "$manager_pid"; } 2>/dev/null || true
    submit claimed queue=front pods=2
    # Longer than the Lease lasts: the first manager's claim must hold without the Lease.
    sleep 20
    grep -q 'acts for the management cluster' "$work/second.log" && fail 'a second manager takes over when the first one is away'
    second_meridian get jobs claimed >/dev/null 2>&1 && fail 'a second manager takes a job of the cluster'
    kill "$second_pid"
    { wait "$second_pid"; } 2>/dev/null || true
    start_manager
    runs_in_front claimed 2
    remove_front claimed
    pass 'a second manager serves its own API and takes nothing, even while the first one is away'
}
second_meridian() { "$MERIDIAN_BIN" --kubeconfig "$work/second/admin.kubeconfig" "$@"; }

# A second installation with its own data directory. Its first start is refused in every namespace. With a journal, as the
# chart makes it, it is left running in another namespace. Its process is in second_pid.
second_installation() {
    local second namespace=elsewhere port
    front create namespace "$namespace" >/dev/null
    front -n "$namespace" create serviceaccount meridian-manager >/dev/null
    "$(tests/ground/build --path helm)" template meridian-manager manifests/helm/meridian-manager --namespace "$namespace" \
        --set url=https://manager.example.com:7443,kubernetes.enabled=true --show-only templates/rbac.yaml | front apply -f - >/dev/null
    sed -e "s/namespace: meridian-system/namespace: $namespace/" \
        -e "s|token: .*|token: \"$(front -n "$namespace" create token meridian-manager --duration 2h)\"}}]|" \
        "$work/manager-kubeconfig" >"$work/$namespace-kubeconfig"
    chmod 600 "$work/$namespace-kubeconfig"
    for second in manager elsewhere; do
        if timeout 60 "$MERIDIAN_BIN" manager --init --listen "127.0.0.1:$(free_port)" --data-dir "$work/second" --kubernetes \
            --kubeconfig "$work/$second-kubeconfig" >"$work/second.log" 2>&1; then fail 'the first start of a second manager is not refused'; fi
        grep -q 'another manager acts for this management cluster: the one in namespace .meridian-system. ' "$work/second.log" &&
            grep -q 'kubectl annotate clusterrole meridian-management-cluster meridian.dev/manager-' "$work/second.log" ||
            { cat "$work/second.log"; fail 'the refusal names neither the first manager nor the remedy'; }
        [ ! -e "$work/second/journal.redb" ] || fail 'a refused first start made a journal'
    done
    pass 'a first start of a second manager is refused in the same namespace and in another one, and names the first one'
    port="$(free_port)"
    "$MERIDIAN_BIN" manager --init --listen "127.0.0.1:$port" --data-dir "$work/second" >"$work/second.log" 2>&1 &
    second_pid=$!
    programs+=("$second_pid")
    await 60 test -s "$work/second/ready" || { cat "$work/second.log"; fail 'a manager without a management cluster does not start'; }
    kill "$second_pid"
    { wait "$second_pid"; } 2>/dev/null || true
    "$MERIDIAN_BIN" manager --listen "127.0.0.1:$port" --data-dir "$work/second" --kubernetes \
        --kubeconfig "$work/$namespace-kubeconfig" >"$work/second.log" 2>&1 &
    second_pid=$!
    programs+=("$second_pid")
    await 60 second_meridian get clusters || { cat "$work/second.log"; fail 'a second manager does not serve its own API'; }
    curl -s --cacert "$work/second/ca.pem" "https://127.0.0.1:$port/readyz" >"$work/second.ready"
    grep -q 'another manager acts for this management cluster: the one in namespace .meridian-system. ' "$work/second.ready" ||
        { cat "$work/second.ready" "$work/second.log"; fail 'readyz does not say that another manager acts'; }
}

managed_runs() { [ "$(meridian get jobs "$1" -o json | jq -r '.status.meridian.state + " " + .status.meridian.cluster')" = "Running $2" ]; }

denying() {
    front apply -f - >/dev/null <<POLICY
apiVersion: meridian.dev/v1alpha1
kind: ResidencyPolicy
metadata: {name: closed}
spec:
  applies: {workloadSelector: {matchLabels: {secret: "yes"}}}
  deny: {regions: [$(IFS=,; echo "${REGIONS[*]}")]}
POLICY
}

# The API server asks the manager before it stores a job; without an answer nothing runs that a policy forbids.
step_admission() {
    start_fleet
    front_queue
    denying
    await 60 meridian get residencypolicy closed || fail 'a policy of the management cluster does not reach the manager'
    await 60 grep -q "API server asks before it stores" "$work/manager.log" || fail 'the webhook is not set up'
    secret_job() { job_manifest "$1" queue=front pods=1 | sed 's/^  labels:$/&\n    secret: "yes"/; /^spec:/a\  managedBy: kueue.x-k8s.io/multikueue'; }
    if secret_job forbidden | front create -f - >/dev/null 2>"$work/denied"; then fail 'a job that no cluster may run is stored'; fi
    grep -q 'no cluster of its queue may run this workload' "$work/denied" && grep -q 'residency policy `closed`' "$work/denied" ||
        fail "the refusal does not name the policy: $(cat "$work/denied")"
    pass 'a job that no cluster may run is refused by kubectl create, with the policy that forbids it'
    kill "$manager_pid"
    { wait "$manager_pid"; } 2>/dev/null || true
    secret_job unchecked | front create -f - >/dev/null || fail 'without a manager no job can be created'
    start_manager
    for region in "${REGIONS[@]}"; do await 60 connected "$region" || fail "the agent of $region does not come back"; done
    await 60 event_says unchecked 'no cluster of its queue may run this workload' || fail 'a job that was stored unchecked is not refused'
    [ -z "$(regions_of unchecked)" ] || fail 'a job that a policy forbids runs'
    front delete job unchecked >/dev/null
    front delete residencypolicy closed >/dev/null
    pass 'without the webhook nothing runs that a policy forbids, and an event says so'
}

# The claims of a token, unverified.
claims_of() { local payload; payload="$(cut -d. -f2 <<<"$1" | tr '_-' '/+')"; base64 -d <<<"$payload$(printf '%*s' "$(((4 - ${#payload} % 4) % 4))" '' | tr ' ' '=')"; }

# An agent that joins by the service account that its own API server gives it.
step_issuer() {
    start_fleet
    local region="${REGIONS[0]}" url="https://127.0.0.1:$manager_port" token="$work/issuer-token" agent
    kube "$region" create serviceaccount joiner >/dev/null
    kube "$region" get --raw /openid/v1/jwks >"$work/issuer-keys.json"
    kube "$region" create token joiner --audience https://elsewhere.example >"$token"
    cat >"$work/manager.yaml" <<SETTINGS
join-by-issuer:
- {cluster: issued, region: $region, jurisdiction: $(jurisdiction "$region"), audience: "$url", keys-file: "$work/issuer-keys.json",
   issuer: "$(claims_of "$(cat "$token")" | jq -r .iss)", subject: "system:serviceaccount:default:joiner"}
SETTINGS
    kill "$manager_pid"
    { wait "$manager_pid"; } 2>/dev/null || true
    start_manager
    printf 'cluster: issued\nregion: %s\njurisdiction: %s\nnodes:\n- {name: n1, cpu: 4, memory: 8Gi}\n' \
        "$region" "$(jurisdiction "$region")" >"$work/issued-fleet.yaml"
    "$MERIDIAN_BIN" agent run --runner simulated --fleet "$work/issued-fleet.yaml" --data-dir "$work/agents/issued" --manager "$url" \
        --join-token-file "$token" --manager-ca-file "$work/manager/ca.pem" >"$work/issued.log" 2>&1 &
    agent=$!
    programs+=("$agent")
    await 60 grep -q 'token is not accepted' "$work/issued.log" || { cat "$work/issued.log"; fail 'the agent does not say that its token for another audience is refused'; }
    pass 'a token that is meant for another audience is refused, and the agent says so'
    kube "$region" create token joiner --audience "$url" >"$token"
    await 60 connected issued || { cat "$work/issued.log"; fail 'an agent does not join by its service account'; }
    pass 'an agent joins by the service account that its own API server signs for'
    kill "$agent"
    { wait "$agent"; } 2>/dev/null || true
    rm -r "$work/agents/issued"
    meridian cluster revoke issued --confirm issued >/dev/null
    timeout 20 "$MERIDIAN_BIN" agent run --runner simulated --fleet "$work/issued-fleet.yaml" --data-dir "$work/agents/issued" --manager "$url" \
        --join-token-file "$token" --manager-ca-file "$work/manager/ca.pem" >"$work/issued.log" 2>&1 || true
    grep -q 'were revoked' "$work/issued.log" || { cat "$work/issued.log"; fail 'a revoked agent joins again by its service account'; }
    pass 'a revoked cluster stays out, whatever its issuer signs'
}
