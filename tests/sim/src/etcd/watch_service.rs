//! Watch streams: one task receives the client's requests, and the response stream sends what the member's watches
//! produce.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use etcd_client::proto::{
    PbEvent, PbKeyValue, PbResponseHeader, PbWatchRequest, PbWatchRequestUnion, PbWatchResponse,
    PbWatchService,
};
use futures_util::stream::{self, BoxStream, StreamExt as _};
use prost::Message as _;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};
use tonic::{Request, Response, Status, Streaming};

use super::config::PlantedBug;
use super::random::random_duration;
use super::services::{MESSAGE_BYTES_MAX, Services, fill_header, requires_leader};
use super::state::State;
use super::store::{Change, KeyRange, View};
use super::watchers::{NewWatch, Queued, STREAM_WATCH_ID};

/// The number of control responses from which a stream reads no more requests.
const CONTROL_MAX: usize = 128;

#[async_trait]
impl PbWatchService for Services {
    type WatchStream = BoxStream<'static, Result<PbWatchResponse, Status>>;

    async fn watch(
        &self,
        request: Request<Streaming<PbWatchRequest>>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        self.check_leader(request.metadata())?;
        let requires_leader = requires_leader(request.metadata());
        let mut state = self.shared.lock();
        let id = state.next_stream;
        state.next_stream += 1;
        let interval = state.config.progress_notify_interval;
        let interval = interval + random_duration(&mut state.rng, interval / 10);
        let responses_max = state.config.stream_responses_max;
        let member = &mut state.members[self.member];
        let stream = member.watchers.streams.entry(id).or_default();
        stream.requires_leader = requires_leader;
        stream.responses_max = responses_max;
        let sender = Sender {
            changed: stream.changed.clone(),
            receiver: Receiver {
                services: self.clone(),
                stream: id,
            },
            interval,
            progress_at: Instant::now() + interval,
            fragments: VecDeque::new(),
        };
        let tasks = member.tasks.clone();
        drop(state);
        let receiver = sender.receiver.clone();
        let connection = self.connection.clone();
        let requests = request.into_inner();
        tasks.spawn("etcd-watch", async move {
            connection
                .run_until_cancelled(receiver.receive(requests))
                .await;
        });
        let responses = stream::unfold(Some(sender), |sender| async move {
            let mut sender = sender?;
            match sender.next().await {
                Ok(response) => Some((Ok(response), Some(sender))),
                Err(status) => Some((Err(status), None)),
            }
        });
        Ok(Response::new(responses.boxed()))
    }
}

/// The requests of a stream.
#[derive(Clone)]
struct Receiver {
    services: Services,
    stream: u64,
}

impl Receiver {
    async fn receive(self, mut requests: Streaming<PbWatchRequest>) {
        // An error means that the client has reset the stream, which also drops the responses.
        while let Some(Ok(request)) = requests.next().await {
            let (member, stream) = (self.services.member, self.stream);
            let shared = &self.services.shared;
            shared.trace(|| format!("{member} <- Watch {stream} {request:?}"));
            self.wait_for_space().await;
            shared.change(|state, _| {
                // A stream that has ended has no entry.
                if state.members[member].watchers.streams.contains_key(&stream) {
                    self.handle(state, request.request_union);
                }
            });
        }
    }

    async fn wait_for_space(&self) {
        while self.is_full() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    fn is_full(&self) -> bool {
        let state = self.services.shared.lock();
        let streams = &state.members[self.services.member].watchers.streams;
        let stream = streams.get(&self.stream);
        stream.is_some_and(|stream| stream.control.len() >= CONTROL_MAX)
    }

    fn handle(&self, state: &mut State, request: Option<PbWatchRequestUnion>) {
        let member = self.services.member;
        let revision = state.members[member].applied.revision;
        match request {
            Some(PbWatchRequestUnion::CreateRequest(request)) => {
                let key = match request.key.as_slice() {
                    [] => &[0],
                    key => key,
                };
                let new = NewWatch {
                    range: KeyRange::new(key, &request.range_end),
                    start_revision: request.start_revision,
                    id: request.watch_id,
                    filters: request.filters,
                    progress_notify: request.progress_notify,
                    with_previous: request.prev_kv,
                    with_fragments: request.fragment,
                };
                self.create(state, new, revision);
            }
            Some(PbWatchRequestUnion::CancelRequest(request)) => {
                let id = request.watch_id;
                if state.members[member].watchers.cancel(self.stream, id) {
                    self.control(state, id, revision, |response| response.canceled = true);
                }
            }
            Some(PbWatchRequestUnion::ProgressRequest(_)) => self.progress(state, revision),
            None => {}
        }
    }

    fn create(&self, state: &mut State, new: NewWatch, revision: i64) {
        let watchers = &mut state.members[self.services.member].watchers;
        let created = watchers.create(self.stream, new, revision);
        let id = *created.as_ref().unwrap_or(&STREAM_WATCH_ID);
        self.control(state, id, revision, |response| {
            response.created = true;
            if let Err(reason) = created {
                response.canceled = true;
                response.cancel_reason = reason.into();
            }
        });
    }

    fn progress(&self, state: &mut State, revision: i64) {
        let State {
            members, config, ..
        } = state;
        if !config.bugs.contains(&PlantedBug::ProgressAheadOfEvents) {
            let watchers = &mut members[self.services.member].watchers;
            watchers.progress_of_stream(self.stream, revision, &config.bugs);
            return;
        }
        self.control(state, STREAM_WATCH_ID, revision, |_| {});
    }

    fn control(
        &self,
        state: &mut State,
        watch_id: i64,
        revision: i64,
        set: impl FnOnce(&mut PbWatchResponse),
    ) {
        let mut response = response(state, self.services.member, watch_id, revision);
        set(&mut response);
        let watchers = &mut state.members[self.services.member].watchers;
        if let Some(stream) = watchers.streams.get_mut(&self.stream) {
            stream.push_control(response);
        }
    }
}

fn response(state: &State, member: usize, watch_id: i64, revision: i64) -> PbWatchResponse {
    let mut header = PbResponseHeader {
        revision,
        ..PbResponseHeader::default()
    };
    fill_header(state, member, &mut header);
    PbWatchResponse {
        header: Some(header),
        watch_id,
        ..PbWatchResponse::default()
    }
}

/// The responses of a stream.
struct Sender {
    receiver: Receiver,
    changed: Arc<Notify>,
    interval: Duration,
    progress_at: Instant,
    /// The rest of a response that was fragmented.
    fragments: VecDeque<PbWatchResponse>,
}

impl Drop for Sender {
    fn drop(&mut self) {
        let Receiver { services, stream } = &self.receiver;
        let mut state = services.shared.lock();
        state.members[services.member]
            .watchers
            .remove_stream(*stream);
    }
}

impl Sender {
    async fn next(&mut self) -> Result<PbWatchResponse, Status> {
        let pause = {
            let mut state = self.receiver.services.shared.lock();
            let State { faults, rng, .. } = &mut *state;
            faults.pause_of_watch(rng)
        };
        if !pause.is_zero() {
            tokio::time::sleep(pause).await;
        }
        loop {
            if let Some(response) = self.take()? {
                let Receiver { services, stream } = &self.receiver;
                let member = services.member;
                services
                    .shared
                    .trace(|| format!("{member} -> Watch {stream} {response:?}"));
                return Ok(response);
            }
            // A change first: it may be events, which replace the progress report.
            tokio::select! {
                biased;
                () = self.changed.notified() => {}
                () = sleep_until(self.progress_at) => self.report_progress(),
            }
        }
    }

    fn report_progress(&mut self) {
        self.progress_at += self.interval;
        let Receiver { services, stream } = &self.receiver;
        let mut state = services.shared.lock();
        let State {
            members, config, ..
        } = &mut *state;
        let member = &mut members[services.member];
        let revision = member.applied.revision;
        member
            .watchers
            .progress_of_interval(*stream, revision, &config.bugs);
    }

    /// Returns the next response, if one waits.
    fn take(&mut self) -> Result<Option<PbWatchResponse>, Status> {
        if let Some(fragment) = self.fragments.pop_front() {
            return Ok(Some(fragment));
        }
        let Receiver { services, stream } = &self.receiver;
        let mut state = services.shared.lock();
        let watchers = &mut state.members[services.member].watchers;
        let Some(queue) = watchers.streams.get_mut(stream) else {
            // The process has ended, and with it the connection.
            return Ok(None);
        };
        if let Some(error) = queue.ended {
            return Err(error.into());
        }
        if let Some(response) = queue.control.pop_front() {
            match response.canceled {
                true => queue.announced.remove(&response.watch_id),
                false => queue.announced.insert(response.watch_id),
            };
            return Ok(Some(response));
        }
        while let Some(queued) = queue.responses.pop_front() {
            let id = queued.watch_id;
            if id != STREAM_WATCH_ID && !queue.announced.contains(&id) {
                continue;
            }
            if queued.compacted != 0 {
                queue.announced.remove(&id);
            }
            if !queued.changes.is_empty() {
                watchers.events_sent(*stream, id);
            }
            self.fragments = messages(&state, services.member, *stream, queued).into();
            return Ok(self.fragments.pop_front());
        }
        Ok(None)
    }
}

/// Returns the response of queued changes, in fragments if it is large and the watch accepts them.
fn messages(state: &State, member: usize, stream: u64, queued: Queued) -> Vec<PbWatchResponse> {
    let watcher = state.members[member].watchers.get(stream, queued.watch_id);
    let with_previous = watcher.is_some_and(|watcher| watcher.with_previous);
    let view = state.view(member);
    let events = queued.changes.iter();
    let events = events.map(|change| event(view, change, with_previous));
    let mut whole = response(state, member, queued.watch_id, queued.revision);
    whole.events = events.collect();
    if queued.compacted != 0 {
        whole.compact_revision = queued.compacted;
        whole.canceled = true;
    }
    match watcher.is_some_and(|watcher| watcher.with_fragments) {
        true => fragments(whole),
        false => vec![whole],
    }
}

fn event(view: View<'_>, change: &Change, with_previous: bool) -> PbEvent {
    let kv = match &change.kv {
        Some(kv) => (**kv).clone(),
        None => PbKeyValue {
            key: change.key.to_vec(),
            mod_revision: change.revision,
            ..PbKeyValue::default()
        },
    };
    let is_create = change.kv.is_some() && kv.create_revision == kv.mod_revision;
    let wants_previous = with_previous && !is_create;
    // A revision before the compacted one has no previous value.
    let previous = match change.revision - 1 {
        0 => None,
        before => wants_previous
            .then(|| view.get(&change.key, before))
            .flatten(),
    };
    PbEvent {
        r#type: i32::from(change.kv.is_none()),
        kv: Some(kv),
        prev_kv: previous.map(|kv| (*kv).clone()),
    }
}

/// Splits a response so that each part is smaller than a message may be, or has one event.
fn fragments(whole: PbWatchResponse) -> Vec<PbWatchResponse> {
    if whole.encoded_len() < MESSAGE_BYTES_MAX || whole.events.len() < 2 {
        return vec![whole];
    }
    let empty = PbWatchResponse {
        events: Vec::new(),
        fragment: true,
        ..whole.clone()
    };
    let mut parts = vec![empty.clone()];
    let mut bytes = empty.encoded_len();
    for event in whole.events {
        // The tag and the length of an event take at most 8 bytes.
        let size = event.encoded_len() + 8;
        let is_full = parts.last().is_some_and(|part| !part.events.is_empty())
            && bytes + size >= MESSAGE_BYTES_MAX;
        if is_full {
            parts.push(empty.clone());
            bytes = empty.encoded_len();
        }
        bytes += size;
        if let Some(part) = parts.last_mut() {
            part.events.push(event);
        }
    }
    if let Some(last) = parts.last_mut() {
        last.fragment = false;
    }
    parts
}
