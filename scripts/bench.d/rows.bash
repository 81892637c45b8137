# The rows of the table: the load and the size of each. Sourced by scripts/bench. goals.tsv has the goals, under the
# same names.
# shellcheck shell=bash

# row NAME VALUE: adds a value to the table, in the column $column.
row() {
    printf '%s\t%s\t%s\n' "$column" "$1" "$2" >>"$work/results.tsv"
    printf '%-10s %-62s %s\n' "$column" "$1" "$2" >&2
}

# medians LINES NAME...: adds the median of the n-th field of all LINES to the row of the n-th NAME.
medians() {
    local lines=$1 field=0 name
    shift
    for name in "$@"; do
        field=$((field + 1))
        row "$name" "$(awk -v field=$field 'NF { print $field }' <<<"$lines" | sort -g |
            awk '{ value[NR] = $1 } END { print NR ? value[int((NR + 1) / 2)] : "-" }')$(mark "$lines" "$name")"
    done
}

# mark LINES NAME: prints a * if the last field of a line says that the load generator was the bottleneck, and the row
# is a rate or a latency: CPU time and memory per unit of work remain valid.
mark() {
    case $2 in
    *CPU* | *KiB* | *MB*) ;;
    *) awk '$NF == "true" { found = 1 } END { if (found) printf "*" }' <<<"$1" ;;
    esac
}

# measure "KEY=ROW ..." ARGUMENTS...: runs `watchet bench ARGUMENTS` BENCH_RUNS times and adds the median of each KEY of
# the reports to its ROW. RUN in an argument is replaced by the number of the run. With --against, the runs of the other
# server are in between.
measure() {
    local prints=(--saturate) names=() lines="" others="" run item other=()
    while IFS= read -r item; do
        prints+=(--print "${item%%=*}")
        names+=("${item#*=}")
    done <<<"$1"
    prints+=(--print generator_is_bottleneck)
    shift
    of_other "$@"
    for ((run = 1; run <= runs; run++)); do
        lines+=$(bench "${@//RUN/$run}" "${prints[@]}")$'\n'
        if [ ${#other[@]} != 0 ]; then
            others+=$(bench "${other[@]//RUN/$run}" "${prints[@]}")$'\n'
        fi
    done
    medians "$lines" "${names[@]}"
    if [ ${#other[@]} != 0 ]; then
        local column=other
        medians "$others" "${names[@]}"
    fi
}

# bench ARGUMENTS...: runs `watchet bench ARGUMENTS`.
bench() {
    "$binary" bench "$@" || fail "watchet bench $*"
}

# of_other ARGUMENTS...: sets other to the arguments for the other server; empty if there is none, or if the arguments
# are for the floor or for the insecure port, which it does not have.
of_other() {
    local argument previous=
    other=()
    if [ -z "$against" ]; then
        return
    fi
    for argument in "$@"; do
        if [ "$argument" = floor ] || [ "$argument" = --server ]; then
            other=()
            return
        fi
        if [ "$previous" = --pid ]; then
            argument=$against_pid
        fi
        other+=("$argument")
        previous=$argument
    done
    other+=(--kubeconfig "$against")
}

# on_other LOAD ARGUMENTS...: runs a load on the other server, if there is one.
on_other() {
    if [ -n "$against" ]; then
        bench "$@" --kubeconfig "$against" --pid "$against_pid" --saturate
    fi
}

# once COMMAND...: runs COMMAND with a single run per measurement.
once() {
    local runs=1
    "$@"
}

watch_rows() {
    echo "cpu_us_per_event=watch, 50 events/s${1:-}: CPU us per delivered event"
    echo "latency_us_last.p99=watch, 50 events/s${1:-}: p99 us to the last watcher"
}
burst_rows() {
    echo "cpu_us_per_event=watch, burst of 300: CPU us per delivered event"
    echo "elapsed_ms=watch, burst of 300: ms to write and deliver all"
}
list_rows() {
    echo "cpu_ms_per_megabyte=list all pods, $1: CPU ms per MB"
    echo "latency_us.p50=list all pods, $1: median us"
}
idle_row="rss_kib_per_watcher=watch, idle, a connection each: KiB per watcher"

watchers=$(scaled 1000)
pods=$(scaled 50000)
steady=(--watchers "$watchers" --events "$(scaled 500)" --rate 50)
burst=(--watchers "$watchers" --events "$(scaled 300)" --rate 4000 --writers 8)
# Linux counts the CPU time of a process in hundredths of a second, so cheap requests are repeated often.
cheap_requests=$(scaled 5000)

# The floor has neither TLS nor versions, so one figure is used for several rows.
measure_floor() {
    column=floor
    measure "$(watch_rows; watch_rows ", plain")" floor watch "${steady[@]}"
    measure "$(burst_rows)" floor watch "${burst[@]}"
    measure "$idle_row" floor watch --watchers "$watchers" --events 0
    measure "$(list_rows "RV 0"; list_rows "RV 0, plain"; list_rows consistent)" \
        floor list --count "$pods" --size 3000 --requests 20
}

# measure_starts STORAGE: starts a server without objects, once without certificates and once with existing ones.
measure_starts() {
    local lines="" firsts="" run
    for ((run = 1; run <= runs; run++)); do
        fresh_server "$1"
        firsts+=$ready_ms$'\n'
        halt_server
        rm -rf "$work/data/store"
        if [ "$1" = etcd ]; then
            end "$etcd"
            rm -rf "$work/etcd"
            start_etcd "${etcd_flags[@]}"
        fi
        launch "$1"
        check_get /api/v1/namespaces
        lines+="$ready_ms $(since "$began") $(server_rss_mb)"$'\n'
    done
    medians "$firsts" "first start, certificates made: ms until ready"
    medians "$lines" "empty start: ms until ready" "empty start: ms until the first answer" \
        "empty start: resident MB"
}

# Each measurement of memory has a server of its own, because a process reuses memory that it has freed.
measure_idle() {
    local many
    many=$(scaled 10000)
    fresh_server "$1"
    once measure "$idle_row" watch --watchers "$watchers" --events 0 --pid "$server"
    fresh_server "$1"
    once measure "rss_kib_per_watcher=watch, idle, 100 a connection: KiB per watcher" \
        watch --watchers "$many" --connections "$(((many + 99) / 100))" --events 0 --pid "$server"
}

measure_watches() {
    local pid=(--pid "$server") selective=(watch --mode selective --events "$cheap_requests" --rate 500)
    measure "$(watch_rows)" watch "${steady[@]}" "${pid[@]}"
    measure "$(watch_rows ", plain")" \
        watch "${steady[@]}" --server "$plain" --http 1.1 "${pid[@]}"
    measure "$(watch_rows ", protobuf")" watch "${steady[@]}" --accept protobuf "${pid[@]}"
    measure "$(burst_rows)" watch "${burst[@]}" "${pid[@]}"
    measure "cpu_us_per_write=watch by node, 1 watcher: CPU us per write" \
        "${selective[@]}" --watchers 1 "${pid[@]}"
    measure "cpu_us_per_write=watch by node, a watcher each: CPU us per write" \
        "${selective[@]}" --watchers "$watchers" "${pid[@]}"
}

# All rows have the same number of deliveries per second, so that a write contains the same number of events.
measure_watch_growth() {
    local cpu=cpu_us_per_event pid=(--pid "$server") shared
    local few=(--events 3000 --rate 500) more=(--events 300 --rate 50) most=(--events 30 --rate 5)
    shared=$(((watchers + 99) / 100))
    measure "$cpu=growth, 100 watchers: CPU us per delivered event" \
        watch --watchers "$(scaled 100)" "${few[@]}" "${pid[@]}"
    measure "$cpu=growth, 1,000 watchers: CPU us per delivered event" \
        watch --watchers "$watchers" "${more[@]}" "${pid[@]}"
    measure "$cpu=growth, 1,000 watchers, 100 a connection: CPU us per delivered event" \
        watch --watchers "$watchers" --connections "$shared" "${more[@]}" "${pid[@]}"
    shared=$((($(scaled 10000) + 99) / 100))
    measure "$cpu=growth, 10,000 watchers, 100 a connection: CPU us per delivered event" \
        watch --watchers "$(scaled 10000)" --connections "$shared" "${most[@]}" "${pid[@]}"
    # A delivery is one event sent to one watcher; the time is from the first write to the last delivery.
    measure "deliveries_per_s=burst without a pause: deliveries per second, none lost" \
        watch --watchers "$watchers" --events "$(scaled 1500)" --rate 0 --writers 64 "${pid[@]}"
}

measure_lists() {
    local pid=(--pid "$server") lists=(list pods --requests) cpu=cpu_ms_per_request name
    measure "$(list_rows "RV 0")" "${lists[@]}" 20 --resource-version 0 "${pid[@]}"
    measure "$(list_rows "RV 0, plain")" \
        "${lists[@]}" 20 --resource-version 0 --server "$plain" --http 1.1 "${pid[@]}"
    measure "$(list_rows consistent)" "${lists[@]}" 20 "${pid[@]}"
    measure "$(list_rows protobuf)" "${lists[@]}" 20 --accept protobuf "${pid[@]}"
    for name in watch-list list; do
        measure "cpu_ms_per_megabyte=$name of all pods by 10 concurrent clients: CPU ms per MB
latency_us_complete.p99=$name of all pods by 10 concurrent clients: p99 us" \
            storm pods --clients 10 --by "$name" "${pid[@]}"
    done
    measure "cpu_ms_per_megabyte=watch-list of all pods by 10 concurrent clients, protobuf: CPU ms per MB" \
        storm pods --clients 10 --by watch-list --accept protobuf "${pid[@]}"
    measure "$cpu=list, label selector that matches none: CPU ms" \
        "${lists[@]}" "$(scaled 200)" --label-selector tier=none "${pid[@]}"
    measure "$cpu=list by spec.nodeName, 50 pods: CPU ms" \
        "${lists[@]}" "$cheap_requests" --field-selector spec.nodeName=node-7 "${pid[@]}"
    measure "$cpu=list limit=500: CPU ms" "${lists[@]}" "$(scaled 500)" --limit 500 "${pid[@]}"
    for name in protobuf table metadata metadata-protobuf; do
        measure "$cpu=list limit=500, $name: CPU ms" \
            "${lists[@]}" "$(scaled 300)" --limit 500 --accept "$name" "${pid[@]}"
    done
    measure "$cpu=get, consistent: CPU ms" \
        get pods --count "$pods" --requests "$(scaled 20000)" "${pid[@]}"
}

# measure_pods STORAGE: the measurements with all pods: memory, lists and restarts.
measure_pods() {
    local before after run
    local fill=(fill pods --count "$pods" --size 3000 --nodes $((pods > 50 ? pods / 50 : 1)) --print rss_bytes_after)
    local warm=(list pods --requests 1 --print rss_bytes_after) json
    fresh_server "$1"
    # The other server cannot start again, so the objects of earlier rows are deleted instead.
    for ((run = 1; run <= runs; run++)); do
        on_other clear configmaps --namespace "bench-$run" --count "$(scaled 20000)" --print requests >/dev/null
    done
    # Starts the cache of pods, so that the difference is the memory of the pods only.
    before=$(bench "${warm[@]}" --pid "$server" --saturate)
    after=$(bench "${fill[@]}" --pid "$server" --saturate)
    json=$(bench list pods --resource-version 0 --requests 1 --pid "$server" --saturate --print bytes)
    memory_row
    if [ -n "$against" ]; then
        before=$(on_other "${warm[@]}")
        after=$(on_other "${fill[@]}")
        (column=other && memory_row)
    fi
    measure_lists
    on_other clear pods --count "$pods" --print requests >/dev/null
    measure_restart "$1"
}

# memory_row: adds the row of the memory that the pods take, from $before, $after and $json, the size of a list of them.
memory_row() {
    row "memory with the pods cached, above idle: x of their JSON" \
        "$(awk -v after="$after" -v before="$before" -v json="$json" \
            'BEGIN { printf "%.2f", (after - before) / json }')"
}

# measure_restart STORAGE: restarts the server that has the pods. Only the cache answers a consistent list without a
# limit, so the list waits until the cache is filled; its selector matches no pod.
measure_restart() {
    local lines="" run items
    for ((run = 1; run <= runs; run++)); do
        halt_server
        launch "$1"
        check_get "/api/v1/pods?labelSelector=tier%3Dnone"
        lines+="$ready_ms $(since "$began") $(server_cpu_s)"$'\n'
    done
    items=$(bench list pods --resource-version 0 --requests 1 --saturate --print items)
    if [ "$items" != "$pods" ]; then
        fail "$items of $pods pods are left after a restart"
    fi
    medians "$lines" "restart with the pods: ms until ready" \
        "restart with the pods: ms until the cache answers" \
        "restart with the pods: CPU s until the cache answers"
}

# measure_writes_at COUNT: changes 500 other config maps while COUNT of them exist.
measure_writes_at() {
    local churn=(churn --watchers 0 --objects 500 --size 300 --operations "$(scaled 20000)")
    measure "cpu_ms_per_operation=growth, $1 objects: CPU ms per update" \
        "${churn[@]}" --mix update=1 --pid "$server"
    measure "cpu_ms_per_operation=growth, $1 objects: CPU ms per create or delete" \
        "${churn[@]}" --mix delete=1 --pid "$server"
}

# Embedded store only: with etcd, the cost of a larger store is etcd's.
measure_write_growth() {
    local fill=(fill configmaps --size 300 --connections 64 --saturate) rate
    fresh_server embedded
    bench "${fill[@]}" --namespace grow-1 --count "$(scaled 1000)" --print requests >/dev/null
    measure_writes_at 1,000
    rate=$(bench "${fill[@]}" --namespace grow-2 --count "$(scaled 99000)" \
        --print requests_per_s)
    measure_writes_at 100,000
    if [ "$scale" -lt 100 ]; then
        return
    fi
    if ! awk -v rate="$rate" 'BEGIN { exit !(900000 / rate < 180) }'; then
        echo "scripts/bench: skipped 1,000,000 objects: at $rate/s their creation takes too long" >&2
        return
    fi
    bench "${fill[@]}" --namespace grow-3 --count 900000 --print requests >/dev/null
    measure_writes_at 1,000,000
}

measure_storage() {
    local name
    column=$1
    measure_starts "$1"
    measure_idle "$1"
    fresh_server "$1"
    measure "cpu_ms_per_request=create config maps of 1 KB, 16 writers: CPU ms
requests_per_s=create config maps of 1 KB, 16 writers: per second" \
        fill configmaps --namespace bench-RUN --count "$(scaled 20000)" --pid "$server"
    measure "cpu_ms_per_request=create config maps of 1 KB, one client, 100 per second: CPU ms" \
        fill configmaps --namespace paced-RUN --count "$(scaled 2000)" --rate 100 --connections 1 --pid "$server"
    for name in json protobuf; do
        measure "cpu_ms_per_request=create pods of 3 KB, 8 writers, $name: CPU ms" \
            write pods --verb create --size 3000 --connections 8 --requests "$(scaled 5000)" \
            --accept "$name" --pid "$server"
    done
    measure_watches
    measure_watch_growth
    measure_pods "$1"
    if [ "$1" = embedded ]; then
        measure_write_growth
    fi
    stop_server
}
