//! The clients: they send requests to simulated or real servers, and record what they learn.

mod connection;
pub(crate) mod informer;
mod object;
mod reader;
mod transactor;
mod watcher;
mod writer;

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::net::TcpStream;
use tokio::time::Instant;
use watchet_client::ByteStream;

use crate::check::{History, InformerLog, Operation, Outcome, Request, WatchLog};
use crate::network::{Network, Node};

pub(crate) use self::object::{Document, PREFIX as KEY_PREFIX, config_map, key};
pub(crate) use self::reader::{read, read_final_state};
pub(crate) use self::transactor::transact;
pub(crate) use self::watcher::{WatchProgress, watch};
pub(crate) use self::writer::{write, write_markers};

/// How clients reach servers.
#[derive(Debug, Clone)]
pub(crate) enum Transport {
    /// Over the simulated network.
    Simulated(Network),
    /// Over TCP, to these addresses.
    Tcp(Arc<BTreeMap<Node, SocketAddr>>),
}

impl Transport {
    /// Opens a connection.
    ///
    /// # Errors
    /// Returns an error if the server cannot be reached.
    pub(crate) async fn connect(&self, from: &Node, to: &Node) -> io::Result<Box<dyn ByteStream>> {
        match self {
            Self::Simulated(network) => Ok(Box::new(network.connect(from, to).await?)),
            Self::Tcp(addresses) => {
                let address = addresses.get(to).ok_or(io::ErrorKind::NotFound)?;
                let stream = TcpStream::connect(address).await?;
                stream.set_nodelay(true)?;
                Ok(Box::new(stream))
            }
        }
    }
}

/// What the clients share. Clones share it.
#[derive(Debug, Clone)]
pub(crate) struct Recorder(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    started: Instant,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    history: History,
    next_id: u64,
    next_value: u64,
    /// The highest revision that any client has received.
    newest: u64,
    is_ending: bool,
    /// The revision of the last deletion that a watch has received.
    newest_deletion: u64,
}

impl Recorder {
    /// Returns an empty recorder, whose times count from now.
    pub(crate) fn new() -> Self {
        Self(Arc::new(Inner {
            started: Instant::now(),
            state: Mutex::default(),
        }))
    }

    /// Returns the time in microseconds.
    pub(crate) fn now(&self) -> u64 {
        let elapsed = self.0.started.elapsed().as_micros();
        u64::try_from(elapsed).unwrap_or(u64::MAX)
    }

    /// Returns a number that no other call returns.
    pub(crate) fn id(&self) -> u64 {
        let mut state = self.0.state.lock();
        state.next_id += 1;
        state.next_id
    }

    /// Returns a content that no other call returns.
    pub(crate) fn value(&self) -> u64 {
        let mut state = self.0.state.lock();
        state.next_value += 1;
        state.next_value
    }

    /// Records a request that is being sent, and returns its identity.
    pub(crate) fn call(&self, client: &Client, server: u32, request: Request) -> u64 {
        let (id, call) = (self.id(), self.now());
        let operation = Operation {
            id,
            client: client.number,
            server,
            call,
            returned: None,
            request,
            outcome: Outcome::Unknown,
        };
        self.change(|history| history.operations.push(operation));
        id
    }

    /// Records the outcome of a request.
    pub(crate) fn returned(&self, id: u64, outcome: Outcome) {
        let now = self.now();
        self.saw(match &outcome {
            Outcome::Written { revision } => *revision,
            Outcome::Deleted { revision } => revision.unwrap_or_default(),
            Outcome::Found(object) => object.revision,
            Outcome::Listed(page) => page.revision,
            Outcome::Failed(_) | Outcome::Unknown => 0,
        });
        self.change(|history| {
            let mut newest_first = history.operations.iter_mut().rev();
            if let Some(operation) = newest_first.find(|operation| operation.id == id) {
                operation.returned = Some(now);
                operation.outcome = outcome;
            }
        });
    }

    /// Changes the log of a watch, which exists.
    pub(crate) fn change_watch(&self, id: u64, change: impl FnOnce(&mut WatchLog)) {
        self.change(|history| {
            let mut newest_first = history.watches.iter_mut().rev();
            newest_first.find(|log| log.id == id).map(change);
        });
    }

    /// Changes the log of an informer, which exists.
    pub(crate) fn change_informer(&self, id: u64, change: impl FnOnce(&mut InformerLog)) {
        self.change(|history| {
            let mut logs = history.informers.iter_mut();
            logs.find(|log| log.id == id).map(change);
        });
    }

    /// Changes the history.
    pub(crate) fn change<T>(&self, change: impl FnOnce(&mut History) -> T) -> T {
        change(&mut self.0.state.lock().history)
    }

    /// Records that a client has received a revision.
    pub(crate) fn saw(&self, revision: u64) {
        let mut state = self.0.state.lock();
        state.newest = state.newest.max(revision);
    }

    /// Returns the highest revision that any client has received.
    pub(crate) fn newest(&self) -> u64 {
        self.0.state.lock().newest
    }

    /// Makes slow readers read without pauses from now on.
    pub(crate) fn end(&self) {
        self.0.state.lock().is_ending = true;
    }

    /// Returns true if slow readers read without pauses.
    pub(crate) fn is_ending(&self) -> bool {
        self.0.state.lock().is_ending
    }

    /// Records that a watch has received a deletion.
    pub(crate) fn saw_deletion(&self, revision: u64) {
        let mut state = self.0.state.lock();
        state.newest_deletion = state.newest_deletion.max(revision);
    }

    /// Returns the revision of the last deletion that a watch has received; 0 if there is none.
    pub(crate) fn newest_deletion(&self) -> u64 {
        self.0.state.lock().newest_deletion
    }

    /// Returns the history.
    pub(crate) fn into_history(self) -> History {
        self.change(std::mem::take)
    }
}

/// A client process.
#[derive(Debug, Clone)]
pub(crate) struct Client {
    pub(crate) number: u32,
    pub(crate) node: Node,
    pub(crate) transport: Transport,
    /// The servers, any of which it uses.
    pub(crate) servers: Vec<Node>,
    pub(crate) recorder: Recorder,
}
