# The rows of the table: which load each is, of which size. Sourced by scripts/bench. What is to be reached
# stands in goals.tsv, by the same names.
# shellcheck shell=bash

# row NAME VALUE: puts a value into the present column.
row() {
    printf '%s\t%s\t%s\n' "$column" "$1" "$2" >>"$work/results.tsv"
    printf '%-10s %-62s %s\n' "$column" "$1" "$2" >&2
}

# medians LINES NAME...: puts the median of each field of the lines into the row of its name.
medians() {
    local lines=$1 field=0 name
    shift
    for name in "$@"; do
        field=$((field + 1))
        row "$name" "$(awk -v field=$field 'NF { print $field }' <<<"$lines" | sort -g |
            awk '{ value[NR] = $1 } END { print NR ? value[int((NR + 1) / 2)] : "-" }')"
    done
}

# measure "KEY=ROW ..." ARGUMENTS...: runs a load as often as asked for and puts the median of each KEY
# of its report into its ROW. RUN in an argument is the number of the run.
measure() {
    local prints=() names=() lines="" run item
    while IFS= read -r item; do
        prints+=(--print "${item%%=*}")
        names+=("${item#*=}")
    done <<<"$1"
    shift
    for ((run = 1; run <= runs; run++)); do
        if ! lines+=$("$binary" bench "${@//RUN/$run}" "${prints[@]}")$'\n'; then
            echo "scripts/bench: failed: watchet bench ${*//RUN/$run}" >&2
            failures=$((failures + 1))
        fi
    done
    medians "$lines" "${names[@]}"
}

# once COMMAND...: with one run.
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

watchers=$(part 1000)
pods=$(part 50000)
steady=(--watchers "$watchers" --events "$(part 500)" --rate 50)
burst=(--watchers "$watchers" --events "$(part 300)" --rate 4000 --writers 8)
# The least that processes measure is a hundredth of a second: requests that cost little are many.
often=$(part 5000)

# The floor knows no TLS and no versions, so it is the same for several rows.
measure_floor() {
    column=floor
    measure "$(watch_rows; watch_rows ", plain")" floor watch "${steady[@]}"
    measure "$(burst_rows)" floor watch "${burst[@]}"
    measure "$idle_row" floor watch --watchers "$watchers" --events 0
    measure "$(list_rows "RV 0"; list_rows "RV 0, plain"; list_rows consistent)" \
        floor list --count "$pods" --size 3000 --requests 20
}

# measure_starts STORAGE: of a server that holds nothing, with certificates to be made, and with those of
# the last time.
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
            start_etcd
        fi
        launch "$1"
        ask /api/v1/namespaces
        lines+="$ready_ms $(since "$began") $(server_rss_mb)"$'\n'
    done
    medians "$firsts" "first start, certificates made: ms until ready"
    medians "$lines" "empty start: ms until ready" "empty start: ms until the first answer" \
        "empty start: resident MB"
}

# Memory that was used and freed is used again, so each of these needs a server of its own.
measure_idle() {
    local many
    many=$(part 10000)
    fresh_server "$1"
    once measure "$idle_row" watch --watchers "$watchers" --events 0 --pid "$server"
    fresh_server "$1"
    once measure "rss_kib_per_watcher=watch, idle, 100 a connection: KiB per watcher" \
        watch --watchers "$many" --connections "$(((many + 99) / 100))" --events 0 --pid "$server"
}

measure_watches() {
    local pid=(--pid "$server") selective=(watch --mode selective --events "$often" --rate 500)
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

# The same number of deliveries a second for all, so that what is written together is as much.
measure_watch_growth() {
    local cpu=cpu_us_per_event pid=(--pid "$server") shared
    local few=(--events 3000 --rate 500) more=(--events 300 --rate 50) most=(--events 30 --rate 5)
    shared=$(((watchers + 99) / 100))
    measure "$cpu=growth, 100 watchers: CPU us per delivered event" \
        watch --watchers "$(part 100)" "${few[@]}" "${pid[@]}"
    measure "$cpu=growth, 1,000 watchers: CPU us per delivered event" \
        watch --watchers "$watchers" "${more[@]}" "${pid[@]}"
    measure "$cpu=growth, 1,000 watchers, 100 a connection: CPU us per delivered event" \
        watch --watchers "$watchers" --connections "$shared" "${more[@]}" "${pid[@]}"
    shared=$((($(part 10000) + 99) / 100))
    measure "$cpu=growth, 10,000 watchers, 100 a connection: CPU us per delivered event" \
        watch --watchers "$(part 10000)" --connections "$shared" "${most[@]}" "${pid[@]}"
    # A delivery is one event sent to one watcher; the time is from the first write to the last delivery.
    measure "deliveries_per_s=burst without a pause: deliveries per second, none lost" \
        watch --watchers "$watchers" --events "$(part 1500)" --rate 0 --writers 64 "${pid[@]}"
}

measure_lists() {
    local pid=(--pid "$server") lists=(list pods --requests) cpu=cpu_ms_per_request name
    measure "$(list_rows "RV 0")" "${lists[@]}" 20 --resource-version 0 "${pid[@]}"
    measure "$(list_rows "RV 0, plain")" \
        "${lists[@]}" 20 --resource-version 0 --server "$plain" --http 1.1 "${pid[@]}"
    measure "$(list_rows consistent)" "${lists[@]}" 20 "${pid[@]}"
    measure "$(list_rows protobuf)" "${lists[@]}" 5 --accept protobuf "${pid[@]}"
    for name in watch-list list; do
        measure "cpu_ms_per_megabyte=$name of all pods by 10 concurrent clients: CPU ms per MB
latency_us_complete.p99=$name of all pods by 10 concurrent clients: p99 us" \
            storm pods --clients 10 --by "$name" "${pid[@]}"
    done
    measure "$cpu=list, label selector that matches none: CPU ms" \
        "${lists[@]}" "$(part 200)" --label-selector tier=none "${pid[@]}"
    measure "$cpu=list by spec.nodeName, 50 pods: CPU ms" \
        "${lists[@]}" "$often" --field-selector spec.nodeName=node-7 "${pid[@]}"
    measure "$cpu=list limit=500: CPU ms" "${lists[@]}" "$(part 500)" --limit 500 "${pid[@]}"
    measure "$cpu=get, consistent: CPU ms" \
        get pods --count "$pods" --requests "$(part 20000)" "${pid[@]}"
}

# measure_pods STORAGE: what needs all pods: their memory, lists, and a restart.
measure_pods() {
    local before bytes
    fresh_server "$1"
    # Opens the cache of pods, so that what is measured is what the pods need.
    before=$("$binary" bench list pods --requests 1 --pid "$server" --print rss_bytes_after)
    bytes=$("$binary" bench fill pods --count "$pods" --size 3000 \
        --nodes $((pods > 50 ? pods / 50 : 1)) --pid "$server" --print rss_bytes_after)
    row "memory with the pods cached, above idle: x of their JSON" \
        "$(awk -v after="$bytes" -v before="$before" -v json=$((pods * 3000)) \
            'BEGIN { printf "%.2f", (after - before) / json }')"
    measure_lists
    measure_restart "$1"
}

# measure_restart STORAGE: of the server that holds the pods. A list that is consistent, selects nothing
# and has no limit is answered by the cache alone, and waits for it.
measure_restart() {
    local lines="" run items
    for ((run = 1; run <= runs; run++)); do
        halt_server
        launch "$1"
        ask "/api/v1/pods?labelSelector=tier%3Dnone"
        lines+="$ready_ms $(since "$began") $(server_cpu_s)"$'\n'
    done
    items=$("$binary" bench list pods --resource-version 0 --requests 1 --print items)
    if [ "$items" != "$pods" ]; then
        echo "scripts/bench: failed: $items of $pods pods are left after a restart" >&2
        failures=$((failures + 1))
    fi
    medians "$lines" "restart with the pods: ms until ready" \
        "restart with the pods: ms until the cache answers" \
        "restart with the pods: CPU s until the cache answers"
}

# Of a type that has so many objects before: changes of others, whose number stays the same.
measure_writes_at() {
    local churn=(churn --watchers 0 --objects 500 --size 300 --operations "$(part 20000)")
    measure "cpu_ms_per_operation=growth, $1 objects: CPU ms per update" \
        "${churn[@]}" --mix update=1 --pid "$server"
    measure "cpu_ms_per_operation=growth, $1 objects: CPU ms per create or delete" \
        "${churn[@]}" --mix delete=1 --pid "$server"
}

# Only the embedded store is ours: what a larger one costs in etcd is etcd's.
measure_write_growth() {
    local fill=(fill configmaps --size 300 --connections 64) rate
    fresh_server embedded
    "$binary" bench "${fill[@]}" --namespace grow-1 --count "$(part 1000)" --print requests >/dev/null
    measure_writes_at 1,000
    rate=$("$binary" bench "${fill[@]}" --namespace grow-2 --count "$(part 99000)" \
        --print requests_per_s)
    measure_writes_at 100,000
    if [ "$scale" -lt 100 ]; then
        return
    fi
    if ! awk -v rate="$rate" 'BEGIN { exit !(900000 / rate < 180) }'; then
        echo "scripts/bench: 1,000,000 objects are left out: at $rate/s they take too long" >&2
        return
    fi
    "$binary" bench "${fill[@]}" --namespace grow-3 --count 900000 --print requests >/dev/null
    measure_writes_at 1,000,000
}

measure_storage() {
    column=$1
    measure_starts "$1"
    measure_idle "$1"
    fresh_server "$1"
    measure "cpu_ms_per_request=create config maps of 1 KB, 16 writers: CPU ms
requests_per_s=create config maps of 1 KB, 16 writers: per second" \
        fill configmaps --namespace bench-RUN --count "$(part 20000)" --pid "$server"
    measure_watches
    measure_watch_growth
    measure_pods "$1"
    if [ "$1" = embedded ]; then
        measure_write_growth
    fi
    stop_server
}
