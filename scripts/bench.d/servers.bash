# Starts and ends the measured servers, watchet and etcd, on free ports, and times each start. Sourced by
# scripts/bench, which sets $binary, $work and $failures.
# shellcheck shell=bash

server=
etcd=
out=

# end PID: sends SIGTERM to a process and waits for its end.
end() {
    kill "$1" 2>/dev/null || true
    wait "$1" 2>/dev/null || true
}

# halt_server: ends the server; its data remains.
halt_server() {
    if [ -n "$server" ]; then
        end "$server"
        server=
        exec {out}<&-
    fi
}

# stop_server: ends the server and etcd, and deletes their data.
stop_server() {
    halt_server
    if [ -n "$etcd" ]; then
        end "$etcd"
        etcd=
    fi
    rm -rf "$work/data" "$work/etcd"
}

# code_of HOST:PORT PATH: prints the status code of the response to a GET; nothing if there is no response.
code_of() {
    (
        exec {wire}<>"/dev/tcp/${1%:*}/${1##*:}"
        printf 'GET %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n' "$2" "$1" >&"$wire"
        read -r _ code _ <&"$wire"
        echo "$code"
    ) 2>/dev/null || true
}

# is_listening PORT: succeeds if a process listens on PORT.
is_listening() {
    (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null
}

start_etcd() {
    local program client peer tries=600
    program=$(scripts/etcd)
    # Below the range from which the kernel assigns ports to clients; a run uses thousands of those.
    client=$((20000 + RANDOM % 5000 * 2))
    while is_listening "$client" || is_listening $((client + 1)); do
        client=$((client + 2))
    done
    peer=$((client + 1))
    "$program" --data-dir "$work/etcd" --log-level warn \
        --listen-client-urls "http://127.0.0.1:$client" \
        --advertise-client-urls "http://127.0.0.1:$client" \
        --listen-peer-urls "http://127.0.0.1:$peer" \
        --initial-advertise-peer-urls "http://127.0.0.1:$peer" \
        --initial-cluster "default=http://127.0.0.1:$peer" 2>"$work/etcd.log" &
    etcd=$!
    etcd_url=http://127.0.0.1:$client
    # etcd listens before it has a leader; a client would wait for the leader.
    until [ "$(code_of "127.0.0.1:$client" /health)" = 200 ]; do
        tries=$((tries - 1))
        if [ "$tries" = 0 ]; then
            echo "scripts/bench: etcd is not ready" >&2
            cat "$work/etcd.log" >&2
            exit 1
        fi
        sleep 0.05
    done
}

# micros: prints the time in microseconds.
micros() {
    local now=$EPOCHREALTIME
    echo $((${now%[.,]*} * 1000000 + 10#${now#*[.,]}))
}

# launch STORAGE: starts a server on the existing data; with STORAGE etcd, etcd must run. Sets server (its PID), plain
# (the URL of its insecure port), KUBECONFIG, began (the start time) and ready_ms (the time until it printed that it is
# ready).
launch() {
    local arguments=(--storage "$1") line ready=
    if [ "$1" = etcd ]; then
        arguments+=(--etcd-servers "$etcd_url")
    fi
    rm -f "$work/out"
    mkfifo "$work/out"
    began=$(micros)
    "$binary" serve --data-dir "$work/data" --secure-port 0 --insecure-port auto \
        "${arguments[@]}" >"$work/out" 2>"$work/server.log" &
    server=$!
    exec {out}<"$work/out"
    while [ -z "$ready" ] && IFS= read -r -t 60 -u "$out" line; do
        case $line in
        "Serving http:"*)
            plain=${line#Serving }
            plain=${plain%% *}
            ;;
        "watchet is ready"*) ready=yes ;;
        esac
    done
    ready_ms=$(since "$began")
    if [ -z "$ready" ]; then
        echo "scripts/bench: the server is not ready" >&2
        cat "$work/server.log" >&2
        exit 1
    fi
    export KUBECONFIG=$work/data/kubeconfig
}

# since MICROS: prints the milliseconds since the time MICROS.
since() {
    awk -v from="$1" -v to="$(micros)" 'BEGIN { printf "%.1f", (to - from) / 1000 }'
}

# fresh_server STORAGE: starts a server without data.
fresh_server() {
    stop_server
    if [ "$1" = etcd ]; then
        start_etcd
    fi
    launch "$1"
}

# check_get PATH: sends a GET to the server over plain HTTP/1.1; a status other than 200 counts as a failure.
check_get() {
    local code
    code=$(code_of "${plain#http://}" "$1")
    if [ "$code" != 200 ]; then
        echo "scripts/bench: failed: GET $1: $code" >&2
        failures=$((failures + 1))
    fi
}

# server_cpu_s: prints the CPU time of the server in seconds.
server_cpu_s() {
    awk '{ sub(/.*\)/, ""); printf "%.2f", ($12 + $13) / 100 }' "/proc/$server/stat"
}

# server_rss_mb: prints the resident memory of the server in megabytes.
server_rss_mb() {
    awk '/^VmRSS:/ { printf "%.1f", $2 * 1024 / 1e6 }' "/proc/$server/status"
}
