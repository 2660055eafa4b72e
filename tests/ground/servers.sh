# Real control planes on loopback, for scripts that source this file after setting `work`, a temporary directory.
#
# `start_servers CONTEXT…` starts an etcd and an API server for each context, and sets `kubeconfig` and `kubectl`.
# `start_controllers CONTEXT` adds the controller manager, the scheduler, and kwok with the stages of a file.
# `stop_servers` ends all of them.

servers=()

# A port below the range for outgoing connections: the system may use a port of that range at any moment. Scripts that run at the
# same time take them from different ranges of 6,000, which MERIDIAN_FIRST_PORT begins.
free_port() {
    local port
    while :; do
        port=$((RANDOM % 6000 + ${MERIDIAN_FIRST_PORT:-20000}))
        if ! (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then printf '%s\n' "$port"; return; fi
    done
}

# Waits until a command succeeds, for so many seconds. Each look costs processor time, which the servers need: after the first
# second it looks more rarely.
await() {
    local seconds="$1" end looks=0
    shift
    end=$((SECONDS + seconds))
    until "$@" >/dev/null 2>&1; do
        [ "$SECONDS" -lt "$end" ] || return 1
        looks=$((looks + 1))
        if [ "$looks" -le 5 ]; then sleep 0.2; else sleep 0.8; fi
    done
}

# Says whether the input has a line of a pattern, as `grep -q`. It reads the input to its end: `grep -q` at the end of a pipe stops
# at the first such line, and by `pipefail` a writer that wasn't done yet fails the whole pipe.
has() {
    local input
    input="$(cat)"
    grep -q "$@" <<<"$input"
}
export -f has

# API servers first: without etcd they would wait for it while they stop. One that doesn't stop within seconds is killed.
stop_servers() {
    local index pid
    for ((index = ${#servers[@]} - 1; index >= 0; index--)); do
        pid="${servers[index]}"
        kill "$pid" 2>/dev/null || true
        if ! await 5 eval "! kill -0 $pid"; then kill -KILL "$pid" 2>/dev/null || true; fi
        wait "$pid" 2>/dev/null || true
    done
    servers=()
}

# A certificate for a client, signed by the authority of the control planes. Members of system:masters may do everything. Its
# extension makes it a certificate of version 3, the only version that Meridian's own client accepts.
make_client() {
    openssl req -new -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj "/O=system:masters/CN=$1" \
        -keyout "$work/pki/$1.key" -out "$work/pki/$1.csr" 2>/dev/null
    openssl x509 -req -days 2 -in "$work/pki/$1.csr" -CA "$work/pki/ca.crt" -CAkey "$work/pki/ca.key" -CAcreateserial \
        -extfile <(printf 'extendedKeyUsage = clientAuth\n') -out "$work/pki/$1.crt" 2>/dev/null
}

# Starts etcd once, and an API server for each context, all on loopback. The certificate of each API server's own authority
# is in `$work/pki/CONTEXT/apiserver.crt`.
start_servers() {
    [ "${#servers[@]}" -eq 0 ] || return 0
    local etcd_port peer_port port context began=$SECONDS
    kubectl="$(tests/ground/build --path kubectl)"
    mkdir -p "$work/pki"
    openssl req -x509 -new -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=meridian-tests \
        -keyout "$work/pki/ca.key" -out "$work/pki/ca.crt" 2>/dev/null
    openssl genrsa -out "$work/pki/accounts.key" 2048 2>/dev/null
    make_client admin
    etcd_port="$(free_port)" peer_port="$(free_port)"
    "$(tests/ground/build --path etcd)" --data-dir "$work/etcd" --unsafe-no-fsync --log-level error \
        --listen-client-urls "http://127.0.0.1:$etcd_port" --advertise-client-urls "http://127.0.0.1:$etcd_port" \
        --listen-peer-urls "http://127.0.0.1:$peer_port" --initial-advertise-peer-urls "http://127.0.0.1:$peer_port" \
        --initial-cluster "default=http://127.0.0.1:$peer_port" >"$work/etcd.log" 2>&1 &
    servers+=($!)

    kubeconfig="$work/kubeconfig"
    for context in "$@"; do
        port="$(free_port)"
        start_api_server "$context" "$port" "http://127.0.0.1:$etcd_port"
        "$kubectl" --kubeconfig "$kubeconfig" config set-cluster "$context" --server "https://127.0.0.1:$port" \
            --insecure-skip-tls-verify >/dev/null
        "$kubectl" --kubeconfig "$kubeconfig" config set-credentials admin --embed-certs --client-certificate "$work/pki/admin.crt" \
            --client-key "$work/pki/admin.key" >/dev/null
        "$kubectl" --kubeconfig "$kubeconfig" config set-context "$context" --cluster "$context" --user admin >/dev/null
    done
    chmod 600 "$kubeconfig"
    for context in "$@"; do
        await 120 "$kubectl" --kubeconfig "$kubeconfig" --context "$context" get --raw /readyz ||
            { tail -n 20 "$work/$context.log" "$work/etcd.log" >&2; fail "the API server of $context does not get ready"; }
    done
    printf '%s API servers are ready after %s s: %s\n' "$#" "$((SECONDS - began))" \
        "$("$kubectl" --kubeconfig "$kubeconfig" --context "$1" version -o json | jq -r .serverVersion.gitVersion)"
}

# Starts the API server of a context at a port; its process is noted in `$work/CONTEXT.pid`.
start_api_server() {
    local context="$1" port="$2" etcd="$3"
    "$(tests/ground/build --path kube-apiserver)" --etcd-servers "$etcd" --etcd-prefix "/$context" \
        --bind-address 127.0.0.1 --secure-port "$port" --cert-dir "$work/pki/$context" \
        --client-ca-file "$work/pki/ca.crt" --service-cluster-ip-range 10.0.0.0/24 --authorization-mode RBAC \
        --disable-admission-plugins StorageObjectInUseProtection \
        --service-account-issuer https://kubernetes.default.svc --service-account-key-file "$work/pki/accounts.key" \
        --service-account-signing-key-file "$work/pki/accounts.key" >>"$work/$context.log" 2>&1 &
    servers+=($!)
    printf '%s %s %s\n' "$!" "$port" "$etcd" >"$work/$context.pid"
}

# A kubeconfig of one context, for programs that take no context.
context_kubeconfig() {
    "$kubectl" --kubeconfig "$kubeconfig" --context "$1" config view --minify --flatten
}

# Starts the scheduler of a context; its process is noted in `$work/CONTEXT.scheduler`.
start_scheduler() {
    "$(tests/ground/build --path kube-scheduler)" --kubeconfig "$work/$1.kubeconfig" --leader-elect=false --secure-port 0 \
        --kube-api-qps 500 --kube-api-burst 1000 >>"$work/$1-scheduler.log" 2>&1 &
    echo "$!" >"$work/$1.scheduler"
    servers+=($!)
}

# Starts the controller manager, which makes the pods of jobs, the scheduler, and kwok, which acts as the nodes.
start_controllers() {
    local context="$1" stages="$2" own="$work/$1.kubeconfig" quick=(--kube-api-qps 500 --kube-api-burst 1000)
    context_kubeconfig "$context" >"$own"
    "$(tests/ground/build --path kube-controller-manager)" --kubeconfig "$own" --leader-elect=false --secure-port 0 \
        --controllers '*,-nodeipam,-cloud-node-lifecycle' --service-account-private-key-file "$work/pki/accounts.key" \
        "${quick[@]}" >"$work/$context-controllers.log" 2>&1 &
    servers+=($!)
    start_scheduler "$context"
    "$(tests/ground/build --path kwok)" --kubeconfig "$own" --manage-all-nodes=true --node-lease-duration-seconds 40 --config "$stages" \
        --server-address "127.0.0.1:$(free_port)" >"$work/$context-kwok.log" 2>&1 &
    servers+=($!)
}
