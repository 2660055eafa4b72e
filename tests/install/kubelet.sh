# Acts as the kubelet and two controllers for tests/install/run, which sources this file: starts the processes of Jobs and
# StatefulSets from what the API server has, and writes their status back.
#
# A process gets the arguments, variables, files and volumes of its container. Paths of the container become folders of the test,
# also in settings files, and 0.0.0.0 becomes 127.0.0.1. Images, users and limits are ignored, so nothing is isolated.
# A wrapper runs the commands of `kubectl exec`, since there is no pod to enter.

# Only Jobs and StatefulSets in the namespace of docs/install.md run.
kubelet_namespace=meridian-system
kubelet_pods="$work/pods"
kubelet_bin="$work/bin"
kubelet_pid=

kubelet_start() {
    mkdir -p "$kubelet_pods" "$kubelet_bin" "$work/volumes"
    ln -sf "$MERIDIAN_BIN" "$kubelet_bin/meridian"
    ln -sf "$helm" "$kubelet_bin/helm"
    cat >"$kubelet_bin/kubectl" <<WRAPPER
#!/usr/bin/env bash
# The real kubectl, but for \`exec POD -- COMMAND\`, which runs here with the pod's paths.
set -euo pipefail
context= namespace=default pod= previous=
for word in "\$@"; do
    case "\$previous" in --context) context="\$word" ;; -n | --namespace) namespace="\$word" ;; exec) pod="\$word" ;; esac
    previous="\$word"
done
[ -n "\$pod" ] || exec "$kubectl" "\$@"
while [ "\$1" != -- ]; do shift; done
shift
exec "\${@//\/var\/lib\/meridian-manager/$work/volumes/\$context/\$namespace/data-\$pod}"
WRAPPER
    chmod +x "$kubelet_bin/kubectl"
    touch "$work/kubelet.runs"
    kubelet_loop &
    kubelet_pid=$!
}

kubelet_stop() {
    [ -n "$kubelet_pid" ] || return 0
    rm -f "$work/kubelet.runs"
    wait "$kubelet_pid" 2>/dev/null || true
    kubelet_pid=
}

kubelet_logs() {
    local file
    for file in "$kubelet_pods"/*/*.log "$work/kubelet.log"; do
        [ -s "$file" ] || continue
        printf -- '-- %s\n' "${file#"$work/"}" >&2
        tail -n 15 "$file" >&2
    done
}

kubelet_loop() (
    # The parent's trap must not run here. A failed turn is tried again.
    trap - EXIT
    set +e
    exec >>"$work/kubelet.log" 2>&1
    while [ -e "$work/kubelet.runs" ]; do
        for context in "$CONTEXT_MANAGER" "$CONTEXT_WORKER"; do
            kubelet_ask "$context" --namespace "$kubelet_namespace" get jobs,statefulsets -o json >"$work/seen-$context.json" || continue
            kubelet_turn "$context"
        done
        sleep 0.3
    done
    for folder in "$kubelet_pods"/*/; do pod_stop "$folder"; done
)

kubelet_ask() { "$kubectl" --kubeconfig "$kubeconfig" --context "$@"; }

# Starts new objects, restarts changed ones, and stops deleted ones.
kubelet_turn() {
    local context="$1" kind namespace name uid generation folder
    while read -r kind namespace name uid generation; do
        folder="$kubelet_pods/$context-$uid"
        if [ "$kind" = Job ]; then
            [ -d "$folder" ] || { mkdir -p "$folder"; job_run "$context" "$namespace" "$name" "$folder"; }
        elif [ "$(cat "$folder/generation" 2>/dev/null)" != "$generation" ]; then
            pod_stop "$folder"
            mkdir -p "$folder"
            printf '%s\n' "$generation" >"$folder/generation"
            set_run "$context" "$namespace" "$name" "$folder" "$generation"
        fi
    done < <(jq -r '.items[] | [.kind, (.metadata | .namespace, .name, .uid, .generation)] | join(" ")' "$work/seen-$context.json")
    for folder in "$kubelet_pods/$context"-*/; do
        [ -d "$folder" ] || continue
        uid="$(basename "$folder")"
        uid="${uid#"$context-"}"
        grep -q "$uid" "$work/seen-$context.json" || pod_stop "$folder"
    done
}

pod_stop() {
    local file pid
    for file in "$1"/*.pid; do
        [ -e "$file" ] || continue
        pid="$(cat "$file")"
        kill -TERM "$pid" 2>/dev/null
        wait "$pid" 2>/dev/null
        rm -f "$file"
    done
}

# One object of this turn.
seen() {
    jq --arg kind "$2" --arg namespace "$3" --arg name "$4" \
        '.items[] | select(.kind == $kind and .metadata.namespace == $namespace and .metadata.name == $name)' "$work/seen-$1.json"
}

patch_status() {
    kubelet_ask "$1" --namespace "$2" patch "$3" "$4" --subresource=status --type=merge -p "$5"
}

# Runs the pod of a Job to its end: sidecars first, each until its startup probe passes; then the containers; then sidecars stop.
job_run() {
    local context="$1" namespace="$2" name="$3" folder="$4" result=Complete target=SuccessCriteriaMet container now
    seen "$context" Job "$namespace" "$name" | jq .spec.template.spec >"$folder/pod.json"
    while read -r container; do
        container_start "$context" "$namespace" "$name" "$folder" initContainers "$container"
        probe_await "$folder" initContainers "$container" startupProbe || { result=Failed target=FailureTarget; }
    done < <(jq -r '.initContainers[]? | .name' "$folder/pod.json")
    if [ "$result" = Complete ]; then
        while read -r container; do
            container_start "$context" "$namespace" "$name" "$folder" containers "$container"
            wait "$(cat "$folder/$container.pid")" || { result=Failed target=FailureTarget; }
            rm -f "$folder/$container.pid"
        done < <(jq -r '.containers[] | .name' "$folder/pod.json")
    fi
    pod_stop "$folder"
    now="$(date -u +%Y-%m-%dT%H:%M:%SZ)"
    patch_status "$context" "$namespace" job "$name" "$(jq -n --arg now "$now" --arg result "$result" --arg target "$target" '{status: {
        startTime: $now, completionTime: (if $result == "Complete" then $now else null end),
        succeeded: (if $result == "Complete" then 1 else null end), failed: (if $result == "Failed" then 1 else null end),
        conditions: [{type: $target, status: "True", reason: "Played", lastTransitionTime: $now, lastProbeTime: $now},
            {type: $result, status: "True", reason: "Played", lastTransitionTime: $now, lastProbeTime: $now}]}}')"
}

# Runs the first pod of a StatefulSet, and says that it is ready when it is.
set_run() {
    local context="$1" namespace="$2" name="$3" folder="$4" generation="$5" container
    # Claims of the templates are the pod's volumes.
    seen "$context" StatefulSet "$namespace" "$name" | jq '. as $set | .spec.template.spec
        | .volumes += [$set.spec.volumeClaimTemplates[]?.metadata.name
            | {name: ., persistentVolumeClaim: {claimName: "\(.)-\($set.metadata.name)-0"}}]' >"$folder/pod.json"
    container="$(jq -r '.containers[0].name' "$folder/pod.json")"
    container_start "$context" "$namespace" "$name-0" "$folder" containers "$container"
    probe_await "$folder" containers "$container" readinessProbe || return
    patch_status "$context" "$namespace" statefulset "$name" "$(jq -n --argjson generation "$generation" '{status: {
        observedGeneration: $generation, currentRevision: "played", updateRevision: "played",
        replicas: 1, readyReplicas: 1, availableReplicas: 1, currentReplicas: 1, updatedReplicas: 1}}')"
}

# Starts a container's process in the background and leaves its number in FOLDER/NAME.pid, its output in FOLDER/NAME.log.
container_start() {
    local context="$1" namespace="$2" pod="$3" folder="$4" list="$5" container="$6" name mount source kind place argument variable
    local arguments=() variables=() edits=()
    jq --arg list "$list" --arg name "$container" '.[$list][] | select(.name == $name)' "$folder/pod.json" >"$folder/$container.json"

    while IFS=$'\t' read -r name mount kind source; do
        case "$kind" in
            claim) place="$work/volumes/$context/$namespace/$source" ;;
            *) place="$folder/$container-$name" ;;
        esac
        mkdir -p "$place"
        if [ "$kind" = configMap ] || [ "$kind" = secret ]; then
            kubelet_ask "$context" --namespace "$namespace" get "$kind" "$source" -o json |
                jq -r --arg kind "$kind" --arg name "$name" --slurpfile pod "$folder/pod.json" '(.data // {}) as $data
                    | ($pod[0].volumes[] | select(.name == $name)[$kind].items // ($data | keys | map({key: ., path: .})))[]
                    | [.path, ($data[.key] | if $kind == "secret" then . else @base64 end)] | @tsv' |
                while IFS=$'\t' read -r file content; do base64 -d <<<"$content" >"$place/$file"; done
        fi
        edits+=(-e "s|$mount|$place|g")
    done < <(jq -r --slurpfile pod "$folder/pod.json" '.volumeMounts[]? | .name as $name
        | ($pod[0].volumes[] | select(.name == $name)) as $volume
        | [.name, .mountPath] + (if $volume.persistentVolumeClaim then ["claim", $volume.persistentVolumeClaim.claimName]
            elif $volume.configMap then ["configMap", $volume.configMap.name]
            elif $volume.secret then ["secret", $volume.secret.secretName] else ["empty", "-"] end) | @tsv' "$folder/$container.json")
    if [ "${#edits[@]}" -gt 0 ]; then
        find "$folder" -path "$folder/$container-*" -type f -exec sed -i "${edits[@]}" -e 's|: 0\.0\.0\.0:|: 127.0.0.1:|' {} +
    fi
    edits+=(-e 's|=0\.0\.0\.0:|=127.0.0.1:|')

    while IFS= read -r argument; do
        arguments+=("$(sed "${edits[@]}" <<<"$argument")")
    done < <(jq -r '.args[]?' "$folder/$container.json")
    while IFS=$'\t' read -r variable kind source name; do
        if [ "$kind" = secret ]; then
            source="$(kubelet_ask "$context" --namespace "$namespace" get secret "$source" -o json |
                jq -r --arg key "$name" '.data[$key] | @base64d')"
        fi
        variables+=("$variable=$source")
    done < <(jq -r '.env[]? | [.name] + (if .value then ["value", .value, "-"]
        else ["secret", .valueFrom.secretKeyRef.name, .valueFrom.secretKeyRef.key] end) | @tsv' "$folder/$container.json")

    # The image's entry point.
    case "$(jq -r .image "$folder/$container.json")" in
        *meridian-agent*) arguments=(agent "${arguments[@]}") ;;
    esac
    printf '%s: meridian %s\n' "$pod" "${arguments[*]}"
    env -i PATH=/usr/bin:/bin HOME=/nonexistent "${variables[@]}" "$MERIDIAN_BIN" "${arguments[@]}" >>"$folder/$container.log" 2>&1 &
    printf '%s\n' "$!" >"$folder/$container.pid"
}

# Waits until a container's probe passes; where it has none, until it has run for a second.
probe_await() {
    local folder="$1" list="$2" container="$3" probe="$4" url pid end=$((SECONDS + 60))
    pid="$(cat "$folder/$container.pid")"
    url="$(jq -r --arg probe "$probe" '. as $container | .[$probe].httpGet // empty
        | .port as $port | "\(.scheme // "HTTP" | ascii_downcase)://127.0.0.1:\(if ($port | type) == "number" then $port
            else ($container.ports[] | select(.name == $port) | .containerPort) end)\(.path)"' "$folder/$container.json")"
    if [ -z "$url" ]; then
        sleep 1
        kill -0 "$pid" 2>/dev/null
        return
    fi
    until curl -skf --noproxy '*' -o /dev/null "$url"; do
        if ! kill -0 "$pid" 2>/dev/null || [ "$SECONDS" -gt "$end" ]; then return 1; fi
        sleep 0.2
    done
}
