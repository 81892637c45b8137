//! A client that sends random operations and records the answers, without the ids that differ between clusters. Its
//! choices depend on its seed and on the answers.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::time::Duration;

use etcd_client::proto::{PbResponseHeader, PbWatchResponse};
use etcd_client::{
    Client, Compare, CompareOp, DeleteOptions, Error, GetOptions, LeaseGrantOptions,
    LeaseTimeToLiveOptions, PutOptions, SortOrder, SortTarget, Txn, TxnOp, WatchFilterType,
    WatchOptions, WatchRequestSender, WatchResponseStream,
};
use fastrand::Rng;
use tokio::time::timeout;

const KEYS: [&str; 7] = ["a", "a/1", "a/2", "a/22", "b", "c/1", "c/3"];
const ENDS: [&str; 6] = ["a0", "a/2", "b", "c0", "\0", "a"];

/// A stream with one or two watches.
struct Watches {
    name: usize,
    requests: WatchRequestSender,
    responses: WatchResponseStream,
    /// The watches that are not canceled, with their first revisions.
    open: Vec<(i64, i64)>,
    /// The watches that etcd canceled because of a compaction.
    compacted: Vec<i64>,
}

pub(crate) struct RandomClient {
    client: Client,
    rng: Rng,
    revision: i64,
    compacted: i64,
    watches: Vec<Watches>,
    streams: usize,
    lines: Vec<String>,
    /// The record of each watch. The order of the watches of a stream is not defined.
    watch_lines: BTreeMap<(usize, i64), Vec<String>>,
}

/// Removes what differs between clusters.
fn neutral(header: &mut Option<PbResponseHeader>) {
    if let Some(header) = header {
        *header = PbResponseHeader {
            revision: header.revision,
            ..PbResponseHeader::default()
        };
    }
}

fn shown<T: Debug>(result: Result<T, Error>) -> String {
    match result {
        Ok(answer) => format!("{answer:?}"),
        Err(Error::GRpcStatus(status)) => format!("{:?} {}", status.code(), status.message()),
        Err(error) => panic!("{error}"),
    }
}

impl RandomClient {
    /// Sends operations and returns the lines of the record.
    pub(crate) async fn run(client: Client, seed: u64, operations: usize) -> Vec<String> {
        let mut this = Self {
            client,
            rng: Rng::with_seed(seed),
            revision: 1,
            compacted: 0,
            watches: Vec::new(),
            streams: 0,
            lines: Vec::new(),
            watch_lines: BTreeMap::new(),
        };
        for _ in 0..operations {
            this.step().await;
        }
        this.settle().await;
        this.lines.extend(this.watch_lines.into_values().flatten());
        this.lines
    }

    async fn step(&mut self) {
        match self.rng.u32(0..100) {
            0..30 => self.put().await,
            30..42 => self.delete().await,
            42..60 => self.range().await,
            60..80 => self.transaction().await,
            80..90 => self.lease().await,
            90..95 => self.watch().await,
            95..97 => self.cancel().await,
            _ => self.compact().await,
        }
    }

    fn record(&mut self, operation: &str, header: Option<&PbResponseHeader>, line: String) {
        if let Some(header) = header {
            self.revision = self.revision.max(header.revision);
        }
        self.lines.push(format!("{operation}: {line}"));
    }

    fn key(&mut self) -> String {
        match self.rng.u32(0..60) {
            0 => String::new(),
            _ => self.rng.choice(KEYS).unwrap().to_owned(),
        }
    }

    fn end(&mut self) -> Option<&'static str> {
        self.rng.bool().then(|| self.rng.choice(ENDS).unwrap())
    }

    fn lease_id(&mut self) -> i64 {
        self.rng.i64(1..4)
    }

    fn near_revision(&mut self) -> i64 {
        self.rng.i64((self.compacted - 2).max(0)..self.revision + 3)
    }

    fn put_options(&mut self) -> PutOptions {
        let mut options = PutOptions::new();
        if self.rng.u32(0..4) == 0 {
            options = options.with_lease(self.lease_id());
        }
        if self.rng.bool() {
            options = options.with_prev_key();
        }
        match self.rng.u32(0..20) {
            0 => options.with_ignore_value(),
            1 => options.with_ignore_lease(),
            _ => options,
        }
    }

    fn value(&mut self) -> String {
        match self.rng.u32(0..12) {
            0 => String::new(),
            _ => self.rng.u32(0..1000).to_string(),
        }
    }

    async fn put(&mut self) {
        let (key, value, options) = (self.key(), self.value(), self.put_options());
        let mut result = self.client.put(key, value, Some(options)).await;
        if let Ok(answer) = &mut result {
            neutral(&mut answer.0.header);
        }
        let header = result.as_ref().ok().and_then(|answer| answer.0.header);
        self.record("put", header.as_ref(), shown(result));
    }

    fn delete_options(&mut self) -> DeleteOptions {
        let mut options = DeleteOptions::new();
        if let Some(end) = self.end() {
            options = options.with_range(end);
        }
        match self.rng.bool() {
            true => options.with_prev_key(),
            false => options,
        }
    }

    async fn delete(&mut self) {
        let (key, options) = (self.key(), self.delete_options());
        let mut result = self.client.delete(key, Some(options)).await;
        if let Ok(answer) = &mut result {
            neutral(&mut answer.0.header);
        }
        let header = result.as_ref().ok().and_then(|answer| answer.0.header);
        self.record("delete", header.as_ref(), shown(result));
    }

    fn get_options(&mut self) -> GetOptions {
        let mut options = GetOptions::new();
        if let Some(end) = self.end() {
            options = options.with_range(end);
        }
        if self.rng.u32(0..3) == 0 {
            options = options.with_revision(self.near_revision());
        }
        if self.rng.u32(0..3) == 0 {
            options = options.with_limit(self.rng.i64(-1..4));
        }
        options = match self.rng.u32(0..10) {
            0 => options.with_keys_only(),
            1 => options.with_count_only(),
            2 => options.with_serializable(),
            3 => options.with_min_mod_revision(self.near_revision()),
            4 => options.with_max_mod_revision(self.near_revision()),
            5 => options.with_min_create_revision(self.near_revision()),
            6 => options.with_max_create_revision(self.near_revision()),
            _ => options,
        };
        if self.rng.u32(0..3) == 0 {
            let orders = [SortOrder::None, SortOrder::Ascend, SortOrder::Descend];
            let targets = [
                SortTarget::Key,
                SortTarget::Version,
                SortTarget::Create,
                SortTarget::Mod,
                SortTarget::Value,
            ];
            let order = self.rng.choice(orders).unwrap();
            options = options.with_sort(self.rng.choice(targets).unwrap(), order);
        }
        options
    }

    async fn range(&mut self) {
        let (key, options) = (self.key(), self.get_options());
        let mut result = self.client.get(key, Some(options)).await;
        if let Ok(answer) = &mut result {
            neutral(&mut answer.0.header);
        }
        let header = result.as_ref().ok().and_then(|answer| answer.0.header);
        self.record("range", header.as_ref(), shown(result));
    }

    fn compare(&mut self) -> Compare {
        let key = self.key();
        let operators = [
            CompareOp::Equal,
            CompareOp::Greater,
            CompareOp::Less,
            CompareOp::NotEqual,
        ];
        let operator = self.rng.choice(operators).unwrap();
        let compare = match self.rng.u32(0..5) {
            0 => Compare::value(key, operator, self.value()),
            1 => Compare::version(key, operator, self.rng.i64(0..3)),
            2 => Compare::create_revision(key, operator, self.near_revision()),
            3 => Compare::mod_revision(key, operator, self.near_revision()),
            _ => Compare::lease(key, operator, self.rng.i64(0..3)),
        };
        match self.rng.u32(0..5) {
            0 => compare.with_range(self.rng.choice(ENDS).unwrap()),
            _ => compare,
        }
    }

    fn operations(&mut self, depth: u32) -> Vec<TxnOp> {
        let count = self.rng.usize(0..4);
        (0..count)
            .map(|_| match self.rng.u32(0..10) {
                0..4 => TxnOp::put(self.key(), self.value(), Some(self.put_options())),
                4..7 => TxnOp::get(self.key(), Some(self.get_options())),
                7..9 => TxnOp::delete(self.key(), Some(self.delete_options())),
                _ if depth == 0 => TxnOp::get(self.key(), None),
                _ => TxnOp::txn(self.txn(depth - 1)),
            })
            .collect()
    }

    fn txn(&mut self, depth: u32) -> Txn {
        let count = self.rng.usize(0..3);
        let compares: Vec<_> = (0..count).map(|_| self.compare()).collect();
        Txn::new()
            .when(compares)
            .and_then(self.operations(depth))
            .or_else(self.operations(depth))
    }

    async fn transaction(&mut self) {
        let txn = self.txn(2);
        let mut result = self.client.txn(txn).await;
        if let Ok(answer) = &mut result {
            neutral(&mut answer.0.header);
        }
        let header = result.as_ref().ok().and_then(|answer| answer.0.header);
        self.record("txn", header.as_ref(), shown(result));
    }

    async fn lease(&mut self) {
        let id = self.lease_id();
        match self.rng.u32(0..4) {
            0 | 1 => {
                let ttl = self.rng.choice([-1, 0, 500, 9_000_000_001]).unwrap();
                // A short lease would expire at another time.
                let ttl = if ttl < 500 { 1000 } else { ttl };
                let options = LeaseGrantOptions::new().with_id(id);
                let mut result = self.client.lease_grant(ttl, Some(options)).await;
                if let Ok(answer) = &mut result {
                    neutral(&mut answer.0.header);
                }
                self.record("grant", None, shown(result));
            }
            2 => {
                let mut result = self.client.lease_revoke(id).await;
                if let Ok(answer) = &mut result {
                    neutral(&mut answer.0.header);
                }
                let header = result.as_ref().ok().and_then(|answer| answer.0.header);
                self.record("revoke", header.as_ref(), shown(result));
            }
            _ => {
                let options = LeaseTimeToLiveOptions::new().with_keys();
                let mut result = self.client.lease_time_to_live(id, Some(options)).await;
                if let Ok(answer) = &mut result {
                    neutral(&mut answer.0.header);
                    // The time differs; that it decreases does not.
                    answer.0.ttl = i64::from(answer.0.ttl < answer.0.granted_ttl);
                    // etcd's order is random.
                    answer.0.keys.sort();
                }
                self.record("time to live", None, shown(result));
            }
        }
    }

    async fn compact(&mut self) {
        // Watches that catch up would race with the compaction.
        self.settle().await;
        let at = self.near_revision();
        let result = self.client.compact(at, None).await;
        if result.is_ok() {
            self.compacted = at;
        }
        let result = result.map(|mut answer| {
            neutral(&mut answer.0.header);
            answer
        });
        self.record("compact", None, shown(result));
    }

    fn watch_options(&mut self) -> (String, i64, WatchOptions) {
        let key = self.rng.choice(KEYS).unwrap().to_owned();
        let start = match self.rng.u32(0..3) {
            0 => 0,
            1 => self.near_revision(),
            _ => self.compacted,
        };
        let mut options = WatchOptions::new().with_start_revision(start);
        if let Some(end) = self.end() {
            options = options.with_range(end);
        }
        if self.rng.bool() {
            options = options.with_prev_key();
        }
        if self.rng.bool() {
            options = options.with_fragment();
        }
        let options = match self.rng.u32(0..6) {
            0 => options.with_filters([WatchFilterType::NoPut]),
            1 => options.with_filters([WatchFilterType::NoDelete]),
            2 => options.with_watch_id(self.rng.i64(0..3)),
            _ => options,
        };
        (key, start, options)
    }

    /// Opens a stream with a watch, or with two.
    async fn watch(&mut self) {
        let (key, start, options) = self.watch_options();
        let stream = self.client.watch(key, Some(options)).await.unwrap();
        let (requests, responses) = stream.split();
        let mut watches = Watches {
            name: self.streams,
            requests,
            responses,
            open: Vec::new(),
            compacted: Vec::new(),
        };
        self.streams += 1;
        self.created(&mut watches, start).await;
        if self.rng.u32(0..3) == 0 {
            let (key, start, options) = self.watch_options();
            watches.requests.watch(key, Some(options)).await.unwrap();
            self.created(&mut watches, start).await;
        }
        self.watches.push(watches);
        self.settle().await;
    }

    /// Reads until a watch is created.
    async fn created(&mut self, watches: &mut Watches, start: i64) {
        loop {
            let response = self.response(watches).await;
            if !response.created {
                continue;
            }
            if !response.canceled {
                watches.open.push((response.watch_id, start));
            }
            return;
        }
    }

    async fn cancel(&mut self) {
        self.settle().await;
        if self.watches.is_empty() {
            return;
        }
        let index = self.rng.usize(0..self.watches.len());
        let mut watches = self.watches.swap_remove(index);
        if let Some((id, _)) = watches.open.first().copied() {
            self.cancel_one(&mut watches, id).await;
        }
        if !watches.open.is_empty() {
            self.watches.push(watches);
        }
    }

    async fn cancel_one(&mut self, watches: &mut Watches, id: i64) {
        watches.requests.cancel(id).await.unwrap();
        loop {
            let response = self.response(watches).await;
            if response.canceled && response.watch_id == id {
                return;
            }
        }
    }

    /// Reads a response and records it, unless it is progress, whose number differs.
    async fn response(&mut self, watches: &mut Watches) -> PbWatchResponse {
        let response = timeout(Duration::from_secs(20), watches.responses.message()).await;
        let mut response = response.expect("a response").unwrap().expect("open").0;
        neutral(&mut response.header);
        let name = watches.name;
        if response.canceled {
            let id = response.watch_id;
            watches.open.retain(|(open, _)| *open != id);
            if response.compact_revision != 0 {
                watches.compacted.push(id);
            }
        }
        let id = response.watch_id;
        let lines = self.watch_lines.entry((name, id)).or_default();
        if response.created || response.canceled {
            lines.push(format!("watch {name}: {response:?}"));
        }
        // How many events a response has depends on the speed of the client.
        for event in &response.events {
            lines.push(format!("watch {name} {id}: {event:?}"));
        }
        response
    }

    /// Reads the watches up to the current revision.
    async fn settle(&mut self) {
        let mut all = std::mem::take(&mut self.watches);
        for watches in &mut all {
            // A watch from a future revision may block the progress of its stream.
            let is_future = |(_, start): &(i64, i64)| *start > self.revision;
            if !watches.open.iter().any(is_future) {
                self.settle_one(watches).await;
            }
        }
        all.retain(|watches| !watches.open.is_empty());
        self.watches = all;
    }

    async fn settle_one(&mut self, watches: &mut Watches) {
        for attempt in 0.. {
            assert!(
                attempt < 2000,
                "no progress of {:?} at {} after {:?}",
                watches.open,
                self.revision,
                self.watch_lines
            );
            // It blocks the progress of the others.
            while let Some(id) = watches.compacted.pop() {
                self.cancel_one(watches, id).await;
            }
            if watches.open.is_empty() {
                return;
            }
            watches.requests.request_progress().await.unwrap();
            let wait = Duration::from_millis(150);
            // Dropping the future loses no response: it is read by the next call.
            let Ok(response) = timeout(wait, self.response(watches)).await else {
                continue;
            };
            let revision = response.header.map_or(0, |header| header.revision);
            let is_progress = response.watch_id == -1 && response.events.is_empty();
            if is_progress && !response.canceled && revision >= self.revision {
                return;
            }
        }
    }
}
