//! `Proxy`: a TCP proxy that simulates a failing network: it rejects connections, or cuts them in the middle of a
//! message.

use std::net::SocketAddr;
use std::sync::Arc;

use fastrand::Rng;
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use watchet::tasks::Tasks;

/// The treatment of connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    Open,
    /// Connections end immediately, including open ones.
    Down,
    /// Each connection ends after at most this many bytes of responses.
    Cutting(usize),
}

/// A proxy that ends when dropped.
pub(crate) struct Proxy {
    pub(crate) address: SocketAddr,
    server: Arc<Mutex<SocketAddr>>,
    mode: watch::Sender<Mode>,
    /// Ends the open connections when notified.
    end: watch::Sender<()>,
    cuts: Arc<Mutex<usize>>,
    tasks: Tasks,
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.tasks.cancel();
    }
}

impl Proxy {
    pub(crate) async fn start(server: SocketAddr, seed: u64) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let proxy = Self {
            address: listener.local_addr().unwrap(),
            server: Arc::new(Mutex::new(server)),
            mode: watch::Sender::new(Mode::Open),
            end: watch::Sender::default(),
            cuts: Arc::default(),
            tasks: Tasks::new(),
        };
        let (mode, end, cuts) = (proxy.mode.clone(), proxy.end.clone(), proxy.cuts.clone());
        let server = proxy.server.clone();
        let tasks = proxy.tasks.clone();
        let mut random = Rng::with_seed(seed);
        let accept = async move {
            loop {
                let (client, _) = listener.accept().await.unwrap();
                let connection = Connection {
                    client,
                    mode: *mode.borrow(),
                    end: end.subscribe(),
                    cuts: cuts.clone(),
                    random: random.fork(),
                };
                let carry = tasks
                    .token()
                    .run_until_cancelled_owned(connection.carry(*server.lock()));
                drop(tasks.spawn("proxy-connection", carry));
            }
        };
        let accept = proxy.tasks.token().run_until_cancelled_owned(accept);
        drop(proxy.tasks.spawn("proxy", accept));
        proxy
    }

    pub(crate) fn set(&self, mode: Mode) {
        self.mode.send_replace(mode);
        if mode == Mode::Down {
            self.end.send_replace(());
        }
    }

    /// Connects to another server from now on, and ends the open connections.
    pub(crate) fn set_server(&self, server: SocketAddr) {
        *self.server.lock() = server;
        self.end.send_replace(());
    }

    /// Returns the number of connections that were cut because of their bytes.
    pub(crate) fn cuts(&self) -> usize {
        *self.cuts.lock()
    }
}

struct Connection {
    client: TcpStream,
    /// The mode when the connection began.
    mode: Mode,
    end: watch::Receiver<()>,
    cuts: Arc<Mutex<usize>>,
    random: Rng,
}

impl Connection {
    async fn carry(mut self, server: SocketAddr) {
        let mut left = match self.mode {
            Mode::Open => usize::MAX,
            Mode::Down => return,
            Mode::Cutting(max) => self.random.usize(1..max),
        };
        // If the server is unreachable, the proxy closes the connection.
        let Ok(server) = TcpStream::connect(server).await else {
            return;
        };
        let (mut from_client, mut to_client) = self.client.split();
        let (mut from_server, mut to_server) = server.into_split();
        let cuts = self.cuts;
        let answers = async {
            let mut buffer = vec![0; 16 << 10];
            while let Ok(count @ 1..) = from_server.read(&mut buffer).await {
                let received = count.min(left);
                left -= received;
                if to_client.write_all(&buffer[..received]).await.is_err() {
                    return;
                }
                if left == 0 {
                    *cuts.lock() += 1;
                    return;
                }
            }
        };
        let requests = tokio::io::copy(&mut from_client, &mut to_server);
        // After the end of the connection no data is copied.
        tokio::select! {
            biased;
            _ = self.end.changed() => {}
            () = answers => {}
            _ = requests => {}
        }
    }
}
