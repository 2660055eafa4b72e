# A cluster without an agent: the manager reaches it by the kubeconfig of a MultiKueueCluster. Sourced by `run`.

# A MultiKueueCluster and its Secret, with the kubeconfig on standard input.
multikueue_cluster() {
    front -n kueue-system create secret generic "$1" --from-file=kubeconfig=/dev/stdin >/dev/null
    front apply -f - >/dev/null <<CLUSTER
apiVersion: kueue.x-k8s.io/v1beta1
kind: MultiKueueCluster
metadata: {name: $1}
spec: {kubeConfig: {locationType: Secret, location: $1}}
CLUSTER
}

restart_manager() {
    kill "$manager_pid" 2>/dev/null || true
    wait "$manager_pid" 2>/dev/null || true
    start_manager
    await 60 meridian get clusters || fail 'the manager does not come back'
}

step_hosted() {
    start_fleet
    front_queue
    local region=us-east4 uids token
    # The cluster's own agent ends and releases its Lease, so that the manager can be the agent.
    kill "$(agent_of "$region")"
    echo 'host-clusters: kueue-system' >>"$work/manager.yaml"
    restart_manager
    await 60 eval "front get cluster.meridian.dev '$region' -o 'jsonpath={.status.state}' | has -x NotConnected" ||
        { front get cluster.meridian.dev "$region" -o yaml; tail -n 20 "$work/manager.log"; fail 'the management cluster shows a cluster as connected that is not'; }
    pass 'the management cluster shows that a cluster is not connected'
    front apply -f - >/dev/null <<CLUSTER
apiVersion: meridian.dev/v1alpha1
kind: Cluster
metadata: {name: hosted}
spec: {region: $region, jurisdiction: $(jurisdiction "$region")}
CLUSTER
    sed 's/token: .*/tokenFile: \/run\/token}}]/' "$work/$region.agent-kubeconfig" | multikueue_cluster insecure
    multikueue_cluster hosted <"$work/$region.agent-kubeconfig"
    await 90 connected hosted || { tail -n 30 "$work/manager.log"; front get events; fail 'a cluster without an agent is not reached'; }
    pass 'a kubeconfig of a MultiKueueCluster is enough for a cluster to connect'
    await 30 event_says insecure 'create the object Cluster' || { front get events; fail 'no event says that the region of a cluster is unknown'; }
    front apply -f - >/dev/null <<CLUSTER
apiVersion: meridian.dev/v1alpha1
kind: Cluster
metadata: {name: insecure}
spec: {region: $region, jurisdiction: $(jurisdiction "$region")}
CLUSTER
    await 30 event_says insecure 'tokenFile' || { front get events; fail 'no event says why a kubeconfig is refused'; }
    pass 'events name what a MultiKueueCluster lacks'
    submit borrowed queue=front region="$region" seconds=100
    runs_in_front borrowed
    [ "$(regions_of borrowed)" = "$region " ] || fail 'the job is not in its region'
    says borrowed 'hosted' || { why borrowed; fail 'the explanation does not name the cluster'; }
    uids="$(uids_in "$region" borrowed)"
    kill -9 "$manager_pid"
    sleep "$TERM_SECONDS"
    sleep 5
    [ "$(uids_in "$region" borrowed)" = "$uids" ] || fail 'pods of a hosted cluster were touched while its agent was away'
    start_manager
    await 60 connected hosted || { tail -n 30 "$work/manager.log"; fail 'the hosted agent does not come back with the manager'; }
    await 60 job_field borrowed .status.active 3 || { front get job borrowed -o yaml; fail 'the job is not seen running'; }
    [ "$(uids_in "$region" borrowed)" = "$uids" ] || fail 'the gang was started again'
    [ "$(regions_of borrowed)" = "$region " ] || fail 'the gang runs in another region too'
    pass 'a gang keeps its pods while the manager is down for longer than a lease term'
    await 120 job_has borrowed Complete || { why borrowed; front get job borrowed -o yaml; fail 'the job does not complete'; }
    token="$(sed -n 's/.*token: "\(.*\)".*/\1/p' "$work/$region.agent-kubeconfig")"
    [ "${#token}" -gt 100 ] || fail 'the kubeconfig of the test has no token'
    if grep -rqF -- "$token" "$work/manager" "$work/manager.log"; then fail 'the manager keeps or logs the credentials'; fi
    pass 'the credentials are neither in the data directory nor in the log'
    # The queue `main` exists only at the manager, and is lost with the journal.
    submit lasting queue=front region="$region" seconds=600
    runs_in_front lasting
    uids="$(uids_in "$region" lasting)"
    kill -9 "$manager_pid"
    wait "$manager_pid" 2>/dev/null || true
    rm "$work/manager/journal.redb"
    start_manager --init --recover
    await 60 connected hosted || { tail -n 30 "$work/manager.log"; fail 'the hosted agent does not come back to a new journal'; }
    meridian journal confirm --yes >/dev/null
    await 90 managed_runs lasting hosted || { why lasting; meridian journal recovery; tail -n 30 "$work/manager.log"; fail 'a running gang of a hosted cluster is not adopted'; }
    [ "$(uids_in "$region" lasting)" = "$uids" ] && [ "$(regions_of lasting)" = "$region " ] || fail 'a lost journal started a second copy, or restarted the gang'
    remove_front lasting
    pass 'with a lost journal the gang of a hosted cluster is adopted, and starts nowhere else'
    front delete multikueuecluster hosted insecure >/dev/null
    await 60 bash -c "! '$MERIDIAN_BIN' --kubeconfig '$work/admin' get clusters hosted -o json | jq -e '.status.state == \"Connected\"'" ||
        fail 'the agent still runs after its MultiKueueCluster was deleted'
    pass 'without its MultiKueueCluster the agent ends'
    sed -i '/host-clusters/d' "$work/manager.yaml"
    restart_manager
    front delete cluster.meridian.dev hosted insecure >/dev/null
    start_agent "$region"
    await 60 connected "$region" || fail "the agent of $region does not come back"
}
