# shellcheck shell=bash disable=SC2154
# The step of tests/kubernetes/run about copies of the ConfigMaps and Secrets that jobs name. Sourced by `run`.

readonly COPIED=config-maps,secrets
# In base64, as API servers send it, it is TkVWRVItSU4tQS1KT1VSTkFM.
readonly TOKEN=NEVER-IN-A-JOURNAL
readonly TOKEN_ENCODED=TkVWRVItSU4tQS1KT1VSTkFM

# The manifest of a job of two pods in one region that read a Secret and two ConfigMaps, with more options of `job_manifest`.
reader_manifest() {
    local name="$1" secret="$2" region="$3"
    shift 3
    job_manifest "$name" queue=front pods=2 region="$region" "$@" |
        sed "s/^      - name: main$/&\n        envFrom:\n        - secretRef: {name: $secret}\n        - configMapRef: {name: settings}\n        - configMapRef: {name: local}/"
}
submit_reader() { reader_manifest "$@" | sed '/^spec:/a\  managedBy: kueue.x-k8s.io/multikueue' | front create -f - >/dev/null; }

copies_in() { kube "$1" get secrets,configmaps -A -l meridian.dev/copy-of=management-cluster -o name | wc -l; }
copies_are() { [ "$(copies_in "$1")" -eq "$2" ]; }
owners_of() { kube "$1" get "$2" -o json | jq -r '[.metadata.ownerReferences[].name] | sort | join(" ")'; }
owners_are() { [ "$(owners_of "$1" "$2")" = "$3" ]; }
# Starts the manager and all agents with this setting and the rights that their charts give with it; `false` is the usual state.
set_copies() {
    local on="$1" region flags=()
    if [ "$on" = true ]; then flags=(--copy-references "$COPIED"); fi
    "$(tests/ground/build --path helm)" template meridian-manager manifests/helm/meridian-manager --namespace meridian-system \
        --set url=https://manager.example.com:7443,kubernetes.enabled=true,kubernetes.copy.configMaps="$on",kubernetes.copy.secrets="$on" \
        --show-only templates/rbac.yaml | front apply -f - >/dev/null
    kill "$manager_pid"
    { wait "$manager_pid"; } 2>/dev/null || true
    start_manager "${flags[@]}"
    for region in "${REGIONS[@]}"; do
        apply_chart "$region" rbac --set kubernetes.configMaps.copy="$on",kubernetes.secrets.copy="$on"
        with_settings "$region" "${flags[@]}"
    done
}
# Whether the value is in a file that the manager or an agent wrote.
value_is_kept() { grep -rqe "$TOKEN" -e "$TOKEN_ENCODED" "$work"/*-agent.log "$work/manager.log" "$work/agents" "$work/manager"; }

step_copies() {
    start_fleet
    front_queue
    local region=europe-west4 other
    "$MERIDIAN_BIN" manager --data-dir "$work/alone" --init --listen "127.0.0.1:$(free_port)" --copy-references "$COPIED" 2>"$work/alone.log" &&
        fail 'a manager without a management cluster accepts the setting to copy'
    grep -q 'copy-references.*it is for a management cluster: set .kubernetes. too' "$work/alone.log" || fail "the refusal does not say why: $(cat "$work/alone.log")"
    "$MERIDIAN_BIN" manager --data-dir "$work/alone" --init --listen "127.0.0.1:$(free_port)" --kubernetes \
        --kubeconfig "$work/manager-kubeconfig" --copy-references "$COPIED" 2>"$work/alone.log" && fail 'a manager without the right to Secrets copies them'
    grep -q '`get` `secrets` in all namespaces' "$work/alone.log" || fail "the missing right is not named: $(cat "$work/alone.log")"
    pass 'the setting is refused without a management cluster, and without the right to read the objects'
    RUST_LOG=debug set_copies true
    front create secret generic hf-token --from-literal=token="$TOKEN" >/dev/null
    front create secret generic unlabelled --from-literal=token="$TOKEN" >/dev/null
    front label secret hf-token meridian.dev/copy=true >/dev/null
    front create configmap settings --from-literal=rate=7 >/dev/null
    front create configmap local --from-literal=whose=management >/dev/null
    for other in "${REGIONS[@]}"; do kube "$other" create configmap local --from-literal=whose=worker >/dev/null; done

    submit_reader barred unlabelled "$region"
    await 90 says barred 'namespace .default. has no Secret .unlabelled. (not copied: the one in the management cluster has no label' ||
        { why barred; fail 'a Secret that is not allowed is not named'; }
    [ "$(jobs_named "$region" barred)" -eq 0 ] && copies_are "$region" 0 || fail 'an object was made for a job whose Secret may not be copied'
    front delete job barred >/dev/null
    reader_manifest outside hf-token "$region" | meridian create -f - >/dev/null
    await 90 says outside 'not copied: the job is not an object of the management cluster' || { why outside; fail "the manager's own jobs get Secrets of the cluster"; }
    meridian delete job outside >/dev/null
    pass 'a Secret without the label is refused by name, and a job of the manager alone gets none'

    submit_reader reading hf-token "$region"
    runs_in_front reading 2
    [ "$(kube "$region" get secret hf-token -o 'jsonpath={.data.token}')" = "$TOKEN_ENCODED" ] || fail 'the copy of the Secret is not there'
    [ "$(kube "$region" get configmap settings -o 'jsonpath={.data.rate}')" = 7 ] || fail 'the copy of the ConfigMap is not there'
    copies_are "$region" 2 || fail "there are other copies: $(copies_in "$region")"
    for other in "${REGIONS[@]}"; do [ "$other" = "$region" ] || copies_are "$other" 0 || fail "$other has a copy"; done
    [ "$(kube "$region" get configmap local -o 'jsonpath={.data.whose} {.metadata.labels}')" = 'worker ' ] || fail "the cluster's own ConfigMap was touched"
    pass "a job runs with objects that only the management cluster has; the cluster's own object is used as it is, and no other cluster got a copy"
    front patch secret hf-token --type=merge -p '{"stringData":{"more":"1"}}' >/dev/null
    submit_reader sharing hf-token "$region"
    runs_in_front sharing 2
    owners_are "$region" secret/hf-token 'reading sharing' || fail "the copy belongs to $(owners_of "$region" secret/hf-token)"
    [ "$(kube "$region" get secret hf-token -o 'jsonpath={.data.more}')" = MQ== ] || fail 'a later job got the content of an earlier one'
    end_pods "$region" reading
    await 90 job_has reading Complete || { why reading; fail 'the job does not complete'; }
    await 30 owners_are "$region" secret/hf-token sharing || fail "the copy still belongs to $(owners_of "$region" secret/hf-token)"
    copies_are "$region" 2 && [ "$(jobs_named "$region" reading)" -eq 1 ] || fail 'a copy is deleted while a job still uses it'
    pass 'two jobs share a copy, a later one updates its content, and it stays when one of the jobs ends'
    kill -KILL "$(agent_of "$region")"
    { wait "$(agent_of "$region")"; } 2>/dev/null || true
    front delete job sharing reading >/dev/null
    start_agent "$region" --copy-references "$COPIED"
    await 60 copies_are "$region" 0 || fail 'copies outlive their jobs'
    kube "$region" get configmap local >/dev/null || fail "the cluster's own ConfigMap was deleted"
    pass 'with the last job the copies go, also by an agent that was started after the end'
    meridian audit export >"$work/audit-lines"
    grep -q '"copy".*Secret hf-token' "$work/audit-lines" || fail 'the audit log does not name the copied Secret'
    if value_is_kept || grep -qe "$TOKEN" -e "$TOKEN_ENCODED" "$work/audit-lines"; then fail "a Secret's value was kept or logged"; fi
    pass 'the audit log names what was copied, and its value is in no journal, log or data directory'
    set_copies false
    front delete secret hf-token unlabelled >/dev/null
    front delete configmap settings local >/dev/null
    for other in "${REGIONS[@]}"; do kube "$other" delete configmap local >/dev/null; done
}
