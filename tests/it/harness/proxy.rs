//! `Proxy`: between a client and a server, as a network that fails: connections are refused, or cut in
//! the middle of whatever they carry. It does not look into it.

use std::net::SocketAddr;
use std::sync::Arc;

use fastrand::Rng;
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use watchet::tasks::Tasks;

/// What becomes of connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    Open,
    /// Connections end immediately, open ones too.
    Down,
    /// Each ends after at most so many bytes of answers.
    Cutting(usize),
}

/// It ends when it is dropped.
pub(crate) struct Proxy {
    pub(crate) address: SocketAddr,
    server: Arc<Mutex<SocketAddr>>,
    mode: watch::Sender<Mode>,
    /// Notifies the open connections that they end.
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

    /// How many connections were cut by their bytes.
    pub(crate) fn cuts(&self) -> usize {
        *self.cuts.lock()
    }
}

struct Connection {
    client: TcpStream,
    /// The mode at its beginning.
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
        // A server that is away refuses; so does this, by hanging up.
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
        // Biased: after its end nothing more is carried.
        tokio::select! {
            biased;
            _ = self.end.changed() => {}
            () = answers => {}
            _ = requests => {}
        }
    }
}
