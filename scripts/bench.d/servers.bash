# Starts and ends the measured servers, watchet and etcd, on free ports, and times each start. Sourced by
# scripts/bench, which sets $binary, $work and $etcd_flags.
# shellcheck shell=bash

# shellcheck source=scripts/bench.d/processes.bash
. scripts/bench.d/processes.bash

server=
out=

# fail WHAT: reports and records a failed measurement; scripts/bench ends with an error.
fail() {
    echo "scripts/bench: failed: $1" >&2
    echo "$1" >>"$work/failures"
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
        start_etcd "${etcd_flags[@]}"
    fi
    launch "$1"
}

# check_get PATH: sends a GET to the server over plain HTTP/1.1; a status other than 200 counts as a failure.
check_get() {
    local code
    code=$(code_of "${plain#http://}" "$1")
    if [ "$code" != 200 ]; then
        fail "GET $1: $code"
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
