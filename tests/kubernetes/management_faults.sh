# shellcheck shell=bash disable=SC2154
# Steps of tests/kubernetes/run about the management cluster: its API server is away, rights are missing, users edit objects by
# hand, jobs of other kinds, missing admission policies, and a thousand jobs.

# The queue `front`, as step_management makes it.
front_queue() {
    sed 's/main$/front/' "$HERE/queues.yaml" | front apply -f - >/dev/null
    # A manager that has just claimed the cluster waits for 15 s.
    await 60 meridian get localqueue front || fail 'the queue of the management cluster does not reach the manager'
}
# The number of lines with a text in the manager's log, and whether it is larger than before.
said() { grep -c -- "$1" "$work/manager.log" || true; }
says_again() { [ "$(said "$1")" -gt "$2" ]; }
workload_has() { front get workload "$(workload_of "$1")" -o json | jq -e --arg type "$2" '.status.conditions[]? | select(.status == "True" and .type == $type)'; }
workload_is() { [ "$(front get workload "$1" -o json | jq -r "$3")" = "$2" ]; }
workload_field() { [ "$(front get workload "$(workload_of "$1")" -o "jsonpath={$2}")" = "$3" ]; }
remove_front() { front delete job "$1" >/dev/null; await 60 gone "$1" || fail "pods of the deleted job $1 stay"; }

step_management_away() {
    start_fleet
    front_queue
    local region uids pid port etcd away
    submit steady queue=front
    submit ending queue=front pods=1
    runs_in_front steady
    runs_in_front ending 1
    region="$(regions_of steady)"; region="${region% }"
    uids="$(uids_in "$region" steady)"
    away="$(said 'nothing is written to the cluster until it is')"
    read -r pid port etcd <"$work/$MANAGEMENT.pid"
    kill -KILL "$pid"
    { wait "$pid"; } 2>/dev/null || true
    end_pods "$(regions_of ending | tr -d ' ')" ending
    await 60 says_again 'nothing is written to the cluster until it is' "$away" || fail 'a manager that can not renew its Lease does not say so'
    # Longer than the Lease lasts.
    sleep 16
    await 60 has_condition ending Complete || { why ending; fail 'the manager does not see the end of a job while the management cluster is away'; }
    meridian get jobs steady >/dev/null || fail "the manager's own API does not answer"
    start_api_server "$MANAGEMENT" "$port" "$etcd"
    await 60 front get --raw /readyz || fail 'the API server does not come back'
    await 60 job_has ending Complete || { tail -n 20 "$work/manager.log"; fail 'the end of a job is not written when the API server is back'; }
    [ "$(uids_in "$region" steady)" = "$uids" ] && await 30 job_field steady .status.active 3 || fail 'a gang did not outlive the management cluster'
    submit after queue=front pods=1
    runs_in_front after 1
    pass 'gangs outlive an API server of the management cluster that is away for longer than the Lease, and ends are written then'
    remove_front after
    front delete job ending >/dev/null
    remove_front steady
}

step_management_rights() {
    start_fleet
    front_queue
    local refused name missing='cannot patch resource .*workloads.* in API group .*kueue.x-k8s.io'
    refused="$(said "$missing")"
    # The rights to its Lease are in another binding, so the manager still acts.
    front delete clusterrolebinding meridian-system-meridian-manager >/dev/null
    submit poor queue=front pods=2
    await 30 says_again "$missing" "$refused" ||
        { tail -n 20 "$work/manager.log"; fail 'the log does not name the missing right'; }
    pass 'a manager whose rights were taken away says which verb on which resource is missing'
    if timeout 30 "$MERIDIAN_BIN" manager --init --listen "127.0.0.1:$(free_port)" --data-dir "$work/poor-manager" --kubernetes \
        --kubeconfig "$work/manager-kubeconfig" --lease-name poor >"$work/poor.log" 2>&1; then fail 'a manager without rights starts'; fi
    for name in '`list` `jobs.batch`' '`patch` `jobs/status.batch`' '`create` `workloads.kueue.x-k8s.io`'; do
        grep -qF -- "$name" "$work/poor.log" || { cat "$work/poor.log"; fail "the missing right $name is not named"; }
    done
    pass 'a manager whose first start lacks rights names each of them'
    # Its agents need their leases renewed, whether the management cluster can be used or not.
    kill "$manager_pid"
    { wait "$manager_pid"; } 2>/dev/null || true
    start_manager
    for name in "${REGIONS[@]}"; do
        await 60 connected "$name" || { tail -n 20 "$work/manager.log"; fail "a manager without rights does not serve the agent of $name"; }
    done
    curl -s --cacert "$work/manager/ca.pem" "https://127.0.0.1:$manager_port/readyz" >"$work/poor.ready"
    for name in "the management cluster can't be used" 'policies and quotas may be outdated'; do
        grep -qF -- "$name" "$work/poor.ready" || { cat "$work/poor.ready"; fail "readyz does not say: $name"; }
    done
    pass 'a manager with a journal serves its agents without rights, and says what it waits for'
    front apply -f "$work/manager-rbac.yaml" >/dev/null
    runs_in_front poor 2
    await 90 workload_has poor Admitted || { tail -n 20 "$work/manager.log"; fail 'the Workload is not written once the right is back'; }
    await 60 job_field poor .status.active 2 || fail 'the status is not written once the right is back'
    pass 'and goes on when it has them again'
    missing='may not `get` `clusterroles.rbac.authorization.k8s.io` `meridian-management-cluster`'
    front delete clusterrolebinding meridian-system-meridian-manager-claim >/dev/null
    await 30 says_again "$missing" 0 || { tail -n 20 "$work/manager.log"; fail 'the missing right to the claim is not named'; }
    front apply -f "$work/manager-rbac.yaml" >/dev/null
    pass 'a manager that can not read its claim says which right is missing'
    remove_front poor
}

step_management_hands() {
    start_fleet
    front_queue
    local region uids workload uid
    submit touched queue=front
    runs_in_front touched
    region="$(regions_of touched)"; region="${region% }"
    uids="$(uids_in "$region" touched)"
    workload="$(workload_of touched)"
    uid="$(front get workload "$workload" -o 'jsonpath={.metadata.uid}')"
    front delete workload "$workload" >/dev/null
    await 30 workload_field touched .status.clusterName "$region" || fail 'a deleted Workload does not come back with its status'
    [ "$(front get workload "$(workload_of touched)" -o 'jsonpath={.metadata.uid}')" != "$uid" ] || fail 'the Workload was not deleted'
    [ "$(uids_in "$region" touched)" = "$uids" ] && runs_whole touched 3 || { why touched; fail 'a deleted Workload restarted the gang'; }
    pass 'a Workload that was deleted by hand comes back whole, and its gang runs on'
    if front label job touched kueue.x-k8s.io/queue-name- >"$work/label" 2>&1; then fail 'the queue of a running job can be taken away'; fi
    grep -q 'spec.active: false' "$work/label" || { cat "$work/label"; fail 'the refusal names no remedy'; }
    # Without the admission policy the API server takes the change, and the manager must stop the job.
    front delete validatingadmissionpolicybinding jobs.meridian.dev >/dev/null
    await 30 front label job touched kueue.x-k8s.io/queue-name- || fail 'a policy without a binding still refuses'
    await 60 gone touched || fail 'the pods of a job without a queue stay'
    await 30 eval '! meridian get jobs touched' || fail 'a job without a queue stays at the manager'
    front label job touched kueue.x-k8s.io/queue-name=front >/dev/null
    runs_in_front touched
    await 30 workload_has touched Admitted || fail 'a job with a queue again has no Workload'
    front apply -f manifests/admission >/dev/null
    pass 'a job ends when its queue label is removed, and starts when it has one again'
    remove_front touched
    await 30 eval '! workload_of touched | has .' || fail 'the Workload of a deleted job stays'
}
step_management_kinds() {
    start_fleet
    front_queue
    local with=europe-west4 following uid workload
    following="$(said 'following kind="JobSet"')"
    define_kinds "$MANAGEMENT"
    if ! kube "$with" get jobsets >/dev/null 2>&1; then
        define_kinds "$with"
        python3 "$HERE/operator.py" "$kubectl" "$kubeconfig" "$with" >>"$work/$with-operator.log" 2>&1 &
        programs+=($!)
        # An agent looks for kinds at its start, and every 30 s.
        kill_agent "$(agent_of "$with")"
        start_agent "$with"
        await 60 connected "$with" || fail 'the agent does not come back'
    fi
    await 60 eval "[ '$following' -gt 0 ] || says_again 'following kind=\"JobSet\"' '$following'" || { tail -n 5 "$work/manager.log"; fail 'a kind that is installed later is not found'; }
    sed -e 's/: NAME$/: set/' -e 's/queue-name: main/queue-name: front/' -e 's/^spec:/&\n  suspend: true\n  managedBy: kueue.x-k8s.io\/multikueue/' \
        "$HERE/kinds/jobset.yaml" | front create -f - >/dev/null
    uid="$(front get jobset set -o 'jsonpath={.metadata.uid}')"
    await 90 sets_are "$with" "$uid" driver,workers,workers,workers,workers || { why set; tail -n 20 "$work/manager.log"; fail 'the JobSet does not run whole'; }
    workload="$(workload_of set)"
    await 30 workload_is "$workload" "$with driver,workers" '.status.clusterName + " " + ([.spec.podSets[].name] | sort | join(","))' ||
        { front get workload "$workload" -o yaml; fail 'the Workload does not show cluster and pod sets'; }
    [ "$(front get jobs -l jobset.sigs.k8s.io/jobset-name -o name | wc -l)" -eq 0 ] || fail 'jobs of the JobSet are in the management cluster'
    kube "$with" annotate pods -l jobset.sigs.k8s.io/jobset-name=set test.meridian.dev/seconds=0 >/dev/null
    await 60 front_jobset_has set Completed && [ "$(front get jobset set -o 'jsonpath={.status.terminalState}')" = Completed ] || { front get jobset set -o yaml; tail -n 20 "$work/manager.log"; fail 'the end of a JobSet is not written'; }
    front delete jobset set >/dev/null
    await 30 eval '! meridian get jobsets set' || fail 'a deleted JobSet stays at the manager'
    pass 'a JobSet of the management cluster runs in the worker cluster that has its operator, and its end is written'
    local entry kind at ended
    for entry in "${FRONT_KINDS[@]}"; do
        read -r kind at ended <<<"$entry"
        sed -e "s/: NAME$/: front-$kind/; s/queue-name: main/queue-name: front/; s/# seconds/test.meridian.dev\/seconds: \"8\"/" "$HERE/kinds/$kind.yaml" |
            front create --dry-run=client -o json -f - |
            jq "$at.suspend = true | $at.managedBy = \"kueue.x-k8s.io/multikueue\"" | front create -f - >/dev/null
    done
    for entry in "${FRONT_KINDS[@]}"; do
        read -r kind at ended <<<"$entry"
        await 180 eval "front get '$kind' 'front-$kind' -o json | jq -e '$ended'" ||
            { why "front-$kind"; front get "$kind" "front-$kind" -o yaml; tail -n 20 "$work/manager.log"; fail "the end of a $kind is not written"; }
        front delete "$kind" "front-$kind" >/dev/null
        pass "a $kind of the management cluster runs, and its end is written in its own words"
    done
    front_endless "$with" raycluster gpus,gpus,head '.spec.suspend = true | .spec.managedBy = "kueue.x-k8s.io/multikueue"' \
        '.status | .state == "ready" and .readyWorkerReplicas == 2'
    front_endless "$with" leaderworkerset leader,leader,workers,workers \
        '(.spec.leaderWorkerTemplate | .leaderTemplate, .workerTemplate).spec.schedulingGates = [{name: "kueue.x-k8s.io/admission"}]' \
        '.status | .readyReplicas == 2 and .conditions[0].type == "Available"'
    front_pod "$with"
    front_pod_group "$with"
}

# A job that doesn't end by itself: its kind, its pod sets, the switch that keeps the cluster's own controller away, and its status.
front_endless() {
    local with="$1" kind="$2" sets="$3" held_back="$4" shown="$5" name="front-$2" uid
    sed -e "s/: NAME\$/: $name/; s/queue-name: main/queue-name: front/" "$HERE/kinds/$kind.yaml" |
        front create --dry-run=client -o json -f - | jq "$held_back" | front create -f - >/dev/null
    uid="$(front get "$kind" "$name" -o 'jsonpath={.metadata.uid}')"
    await 90 sets_are "$with" "$uid" "$sets" || { why "$name"; tail -n 20 "$work/manager.log"; fail "a $kind of the management cluster does not run whole"; }
    await 30 workload_field "$name" .status.clusterName "$with" ||
        { front get workloads -o yaml; fail "the Workload of a $kind does not name the cluster"; }
    await 30 eval "front get '$kind' '$name' -o json | jq -e '$shown'" ||
        { front get "$kind" "$name" -o yaml; fail "the status of a running $kind is not as its own controller writes it"; }
    front delete "$kind" "$name" >/dev/null
    await 60 sets_are "$with" "$uid" '' || { why "$name"; fail "the pods of a deleted $kind stay"; }
    pass "a $kind of the management cluster runs, and its Workload names the cluster, until it is deleted"
}

# Creates pods of tests/kubernetes/kinds in the management cluster, at the gate of admission.
submit_pods() {
    sed -e "s/: NAME/: $2/; s/queue-name: main/queue-name: front/; s/^  labels:/&\n    test.meridian.dev\/of: $2/" \
        -e 's/^spec:/&\n  schedulingGates: [{name: kueue.x-k8s.io\/admission}]/' "$HERE/kinds/$1.yaml"
}
front_phases_are() { [ "$(front get pods -l "test.meridian.dev/of=$1" -o 'jsonpath={.items[*].status.phase}')" = "$2" ]; }
pods_fail() { front get pods,workloads,events -o wide >&2 || true; why "$1" >&2 || true; tail -n 20 "$work/manager.log" >&2; fail "$2"; }

front_pod() {
    local with="$1" uid
    # The scheduler of the management cluster has no node, so the pod waits there.
    submit_pods pod front-open | sed '/schedulingGates/d' | front create -f - >/dev/null
    await 30 event_says front-open 'without a scheduling gate' || pods_fail front-open 'a pod without a gate is not told what to write'
    meridian get pod front-open >/dev/null 2>&1 && fail 'a pod without a gate is taken'
    front delete pod front-open >/dev/null
    submit_pods pod front-pod | front create -f - >/dev/null
    uid="$(front get pod front-pod -o 'jsonpath={.metadata.uid}')"
    await 90 sets_are "$with" "$uid" main || pods_fail front-pod 'a pod of the management cluster does not run'
    await 30 front_phases_are front-pod Running || pods_fail front-pod 'a running pod is not shown as running'
    front wait --for=condition=Ready pod/front-pod --timeout=30s >/dev/null || pods_fail front-pod 'kubectl wait does not see a ready pod'
    await 30 workload_field front-pod .status.clusterName "$with" || pods_fail front-pod 'the Workload of a pod does not name the cluster'
    end_pods_of "$with" "$uid"
    await 60 front_phases_are front-pod Succeeded || pods_fail front-pod 'the end of a pod is not written'
    front delete pod front-pod >/dev/null
    await 30 eval '! meridian get pod front-pod' || pods_fail front-pod 'a deleted pod stays at the manager'
    await 30 eval '! workload_of front-pod | has .' || pods_fail front-pod 'the Workload of a deleted pod stays'
    pass 'a gated pod of the management cluster runs elsewhere, and shows its phases; an event of one without a gate says what to write'
}

front_pod_group() {
    local with="$1" name=front-group uid workload
    submit_pods podgroup "$name" >"$work/group.yaml"
    # The first two of the group's three pods.
    awk '/^---$/ {documents++} documents < 2' "$work/group.yaml" | front create -f - >/dev/null
    await 30 event_says "$name-driver" '2 of 3 pods of the group exist' || pods_fail "$name" 'a group that is not whole is not explained'
    meridian get podgroup "$name" >/dev/null 2>&1 && fail 'a part of a group is submitted'
    awk '/^---$/ {documents++} documents >= 2' "$work/group.yaml" | front create -f - >/dev/null
    await 30 meridian get podgroup "$name" || pods_fail "$name" 'a whole group is not submitted'
    uid="$(field_of podgroup "$name" .metadata.uid)"
    await 90 sets_are "$with" "$uid" role-1,role-2,role-2 || pods_fail "$name" 'a group of the management cluster does not run whole'
    await 30 front_phases_are "$name" 'Running Running Running' || pods_fail "$name" 'the pods of a running group are not shown as running'
    workload="$(workload_of "$name-driver")"
    await 30 workload_is "$workload" "$with $name-driver,$name-worker-0,$name-worker-1" \
        '.status.clusterName + " " + ([.metadata.ownerReferences[].name] | sort | join(","))' || pods_fail "$name" 'the Workload of a group does not name the cluster and the pods'
    await 30 event_says "$name-worker-1" "runs in cluster $with" || pods_fail "$name" 'no event of a pod tells the cluster'
    # A deleted pod stops the group; with a new one it starts again, under another uid.
    front delete pod "$name-worker-1" >/dev/null
    await 60 sets_are "$with" "$uid" '' || pods_fail "$name" 'a group that lost a pod runs on'
    await 30 front_phases_are "$name" 'Pending Pending' || pods_fail "$name" 'the pods of a stopped group are not shown as pending'
    awk '/^---$/ {documents++} documents >= 2' "$work/group.yaml" | front create -f - >/dev/null
    await 60 eval "field_of podgroup $name .metadata.uid | has -v -e '^\$' -e $uid" || pods_fail "$name" 'a group with a new pod is not submitted'
    uid="$(field_of podgroup "$name" .metadata.uid)"
    await 90 sets_are "$with" "$uid" role-1,role-2,role-2 || pods_fail "$name" 'a group with a new pod does not run whole'
    end_pods_of "$with" "$uid"
    await 60 front_phases_are "$name" 'Succeeded Succeeded Succeeded' || pods_fail "$name" 'the end of a group is not written to all of its pods'
    front delete pods -l "test.meridian.dev/of=$name" >/dev/null
    await 30 eval "! meridian get podgroup $name" || pods_fail "$name" 'a deleted group stays at the manager'
    await 30 eval "! workload_of $name-driver | has ." || pods_fail "$name" 'the Workload of a deleted group stays'
    pass 'a group of pods is submitted with its last pod, runs whole, stops with any of its pods, and all pods show its end'
}
# Each kind, the place of its fields `suspend` and `managedBy`, and a jq filter for its status at the end. Without spaces.
readonly FRONT_KINDS=(
    'pytorchjob .spec.runPolicy [.status.conditions[]?|select(.status=="True").type]==["Created","Succeeded"]'
    'mpijob .spec.runPolicy any(.status.conditions[]?;.type=="Succeeded"and.status=="True")'
    'rayjob .spec .status.jobStatus=="SUCCEEDED"and.status.jobDeploymentStatus=="Complete"'
    'trainjob .spec any(.status.conditions[]?;.type=="Complete"and.status=="True")'
)
front_jobset_has() { front get jobset "$1" -o json | jq -e --arg type "$2" '.status.conditions[]? | select(.status == "True" and .type == $type)'; }

# All admission policies are deleted.
step_management_policies() {
    start_fleet
    front_queue
    local job region
    front delete -f manifests/admission >/dev/null
    for region in "${REGIONS[@]}"; do kube "$region" create namespace personal >/dev/null; done
    front apply -f - >/dev/null <<'POLICY'
apiVersion: v1
kind: Namespace
metadata: {name: personal, labels: {data: personal}}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {name: front, namespace: personal}
spec: {clusterQueue: front}
---
apiVersion: meridian.dev/v1alpha1
kind: ResidencyPolicy
metadata: {name: eu-only}
spec:
  applies: {namespaceSelector: {matchLabels: {data: personal}}}
  allow: {jurisdictions: [EU]}
POLICY
    await 30 meridian get residencypolicy eu-only || fail 'the policy does not reach the manager'
    await 30 meridian get localqueue front -n personal || fail 'the queue does not reach the manager'
    # No cluster may run this job: the policy allows only the EU, and the job asks for another region.
    job_manifest nowhere namespace=personal queue=front region=us-east4 | sed '/^spec:/a\  managedBy: kueue.x-k8s.io/multikueue' >"$work/nowhere"
    # The admission policies would refuse these two jobs, so they are off.
    job_manifest mistyped queue=front region=us-east4 | sed 's/meridian.dev\/region/meridian.dev\/regoin/; /^spec:/a\  managedBy: kueue.x-k8s.io/multikueue' >"$work/mistyped"
    job_manifest foreign queue=front | sed 's/suspend: true/&\n  managedBy: example.com\/controller/' >"$work/foreign"
    for job in nowhere mistyped foreign; do await 20 stored_unchecked "$job" || fail "job $job can not be stored without admission policies"; done
    job_manifest allowed namespace=personal queue=front pods=2 | sed '/^spec:/a\  managedBy: kueue.x-k8s.io/multikueue' | front create -f - >/dev/null
    runs_in_front allowed 2
    [ "$(regions_of allowed)" = 'europe-west4 ' ] || fail "a job that must stay in the EU runs in $(regions_of allowed)"
    await 30 refused_in personal nowhere eu-only || { front get events -A; fail 'a job that may run nowhere is not refused'; }
    await 30 refused_in default mistyped regoin || { front get events -A; fail 'a job with a mistyped key is not refused'; }
    for job in nowhere mistyped foreign; do
        for region in "${REGIONS[@]}" "$MANAGEMENT"; do
            [ "$(kube "$region" get pods -A -l "batch.kubernetes.io/job-name=$job" -o name | wc -l)" -eq 0 ] || fail "job $job has pods in $region"
        done
    done
    pass 'without admission policies nothing runs that policy forbids, and events say why'
    front apply -f manifests/admission >/dev/null
    front delete job mistyped foreign >/dev/null
    front -n personal delete job nowhere allowed >/dev/null
    await 60 gone allowed || fail 'pods of a deleted job stay'
    front delete residencypolicy eu-only >/dev/null
}
# The manager sets its webhook up again, and an API server takes a moment to forget it.
stored_unchecked() { front delete validatingwebhookconfiguration meridian-jobs; front create -f "$work/$1"; }
refused_in() { front -n "$1" get events -o json | jq -e --arg job "$2" --arg text "$3" '.items[] | select(.involvedObject.name == $job and .reason == "Refused" and (.message | contains($text)))'; }

# A thousand jobs of one pod, of which some have quota at a time. No job is lost or runs twice, and all objects are deleted in the end.
step_management_thousand() {
    start_fleet
    local jobs=1000 at_once=200 template region ran=0
    sed -e 's/main$/narrow/; s/"1000"/"2"/' "$HERE/queues.yaml" | front apply -f - >/dev/null
    await 60 meridian get localqueue narrow || fail 'the queue of the management cluster does not reach the manager'
    for region in "${REGIONS[@]}"; do note_pods "$region"; done
    template="$(job_manifest many-NUMBER queue=narrow pods=1 | sed -e 's/, nvidia.com\/gpu: 1//; /nvidia.com\/gpu: 1/d' \
        -e 's/500m/10m/; s/1Gi/16Mi/; /^spec:/a\  managedBy: kueue.x-k8s.io/multikueue' | front create --dry-run=client -o json -f -)"
    client "$MANAGEMENT" create "$jobs" /apis/batch/v1/namespaces/default/jobs <<<"$template"
    await 60 many_are "$jobs" QuotaReserved "$at_once" Admitted || { tail -n 20 "$work/manager.log"; fail "not all of $jobs jobs have a Workload, or not $at_once of them run: $(front get workloads | tail -n 3)"; }
    await 60 many_active "$at_once" || fail 'the management cluster does not show the running pods'
    for region in "${REGIONS[@]}"; do
        ran=$((ran + $(awk '$4 == "Running" && $2 ~ /^many-/ {print $3}' "$work/$region.pods" | sort -u | wc -l)))
    done
    [ "$ran" -eq "$at_once" ] || fail "$ran pods run for $at_once jobs of one pod"
    pass "of $jobs jobs of the management cluster $at_once have quota and run once each; all others have a Workload that waits"
    client "$MANAGEMENT" delete "$jobs" '/apis/batch/v1/namespaces/default/jobs/many-NUMBER?propagationPolicy=Background'
    await 60 nothing_is_left || { front get workloads | tail -n 5; meridian get jobs | tail -n 5; fail 'deleted jobs leave something behind'; }
    pass 'deleted jobs leave no objects in the cluster and at the manager, and no pods'
}
# Whether $1 Workloads have the condition $2, of any status, and $3 Workloads have the condition $4 with status `True`.
many_are() {
    [ "$(front get workloads -o json | jq -c --arg any "$2" --arg true "$4" '[.items[] | select(.metadata.name | startswith("job-many-")) | [.status.conditions[]?]]
        | [([.[] | select(any(.type == $any))] | length), ([.[] | select(any(.type == $true and .status == "True"))] | length)]')" = "[$1,$3]" ]
}
many_active() { [ "$(front get jobs -o json | jq '[.items[] | select((.metadata.name | startswith("many-")) and .status.active == 1)] | length')" -eq "$1" ]; }
nothing_is_left() {
    local region
    [ -z "$(front get workloads -o name | grep many-)" ] && [ "$(meridian get jobs -o json | jq '[.items[] | select(.metadata.name | startswith("many-"))] | length')" -eq 0 ] || return 1
    for region in "${REGIONS[@]}"; do
        [ "$(kube "$region" get pods --field-selector status.phase=Running -o name | grep -c many-)" -eq 0 ] || return 1
    done
}
