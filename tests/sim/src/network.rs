//! The simulated network: connections between nodes with delays that a seed decides, partitions, half-open connections and
//! resets. Like TCP it neither loses nor reorders bytes of a connection.

mod stream;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Notify, mpsc};
use tokio::time::{Instant, sleep};

use self::stream::{Link, Pipe};

pub use self::stream::Stream;

/// The number of connections that wait to be accepted.
const BACKLOG: usize = 128;

/// The bytes that a connection holds in one direction before its writer waits: few in some simulations, so that a server notices
/// slow readers.
const BUFFER_BYTES: [usize; 2] = [2 << 10, 64 << 10];

/// The time after which a connection attempt fails if the other node does not respond.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// The delays of bytes: most are short, some are long.
const DELAY_US: std::ops::Range<u64> = 50..1_000;
const LONG_DELAY_US: std::ops::Range<u64> = 1_000..80_000;
/// One of so many deliveries is delayed for a long time.
const LONG_DELAY_RARITY: u32 = 50;

/// A process on the network, such as `server-0`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Node(Arc<str>);

impl Node {
    /// Returns the node of this name.
    pub fn new(name: &str) -> Self {
        Self(name.into())
    }
}

impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The network. Clones share it.
#[derive(Clone)]
pub struct Network(Arc<Inner>);

struct Inner {
    state: Mutex<State>,
    /// Notified when a partition begins or ends.
    changed: Notify,
    started: Instant,
    buffer_bytes: usize,
}

struct State {
    random: fastrand::Rng,
    listeners: BTreeMap<Node, mpsc::Sender<Stream>>,
    /// The directions in which nothing is delivered: from, to.
    cut: BTreeSet<(Node, Node)>,
    connections: Vec<(Node, Node, Weak<Pipe>, Weak<Pipe>)>,
    /// A digest of everything that was delivered, with its time.
    digest: crc32fast::Hasher,
    delivered_bytes: u64,
    /// Receives a line for each delivery.
    trace: Option<Trace>,
}

/// Where a line for each delivery is written.
pub(crate) type Trace = Box<dyn io::Write + Send>;

/// Accepts connections to a node. Dropping it closes the port.
#[derive(Debug)]
pub struct Listener(mpsc::Receiver<Stream>);

impl Listener {
    /// Returns the next connection; `None` after another listener has replaced this one.
    pub async fn accept(&mut self) -> Option<Stream> {
        self.0.recv().await
    }
}

impl Network {
    /// Returns a network whose delays `seed` decides. Must be called in the runtime.
    pub fn new(seed: u64) -> Self {
        let mut random = fastrand::Rng::with_seed(seed);
        Self(Arc::new(Inner {
            buffer_bytes: BUFFER_BYTES[random.usize(..BUFFER_BYTES.len())],
            state: Mutex::new(State {
                random,
                listeners: BTreeMap::new(),
                cut: BTreeSet::new(),
                connections: Vec::new(),
                digest: crc32fast::Hasher::new(),
                delivered_bytes: 0,
                trace: None,
            }),
            changed: Notify::new(),
            started: Instant::now(),
        }))
    }

    /// Writes a line for each delivery from now on: the time in microseconds, the nodes, and the bytes.
    pub fn trace(&self, to: Trace) {
        self.0.state.lock().trace = Some(to);
    }

    /// Accepts connections to `node` from now on.
    pub fn listen(&self, node: &Node) -> Listener {
        let (sender, receiver) = mpsc::channel(BACKLOG);
        self.0.state.lock().listeners.insert(node.clone(), sender);
        Listener(receiver)
    }

    /// Opens a connection.
    ///
    /// # Errors
    /// Returns an error if `to` does not listen, or does not respond in time.
    pub async fn connect(&self, from: &Node, to: &Node) -> io::Result<Stream> {
        let deadline = Instant::now() + CONNECT_TIMEOUT;
        sleep(self.delay()).await;
        while self.is_cut(from, to) || self.is_cut(to, from) {
            let changed = self.0.changed.notified();
            if tokio::time::timeout_at(deadline, changed).await.is_err() {
                return Err(io::ErrorKind::TimedOut.into());
            }
        }
        let refused = || io::Error::from(io::ErrorKind::ConnectionRefused);
        let listener = self.0.state.lock().listeners.get(to).cloned();
        let permit = listener.ok_or_else(refused)?;
        let permit = permit.try_reserve().map_err(|_| refused())?;
        let link = |from: &Node, to: &Node| Link {
            network: self.clone(),
            from: from.clone(),
            to: to.clone(),
        };
        let (there, back) = (Pipe::new(link(from, to)), Pipe::new(link(to, from)));
        let connection = (
            from.clone(),
            to.clone(),
            Arc::downgrade(&there),
            Arc::downgrade(&back),
        );
        let mut state = self.0.state.lock();
        let connections = &mut state.connections;
        connections.retain(|(_, _, there, _)| there.strong_count() > 0);
        connections.push(connection);
        permit.send(Stream::new(there.clone(), back.clone()));
        Ok(Stream::new(back, there))
    }

    /// Delivers nothing from `from` to `to` until [`heal`](Self::heal). One direction alone is a half-open connection.
    pub fn cut(&self, from: &Node, to: &Node) {
        self.0.state.lock().cut.insert((from.clone(), to.clone()));
        self.wake_all();
    }

    /// Ends all partitions.
    pub fn heal(&self) {
        self.0.state.lock().cut.clear();
        self.wake_all();
    }

    /// Resets the connections of `node`, and closes its port.
    pub fn kill(&self, node: &Node) {
        self.0.state.lock().listeners.remove(node);
        self.reset(node);
    }

    /// Resets the connections of `node`.
    pub fn reset(&self, node: &Node) {
        for (from, to, there, back) in self.connections() {
            if *node == from || *node == to {
                there.reset();
                back.reset();
            }
        }
    }

    /// Resets one connection between the nodes that `random` decides. Returns false if there are none.
    pub fn reset_one(&self, random: &mut fastrand::Rng) -> bool {
        let connections = self.connections();
        let Some((_, _, there, back)) = random.choice(&connections) else {
            return false;
        };
        there.reset();
        back.reset();
        true
    }

    /// Returns a digest of everything that was delivered, with its time, and the number of bytes. Equal digests mean equal
    /// runs.
    pub fn digest(&self) -> (u32, u64) {
        let state = self.0.state.lock();
        (state.digest.clone().finalize(), state.delivered_bytes)
    }

    fn connections(&self) -> Vec<(Node, Node, Arc<Pipe>, Arc<Pipe>)> {
        let state = self.0.state.lock();
        let connections = state.connections.iter();
        let open = connections.filter_map(|(from, to, there, back)| {
            Some((from.clone(), to.clone(), there.upgrade()?, back.upgrade()?))
        });
        open.collect()
    }

    fn wake_all(&self) {
        self.0.changed.notify_waiters();
        for (_, _, there, back) in self.connections() {
            there.wake();
            back.wake();
        }
    }

    fn is_cut(&self, from: &Node, to: &Node) -> bool {
        let state = self.0.state.lock();
        !state.cut.is_empty() && state.cut.contains(&(from.clone(), to.clone()))
    }

    /// Returns the bytes that a connection holds in one direction before its writer waits.
    fn buffer_bytes(&self) -> usize {
        self.0.buffer_bytes
    }

    fn delay(&self) -> Duration {
        let random = &mut self.0.state.lock().random;
        let range = match random.u32(..LONG_DELAY_RARITY) {
            0 => LONG_DELAY_US,
            _ => DELAY_US,
        };
        Duration::from_micros(random.u64(range))
    }

    /// Adds a delivery to the digest.
    fn record(&self, from: &Node, to: &Node, bytes: &[u8]) {
        let elapsed = self.0.started.elapsed().as_micros();
        let mut state = self.0.state.lock();
        for part in [
            &elapsed.to_le_bytes()[..],
            from.0.as_bytes(),
            to.0.as_bytes(),
            bytes,
        ] {
            state.digest.update(part);
        }
        state.delivered_bytes += bytes.len() as u64;
        if let Some(trace) = &mut state.trace {
            let text = String::from_utf8_lossy(bytes);
            let written = writeln!(trace, "{elapsed} {from} {to} {text:?}");
            written.expect("the trace can be written");
        }
    }
}

impl fmt::Debug for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Network")
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::time::timeout;

    use super::*;

    async fn pair(network: &Network) -> (Stream, Stream) {
        let (a, b) = (Node::new("a"), Node::new("b"));
        let mut listener = network.listen(&b);
        let client = network.connect(&a, &b).await.unwrap();
        (client, listener.accept().await.unwrap())
    }

    #[tokio::test(start_paused = true)]
    async fn bytes_arrive_in_order() {
        let network = Network::new(1);
        let (mut client, mut server) = pair(&network).await;
        let sent: Vec<u8> = (0..200_000_u32).map(|n| n.to_le_bytes()[0]).collect();
        let expected = sent.clone();
        let send = async move {
            client.write_all(&sent).await.unwrap();
            client.shutdown().await.unwrap();
        };
        let mut received = Vec::new();
        let (_, read) = tokio::join!(send, server.read_to_end(&mut received));
        assert_eq!(read.unwrap(), expected.len());
        assert!(received == expected);
        assert_eq!(network.digest().1, expected.len() as u64);
    }

    #[tokio::test(start_paused = true)]
    async fn a_partition_delays_and_a_reset_fails() {
        let network = Network::new(1);
        let (mut client, mut server) = pair(&network).await;
        let (a, b) = (Node::new("a"), Node::new("b"));
        network.cut(&a, &b);
        client.write_all(b"lost?").await.unwrap();
        let mut received = [0; 5];
        let waits = timeout(Duration::from_secs(60), server.read_exact(&mut received)).await;
        waits.expect_err("nothing arrives");
        // The other direction works: the connection is half open.
        server.write_all(b"hello").await.unwrap();
        client.read_exact(&mut received).await.unwrap();
        let refused = network.connect(&a, &b).await.unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::TimedOut);
        network.heal();
        server.read_exact(&mut received).await.unwrap();
        assert_eq!(&received, b"lost?");
        network.kill(&b);
        let reset = client.read_exact(&mut received).await.unwrap_err();
        assert_eq!(reset.kind(), io::ErrorKind::ConnectionReset);
        let refused = network.connect(&a, &b).await.unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
    }
}
