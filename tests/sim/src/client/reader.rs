//! A client that reads: gets and lists of all kinds of versions, in pages.

use std::time::Duration;

use http::{Method, StatusCode};
use tokio::time::sleep;

use super::Client;
use super::connection::{Connection, NoResponse, Response};
use super::object::{APPS, NAMES, PATH, PREFIX, key};
use crate::check::{Failure, FinalState, Outcome, Page, ReadVersion, Request, Selector, Snapshot};

/// The time between attempts to read the final state.
const RETRY: Duration = Duration::from_millis(500);

/// Reads `count` times.
pub(crate) async fn read(client: Client, mut random: fastrand::Rng, count: usize, pause_ms: u64) {
    let mut connection: Option<Connection> = None;
    for _ in 0..count {
        sleep(Duration::from_micros(random.u64(..pause_ms * 2_000))).await;
        if connection.is_none() || random.u8(..20) == 0 {
            connection = client.connect(&mut random).await.ok();
        }
        let Some(open) = &mut connection else {
            continue;
        };
        let is_open = match random.bool() {
            true => get(&client, open, &mut random).await,
            false => list(&client, open, &mut random).await,
        };
        if !is_open {
            connection = None;
        }
    }
}

/// Returns a version and its query parameters.
fn choose_version(client: &Client, random: &mut fastrand::Rng) -> (ReadVersion, String) {
    let newest = client.recorder.newest();
    match random.u8(..8) {
        0..4 => (ReadVersion::Consistent, String::new()),
        4..6 => (ReadVersion::Any, "resourceVersion=0".to_owned()),
        _ => {
            let at_least = newest.saturating_sub(random.u64(..20)).max(1);
            let parameters =
                format!("resourceVersion={at_least}&resourceVersionMatch=NotOlderThan");
            (ReadVersion::NotOlderThan(at_least), parameters)
        }
    }
}

/// Gets an object. Returns false if the connection broke.
async fn get(client: &Client, open: &mut Connection, random: &mut fastrand::Rng) -> bool {
    let name = NAMES[random.usize(..NAMES.len())];
    let (version, parameters) = choose_version(client, random);
    // A get has no resourceVersionMatch.
    let parameters = parameters.split('&').next().unwrap_or_default();
    let request = Request::Get {
        key: key(name),
        version,
    };
    let id = client.recorder.call(client, open.server, request);
    let uri = format!("{PATH}/{name}?{parameters}");
    let response = open.send(Method::GET, &uri, String::new()).await;
    client.recorder.returned(id, get_outcome(&response));
    response.is_ok()
}

/// Returns the outcome of a get.
pub(super) fn get_outcome(response: &Result<Response, NoResponse>) -> Outcome {
    match response {
        Ok(Response { code, document }) => match *code {
            StatusCode::OK => Outcome::Found(document.object()),
            StatusCode::NOT_FOUND => Outcome::Failed(Failure::NotFound),
            _ => rejected(*code, document.reason.as_str()),
        },
        Err(_) => Outcome::Unknown,
    }
}

fn rejected(code: StatusCode, reason: &str) -> Outcome {
    match code {
        // The simulation compacts at any time.
        StatusCode::GONE => Outcome::Failed(Failure::Expired { is_legal: true }),
        StatusCode::TOO_MANY_REQUESTS => Outcome::Failed(Failure::Rejected),
        code if code.is_server_error() => Outcome::Failed(Failure::Rejected),
        code => panic!("a read gets {code} {reason}"),
    }
}

/// Lists objects, in pages or not. Returns false if the connection broke.
async fn list(client: &Client, open: &mut Connection, random: &mut fastrand::Rng) -> bool {
    let mut selector = Selector::prefix(PREFIX);
    let mut parameters = String::new();
    if random.u8(..3) == 0 {
        let app = APPS[random.usize(..APPS.len())];
        selector.labels.insert("app".to_owned(), app.to_owned());
        parameters = format!("labelSelector=app%3D{app}&");
    }
    let (version, versioned) = match random.u8(..6) {
        0 if client.recorder.newest() > 0 => {
            let newest = client.recorder.newest();
            let at = newest.saturating_sub(random.u64(..10)).max(1);
            let versioned = format!("resourceVersion={at}&resourceVersionMatch=Exact");
            (ReadVersion::Exact(at), versioned)
        }
        _ => choose_version(client, random),
    };
    let limit = match random.u8(..3) {
        0 if version != ReadVersion::Any => Some(random.u64(1..4)),
        _ => None,
    };
    if let Some(limit) = limit {
        parameters += &format!("limit={limit}&");
    }
    let mut uri = format!("{PATH}?{parameters}{versioned}");
    let mut continues = None;
    loop {
        let request = Request::List {
            selector: selector.clone(),
            version,
            limit,
            continues,
        };
        let id = client.recorder.call(client, open.server, request);
        let response = open.send(Method::GET, &uri, String::new()).await;
        let (outcome, token) = list_outcome(&response);
        client.recorder.returned(id, outcome);
        let (Ok(_), Some(token)) = (&response, token) else {
            return response.is_ok();
        };
        continues = Some(id);
        uri = format!("{PATH}?{parameters}continue={token}");
        sleep(Duration::from_micros(random.u64(..100_000))).await;
    }
}

/// Returns the outcome of a list, and its continue token.
fn list_outcome(response: &Result<Response, NoResponse>) -> (Outcome, Option<String>) {
    let Ok(Response { code, document }) = response else {
        return (Outcome::Unknown, None);
    };
    if *code != StatusCode::OK {
        return (rejected(*code, &document.reason), None);
    }
    let token = document.metadata.continue_token.clone();
    let page = Page {
        revision: document.revision(),
        objects: document.items.iter().map(|item| item.object()).collect(),
        has_more: !token.is_empty(),
        remaining: document.metadata.remaining_item_count,
    };
    (
        Outcome::Listed(page),
        Some(token).filter(|token| !token.is_empty()),
    )
}

/// Reads the final state, and tries again until that succeeds.
pub(crate) async fn read_final_state(client: &Client, random: &mut fastrand::Rng) -> FinalState {
    loop {
        let call = client.recorder.now();
        if let Ok(mut open) = client.connect(random).await {
            let response = open.send(Method::GET, PATH, String::new()).await;
            if let (Outcome::Listed(page), _) = list_outcome(&response) {
                return FinalState {
                    call,
                    returned: client.recorder.now(),
                    snapshot: Snapshot {
                        revision: page.revision,
                        objects: page.objects,
                    },
                };
            }
        }
        sleep(RETRY).await;
    }
}
