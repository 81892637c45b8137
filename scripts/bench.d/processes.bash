# Functions of scripts that start servers: ports, etcd, and the end of a process. Sourced by scripts/bench and
# scripts/kube-apiserver, which set $work, a directory.
# shellcheck shell=bash

etcd=

# end PID: sends SIGTERM to a process and waits for its end.
end() {
    kill "$1" 2>/dev/null || true
    wait "$1" 2>/dev/null || true
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

# free_port: prints a port P so that no process listens on P and P + 1.
free_port() {
    local port
    # Below the range from which the kernel assigns ports to clients; a run uses thousands of those.
    port=$((20000 + RANDOM % 5000 * 2))
    while is_listening "$port" || is_listening $((port + 1)); do
        port=$((port + 2))
    done
    echo "$port"
}

# start_etcd [FLAG...]: starts an etcd on $work/etcd. Sets etcd (its PID) and etcd_url.
start_etcd() {
    local program client peer tries=600
    program=$(scripts/etcd)
    client=$(free_port)
    peer=$((client + 1))
    "$program" --data-dir "$work/etcd" --log-level warn \
        --listen-client-urls "http://127.0.0.1:$client" \
        --advertise-client-urls "http://127.0.0.1:$client" \
        --listen-peer-urls "http://127.0.0.1:$peer" \
        --initial-advertise-peer-urls "http://127.0.0.1:$peer" \
        --initial-cluster "default=http://127.0.0.1:$peer" "$@" </dev/null >"$work/etcd.log" 2>&1 &
    etcd=$!
    etcd_url=http://127.0.0.1:$client
    # etcd listens before it has a leader; a client would wait for the leader.
    until [ "$(code_of "127.0.0.1:$client" /health)" = 200 ]; do
        tries=$((tries - 1))
        if [ "$tries" = 0 ]; then
            echo "$0: etcd is not ready" >&2
            cat "$work/etcd.log" >&2
            exit 1
        fi
        sleep 0.05
    done
}
