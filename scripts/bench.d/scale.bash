# The measurements of `scripts/bench scale`: sizes of a large fleet. Each prints its figures with `figure`. Sourced by
# scripts/bench. Sizes are those of docs/benchmarks.md ("Scale") as far as the machine has the memory and cores.
# shellcheck shell=bash

# figure NAME VALUE: adds a row to the table.
figure() {
    printf '%s\t%s\n' "$1" "$2" >>"$work/scale.tsv"
    printf '%-80s %s\n' "$1" "$2" >&2
}

# figures LINE NAME...: adds the n-th field of LINE to the row of the n-th NAME.
figures() {
    local line=$1 name field=0
    shift
    for name in "$@"; do
        field=$((field + 1))
        figure "$name" "$(awk -v field=$field '{ print $field }' <<<"$line")"
    done
}

# fitting FULL BYTES: prints BENCH_SCALE percent of FULL, but not more than take half of the free memory at BYTES each.
fitting() {
    local size limit
    size=$(scaled "$1")
    limit=$(awk -v each="$2" '/^MemAvailable:/ { printf "%d", $2 * 1024 / 2 / each }' /proc/meminfo)
    echo $((size < limit ? size : limit))
}

# wait_until COMMAND...: repeats a command until it succeeds, for at least a minute.
wait_until() {
    local tries=1200
    until "$@"; do
        tries=$((tries - 1))
        if [ "$tries" = 0 ]; then
            fail "no success within a minute: $*"
            return
        fi
        sleep 0.05
    done
}

# is_served PATH: succeeds if a GET over the insecure port does.
is_served() {
    [ "$(code_of "${plain#http://}" "$1")" = 200 ]
}

# Only a filled cache answers a consistent list without a limit; the selector matches no pod.
filled_cache="/api/v1/pods?labelSelector=tier%3Dnone"

# scale_objects: 1,000,000 pods of 1 KB in the embedded store.
scale_objects() {
    local count pid before line
    count=$(fitting 1000000 4000)
    fresh_server embedded
    pid=(--pid "$server" --saturate)
    local update=(write pods --verb update --objects 500 --requests "$(scaled 10000)" --print cpu_ms_per_request)
    figure "objects: CPU ms per update, with 500 objects" "$(bench "${update[@]}" "${pid[@]}")"
    before=$(bench list pods --requests 1 --print rss_bytes_after "${pid[@]}")
    line=$(bench fill pods --count "$count" --size 1024 --nodes $((count > 50 ? count / 50 : 1)) --connections 64 \
        --print requests_per_s --print rss_bytes_after "${pid[@]}")
    figure "objects: pods of 1 KB in one resource" "$count"
    figure "objects: created per second" "$(awk '{ printf "%.0f", $1 }' <<<"$line")"
    figure "objects: bytes of memory per object" \
        "$(awk -v before="$before" -v count="$count" '{ printf "%.0f", ($2 - before) / count }' <<<"$line")"
    figure "objects: CPU ms per update, with all" "$(bench "${update[@]}" "${pid[@]}")"
    figures "$(bench list pods --limit 500 --requests 200 --print cpu_ms_per_request --print latency_us.p99 "${pid[@]}")" \
        "objects: CPU ms of a page of 500" "objects: p99 us of a page of 500"
    figures "$(bench list pods --field-selector spec.nodeName=node-7 --requests 2000 --print cpu_ms_per_request \
        --print latency_us.p99 "${pid[@]}")" \
        "objects: CPU ms of an index look-up (the pods of a node)" "objects: p99 us of an index look-up"
    figures "$(bench storm pods --clients 1 --timeout 600 --print elapsed_ms --print cpu_ms_per_client "${pid[@]}")" \
        "objects: ms of a watch-list of all" "objects: CPU ms of a watch-list of all"
    halt_server
    launch embedded
    wait_until is_served "$filled_cache"
    figure "objects: ms from start until the cache answers" "$(since "$began")"
}

# scale_watchers: 100,000 watchers, 100 a connection, which all receive each of a few events.
scale_watchers() {
    local count
    count=$(fitting 100000 20000)
    fresh_server memory
    figure "watchers: open, 100 a connection" "$count"
    figures "$(bench watch --watchers "$count" --connections $(((count + 99) / 100)) --events 10 --rate 0.5 \
        --timeout 120 --print rss_kib_per_watcher --print open_ms --print latency_us_last.p50 \
        --print latency_us_last.max --print cpu_us_per_event --pid "$server" --saturate)" \
        "watchers: KiB of memory each" "watchers: ms to open all" "watchers: median us until the last has an event" \
        "watchers: maximum us until the last has an event" "watchers: CPU us per delivered event"
}

# scale_updates: a source of updates, the cache and 100 watchers in one process, without HTTP.
scale_updates() {
    local line
    line=$(cargo bench --quiet --bench updates -- --seconds "$(scaled 10)" | tail -n 1) || fail "cargo bench --bench updates"
    figures "$line" "updates: per second through memory storage, cache and 100 watchers" \
        "updates: deliveries per second to the 100 watchers" \
        "updates: per second from a synthetic source, through cache and 100 watchers" \
        "updates: deliveries per second of the synthetic source to the 100 watchers"
}

# scale_deliveries: as many deliveries per second as the cores allow, up to 1,000,000, for a minute.
scale_deliveries() {
    local deliveries watchers rate seconds
    watchers=$(fitting 5000 100000)
    deliveries=${BENCH_DELIVERIES:-$(scaled $(($(nproc) * 125000 > 1000000 ? 1000000 : $(nproc) * 125000)))}
    rate=$(awk -v deliveries="$deliveries" -v watchers="$watchers" 'BEGIN { printf "%.3f", deliveries / watchers }')
    seconds=$(scaled 60)
    fresh_server memory
    figure "deliveries: offered per second" "$deliveries"
    figures "$(bench watch --watchers "$watchers" --connections $(((watchers + 99) / 100)) --size 300 \
        --events "$(awk -v rate="$rate" -v seconds="$seconds" 'BEGIN { printf "%d", rate * seconds }')" \
        --rate "$rate" --writers 8 --print deliveries_per_s --print latency_us_each.p99 --print cpu_us_per_event \
        --print generator_is_bottleneck --pid "$server" --saturate)" \
        "deliveries: received per second over $seconds s" "deliveries: p99 us from the acknowledgement to each watcher" \
        "deliveries: CPU us each" "deliveries: the load generator was the bottleneck"
}

# scale_cold_etcd: from the start of a server on an etcd that has just started, with 300,000 pods, to its filled cache.
scale_cold_etcd() {
    local count
    count=$(fitting 300000 8000)
    fresh_server etcd
    bench fill pods --count "$count" --size 1024 --nodes 10000 --connections 64 --print requests --saturate >/dev/null
    halt_server
    end "$etcd"
    start_etcd "${etcd_flags[@]}"
    launch etcd
    wait_until is_served "$filled_cache"
    figure "cold etcd: pods" "$count"
    figure "cold etcd: ms from start until the cache answers" "$(since "$began")"
    figure "cold etcd: CPU s of the server" "$(server_cpu_s)"
    figure "cold etcd: resident MB of the server" "$(server_rss_mb)"
}

# metric NAME [LABEL]: prints the sum of a metric of etcd.
metric() {
    exec {wire}<>"/dev/tcp/127.0.0.1/${etcd_url##*:}"
    printf 'GET /metrics HTTP/1.0\r\n\r\n' >&"$wire"
    awk -v name="$1" -v label="${2:-}" 'index($0, name) == 1 && substr($0, length(name) + 1, 1) ~ /[ {]/ &&
        index($0, label) { sum += $NF } END { printf "%d", sum }' <&"$wire"
    exec {wire}>&-
}

# requests_of_etcd: prints how many requests etcd has answered.
requests_of_etcd() {
    metric grpc_server_handled_total
}

# cpu_ticks PID: prints the CPU time of a process in hundredths of a second.
cpu_ticks() {
    awk '{ sub(/.*\)/, ""); print $12 + $13 }' "/proc/$1/stat"
}

# scale_replicas: 1, 2 and 3 servers on one etcd, each with few and with many watchers and readers, while one of them
# writes 100 times per second.
scale_replicas() {
    local seconds=20 servers=() kubeconfigs=() number watchers readers name
    fresh_server etcd
    servers+=("$server")
    kubeconfigs+=("$work/data/kubeconfig")
    for number in 1 2 3; do
        if [ "$number" != 1 ]; then
            launch_replica "$number"
        fi
        for watchers in 1 "$(scaled 1000)"; do
            readers=$((watchers > 1 ? 8 : 1))
            replicas_loaded
        done
    done
    for number in 2 3; do
        end "${servers[number - 1]}"
    done
}

# launch_replica N: starts the N-th server on the same etcd, with the data directory of its own.
launch_replica() {
    local tries=600
    "$binary" serve --data-dir "$work/data-$1" --secure-port 0 --storage etcd --etcd-servers "$etcd_url" \
        </dev/null >"$work/replica-$1.out" 2>"$work/replica-$1.log" &
    servers+=($!)
    kubeconfigs+=("$work/data-$1/kubeconfig")
    until grep -q "^watchet is ready" "$work/replica-$1.out"; do
        tries=$((tries - 1))
        if [ "$tries" = 0 ]; then
            echo "scripts/bench: server $1 is not ready" >&2
            cat "$work/replica-$1.log" >&2
            exit 1
        fi
        sleep 0.05
    done
}

# watchers_of KUBECONFIG: prints the number of open watches of a server, including those of the server itself.
watchers_of() {
    "$binary" status --kubeconfig "$1" --output json | grep -o '"watchers":[0-9]*' | cut -d : -f 2
}

# has_watchers KUBECONFIG NUMBER: succeeds if a server has at least NUMBER watchers.
has_watchers() {
    [ "$(watchers_of "$1")" -ge "$2" ]
}

# replicas_loaded: loads all servers for $seconds, and adds what etcd has done.
replicas_loaded() {
    local loads=() own=() replica requests ticks watching
    local held=(--hold "$seconds" --mode selective --events 0 --watchers "$watchers")
    for ((replica = 0; replica < number; replica++)); do
        local kubeconfig=(--kubeconfig "${kubeconfigs[replica]}" --saturate --print load)
        own+=("$(watchers_of "${kubeconfigs[replica]}")")
        if [ "$replica" = 0 ]; then
            bench watch --watchers "$watchers" --events $((seconds * 100)) --rate 100 "${kubeconfig[@]}" >/dev/null &
        else
            bench watch "${held[@]}" "${kubeconfig[@]}" >/dev/null &
        fi
        loads+=($!)
    done
    # Wait until all watches are open. Before that, the load generators create the objects that they watch, which must not be
    # counted.
    for ((replica = 0; replica < number; replica++)); do
        wait_until has_watchers "${kubeconfigs[replica]}" $((own[replica] + watchers))
    done
    # The writes have begun.
    sleep 1
    requests=$(requests_of_etcd)
    ticks=$(cpu_ticks "$etcd")
    for ((replica = 0; replica < number; replica++)); do
        bench list configmaps --resource-version 0 --namespace bench --requests $((readers * 200)) \
            --connections "$readers" --kubeconfig "${kubeconfigs[replica]}" --saturate --print load >/dev/null &
        loads+=($!)
    done
    sleep 4
    watching=$(metric etcd_debugging_mvcc_watcher_total)
    name="replicas: $number servers, $watchers watchers and $readers readers each"
    figure "$name: watchers of etcd" "$watching"
    figure "$name: requests to etcd per second" "$((($(requests_of_etcd) - requests) / 4))"
    figure "$name: CPU of etcd, percent of a core" "$((($(cpu_ticks "$etcd") - ticks) / 4))"
    wait "${loads[@]}"
}

scale_all() {
    local name
    for name in "$@"; do
        "scale_$name"
    done
    stop_server
}

# scale_table: prints the figures as Markdown.
scale_table() {
    awk -F'\t' 'BEGIN { print "| measurement | figure |\n|---|---|" } { printf "| %s | %s |\n", $1, $2 }' "$work/scale.tsv"
}
