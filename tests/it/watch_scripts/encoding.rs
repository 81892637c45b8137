//! The two encodings in which a script reads lists and watches: JSON and protobuf.

use std::pin::pin;
use std::task::{Context, Poll};

use http::HeaderMap;
use hyper::body::Incoming;
use k8s_pb::api::core::v1::{Pod, PodList};
use k8s_pb::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Status, WatchEvent};
use serde_json::Value;
use watchet_test_util::watch_script::{
    ApiError, Content, EventKind, ListResponse, Received, ReceivedObject, WatchStream,
};

use crate::conformance::protobuf::{PROTOBUF, frame, opened};
use crate::conformance::site::version;
use crate::conformance::watching::Watching;
use crate::harness::Wire;

/// The annotation of the bookmark after the initial events.
const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

/// An encoding of responses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Encoding {
    Json,
    Protobuf,
}

impl Encoding {
    /// The `Accept` header of a list or watch.
    pub(super) fn accept(self, is_watch: bool) -> &'static str {
        match (self, is_watch) {
            (Self::Json, _) => "application/json",
            (Self::Protobuf, false) => PROTOBUF,
            (Self::Protobuf, true) => "application/vnd.kubernetes.protobuf;stream=watch",
        }
    }

    fn check(self, headers: &HeaderMap, is_watch: bool) {
        assert_eq!(headers["content-type"], self.accept(is_watch));
    }

    /// Reads the response to a list.
    pub(super) fn list(self, headers: &HeaderMap, body: &[u8]) -> ListResponse {
        self.check(headers, false);
        match self {
            Self::Json => {
                let list: Value = serde_json::from_slice(body).expect("a list");
                let items = list["items"].as_array().expect("items").iter();
                let token = list["metadata"]["continue"].as_str();
                ListResponse {
                    version: version(&list),
                    items: items.map(ReceivedObject::from_json).collect(),
                    continue_token: token.map(str::to_owned),
                    remaining: list["metadata"]["remainingItemCount"].as_u64(),
                }
            }
            Self::Protobuf => {
                let list: PodList = opened(body, "v1", "PodList");
                let metadata = list.metadata.expect("metadata");
                let remaining = metadata.remaining_item_count;
                ListResponse {
                    version: parsed(metadata.resource_version),
                    items: list.items.into_iter().map(object).collect(),
                    continue_token: metadata.r#continue.filter(|token| !token.is_empty()),
                    remaining: remaining.map(|count| count.try_into().expect("a count")),
                }
            }
        }
    }

    /// Reads the Status of a failed request.
    pub(super) fn error(self, headers: &HeaderMap, body: &[u8]) -> ApiError {
        self.check(headers, false);
        match self {
            Self::Json => status_of_json(&serde_json::from_slice(body).expect("a Status")),
            Self::Protobuf => status(opened(body, "v1", "Status")),
        }
    }

    /// Reads the response to a watch.
    pub(super) fn watch(self, headers: &HeaderMap, wire: Wire, body: Incoming) -> HttpWatch {
        self.check(headers, true);
        match self {
            Self::Json => HttpWatch::Json(Watching::new(wire, body)),
            Self::Protobuf => HttpWatch::Protobuf {
                body,
                buffer: Vec::new(),
                _wire: wire,
            },
        }
    }
}

/// An open watch.
pub(super) enum HttpWatch {
    Json(Watching),
    Protobuf {
        body: Incoming,
        buffer: Vec<u8>,
        _wire: Wire,
    },
}

impl WatchStream for HttpWatch {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Vec<Received>>> {
        // A read that is not finished has read nothing.
        let received = match self {
            Self::Json(watching) => {
                let frame = pin!(watching.read()).poll(cx);
                frame.map(|frame| frame.as_ref().map(received_of_json))
            }
            Self::Protobuf { body, buffer, .. } => {
                let event = pin!(frame(body, buffer)).poll(cx);
                event.map(|event| event.map(received))
            }
        };
        received.map(|received| received.map(|received| vec![received]))
    }
}

fn event_kind(name: &str) -> EventKind {
    let kind = EventKind::ALL.into_iter().find(|kind| kind.name() == name);
    kind.unwrap_or_else(|| panic!("no type of event: {name}"))
}

fn received_of_json(frame: &Value) -> Received {
    let object = &frame["object"];
    match frame["type"].as_str().expect("a type") {
        "BOOKMARK" => Received::Bookmark {
            version: version(object),
            is_initial_events_end: object["metadata"]["annotations"][INITIAL_EVENTS_END] == "true",
        },
        "ERROR" => Received::Error(status_of_json(object)),
        kind => Received::Event(event_kind(kind), ReceivedObject::from_json(object)),
    }
}

fn status_of_json(status: &Value) -> ApiError {
    let token = status["metadata"]["continue"].as_str();
    ApiError {
        code: status["code"].as_u64().unwrap_or_default() as u16,
        reason: status["reason"].as_str().unwrap_or_default().to_owned(),
        continue_token: token.map(str::to_owned),
    }
}

fn received(event: WatchEvent) -> Received {
    let raw = event.object.and_then(|object| object.raw);
    let raw = raw.expect("the bytes of an object");
    let pod = || opened::<Pod>(&raw, "v1", "Pod");
    match event.r#type.as_deref().expect("a type") {
        "BOOKMARK" => {
            let metadata = pod().metadata.expect("metadata");
            let end = metadata.annotations.get(INITIAL_EVENTS_END);
            Received::Bookmark {
                is_initial_events_end: end.is_some_and(|value| value == "true"),
                version: parsed(metadata.resource_version),
            }
        }
        "ERROR" => Received::Error(status(opened(&raw, "v1", "Status"))),
        kind => Received::Event(event_kind(kind), object(pod())),
    }
}

fn status(status: Status) -> ApiError {
    let token = status.metadata.and_then(|metadata| metadata.r#continue);
    ApiError {
        code: status.code.unwrap_or_default() as u16,
        reason: status.reason.unwrap_or_default(),
        continue_token: token.filter(|token| !token.is_empty()),
    }
}

fn object(pod: Pod) -> ReceivedObject {
    let metadata: ObjectMeta = pod.metadata.expect("metadata");
    let node_name = pod.spec.and_then(|spec| spec.node_name);
    ReceivedObject {
        namespace: metadata.namespace.unwrap_or_default(),
        name: metadata.name.expect("a name"),
        version: parsed(metadata.resource_version),
        content: Content {
            labels: metadata.labels.into_iter().collect(),
            node_name: node_name.unwrap_or_default(),
        },
    }
}

fn parsed(version: Option<String>) -> u64 {
    let version = version.expect("a version");
    version.parse().expect("a version is a number")
}
