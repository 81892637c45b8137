//! Tables of the levels, the queues and the requests, to debug flow control. Columns and layout are those of
//! kube-apiserver (`pkg/util/flowcontrol/apf_controller_debug.go`): values end with a comma, and are aligned. Queues without
//! requests have no state here, so they have no rows.

use std::time::Duration;

use crate::flow_control::FlowControl;
use crate::tracked_requests::TrackedRequest;

const LEVEL_COLUMNS: [&str; 10] = [
    "PriorityLevelName",
    "ActiveQueues",
    "IsIdle",
    "IsQuiescing",
    "WaitingRequests",
    "ExecutingRequests",
    "DispatchedRequests",
    "RejectedRequests",
    "TimedoutRequests",
    "CancelledRequests",
];

const QUEUE_COLUMNS: [&str; 9] = [
    "PriorityLevelName",
    "Index",
    "PendingRequests",
    "ExecutingRequests",
    "SeatsInUse",
    "NextDispatchR",
    "InitialSeatsSum",
    "MaxSeatsSum",
    "TotalWorkSum",
];

/// The fifth is misspelled as in kube-apiserver.
const REQUEST_COLUMNS: [&str; 10] = [
    "PriorityLevelName",
    "FlowSchemaName",
    "QueueIndex",
    "RequestIndexInQueue",
    "FlowDistingsher",
    "ArriveTime",
    "InitialSeats",
    "FinalSeats",
    "AdditionalLatency",
    "StartTime",
];

const DETAIL_COLUMNS: [&str; 8] = [
    "UserName",
    "Verb",
    "APIPath",
    "Namespace",
    "Name",
    "APIVersion",
    "Resource",
    "SubResource",
];

/// The `StartTime` of a request that waits: Go's zero time.
const NOT_STARTED: &str = "0001-01-01T00:00:00Z";

/// The index of a request that is in no queue.
const NO_INDEX: &str = "-1";

/// The minimum width of a column, and the spaces between columns.
const WIDTH_MIN: usize = 8;
const PADDING: usize = 1;

impl FlowControl {
    /// Returns a table of the priority levels.
    pub fn dump_priority_levels(&self) -> String {
        let mut rows = vec![header(&LEVEL_COLUMNS)];
        for (name, is_configured, dump) in self.dump() {
            let (sizes, totals) = (dump.sizes, dump.totals);
            let is_idle = sizes.requests_waiting == 0 && sizes.requests_executing == 0;
            let active = dump.queues.iter().filter(|queue| !queue.waiting.is_empty());
            rows.push(vec![
                name,
                active.count().to_string(),
                is_idle.to_string(),
                (!is_configured).to_string(),
                sizes.requests_waiting.to_string(),
                sizes.requests_executing.to_string(),
                totals.dispatched.to_string(),
                totals.rejected.to_string(),
                totals.timed_out.to_string(),
                totals.cancelled.to_string(),
            ]);
        }
        table(&rows)
    }

    /// Returns a table of the queues that have requests.
    pub fn dump_queues(&self) -> String {
        let mut rows = vec![header(&QUEUE_COLUMNS)];
        for (name, _, dump) in self.dump() {
            rows.extend(dump.queues.into_iter().map(|queue| {
                // A request occupies the same seats until it ends.
                let seats = queue.seats_waiting.to_string();
                vec![
                    name.clone(),
                    queue.index.to_string(),
                    queue.waiting.len().to_string(),
                    queue.executing.to_string(),
                    queue.seats_in_use.to_string(),
                    seat_seconds(queue.next_dispatch),
                    seats.clone(),
                    seats,
                    seat_seconds(queue.work_waiting),
                ]
            }));
        }
        table(&rows)
    }

    /// Returns a table of the requests that wait or run, with their users and targets if `with_details`.
    pub fn dump_requests(&self, with_details: bool) -> String {
        let mut columns = header(&REQUEST_COLUMNS);
        if with_details {
            columns.extend(header(&DETAIL_COLUMNS));
        }
        let mut rows = vec![columns];
        for (level, _, dump) in self.dump() {
            let waiting = dump.queues.into_iter().flat_map(|queue| {
                let requests = queue.waiting.into_iter().enumerate();
                requests.map(move |(at, request)| (Some(queue.index), Some(at), request))
            });
            let mut executing = dump.executing;
            executing.sort_by_key(|request| (request.queue.is_none(), request.queue));
            let executing = executing
                .into_iter()
                .map(|request| (request.queue, None, request));
            rows.extend(
                waiting
                    .chain(executing)
                    .map(|(queue, at, request)| row(&level, queue, at, &request, with_details)),
            );
        }
        table(&rows)
    }
}

fn row(
    level: &str,
    queue: Option<usize>,
    at: Option<usize>,
    request: &TrackedRequest,
    with_details: bool,
) -> Vec<String> {
    let (details, distinguisher) = request.origin.details();
    let index = |index: Option<usize>| index.map_or(NO_INDEX.to_owned(), |at| at.to_string());
    let mut row = vec![
        level.to_owned(),
        request.origin.schema.to_string(),
        index(queue),
        index(at),
        distinguisher,
        request.arrived.to_string(),
        request.work.seats.to_string(),
        // No seat is occupied after the response.
        "0".to_owned(),
        go_duration(request.work.subsequent),
        request
            .started
            .map_or(NOT_STARTED.to_owned(), |started| started.to_string()),
    ];
    if with_details {
        row.extend([
            details.user,
            details.verb,
            details.path,
            details.namespace,
            details.name,
            details.api_version,
            details.resource,
            details.subresource,
        ]);
    }
    row
}

fn header(columns: &[&str]) -> Vec<String> {
    columns.iter().map(|column| (*column).to_owned()).collect()
}

/// Returns the rows as lines. All cells but the last end with a comma and are padded to the width of their column, as by
/// Go's `tabwriter`.
fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.first().map_or(0, Vec::len);
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count() + 1);
        (cells.max().unwrap_or(0) + PADDING).max(WIDTH_MIN)
    };
    let widths: Vec<usize> = (0..columns.saturating_sub(1)).map(width).collect();
    let mut text = String::new();
    for row in rows {
        for (cell, width) in row.iter().zip(&widths) {
            let cell = format!("{cell},");
            text.push_str(&format!("{cell:<width$}"));
        }
        text.extend(row.last().map(String::as_str));
        text.push('\n');
    }
    text
}

/// Returns seat-nanoseconds as kube-apiserver prints them.
fn seat_seconds(nanoseconds: i128) -> String {
    const SECOND: i128 = 1_000_000_000;
    let (seconds, rest) = (nanoseconds / SECOND, nanoseconds % SECOND);
    format!("{seconds}.{:08}ss", rest / 10)
}

/// Returns a duration below a second as Go prints it.
fn go_duration(duration: Duration) -> String {
    let nanoseconds = duration.as_nanos();
    match nanoseconds {
        0 => "0s".to_owned(),
        1_000_000_000.. => format!("{}s", duration.as_secs_f64()),
        1_000_000.. => format!("{}ms", nanoseconds as f64 / 1e6),
        1_000.. => format!("{}\u{b5}s", nanoseconds as f64 / 1e3),
        _ => format!("{nanoseconds}ns"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_aligned_as_by_tabwriter() {
        let rows = [
            header(&["PriorityLevelName", "A", "Last"]),
            header(&["catch-all", "12345678", ""]),
        ];
        let expected = "PriorityLevelName, A,        Last\ncatch-all,         12345678, \n";
        assert_eq!(table(&rows), expected);
    }

    #[test]
    fn numbers_are_printed_as_by_go() {
        assert_eq!(seat_seconds(0), "0.00000000ss");
        assert_eq!(seat_seconds(12_345_678_901), "12.34567890ss");
        let durations = [0, 900, 1_500, 2_000_000, 1_500_000_000].map(Duration::from_nanos);
        let printed = durations.map(go_duration);
        assert_eq!(printed, ["0s", "900ns", "1.5\u{b5}s", "2ms", "1.5s"]);
    }
}
