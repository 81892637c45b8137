//! A TCP proxy that balances connections between servers, can stop to forward, in one direction or both, and break its
//! connections.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use watchet_tasks::Tasks;

const BUFFER_BYTES: usize = 64 << 10;

/// What a proxy forwards.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Forwarding {
    /// It does not forward what the client sends.
    pub(super) is_cut_to_server: bool,
    /// It does not forward what the server sends.
    pub(super) is_cut_to_client: bool,
    /// Counts how often the connections were broken.
    resets: u64,
}

/// A proxy. It ends when this is dropped.
pub(super) struct Proxy {
    pub(super) address: SocketAddr,
    state: watch::Sender<Forwarding>,
    tasks: Tasks,
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.tasks.cancel();
    }
}

impl Proxy {
    /// Starts a proxy of `servers`. A connection goes to the next server that accepts it.
    pub(super) async fn start(servers: &[SocketAddr]) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let (state, receiver) = watch::channel(Forwarding::default());
        let tasks = Tasks::new();
        let proxy = Self {
            address: listener.local_addr()?,
            state,
            tasks: tasks.clone(),
        };
        let spawner = tasks.clone();
        let mut servers = servers.to_vec();
        let accept = async move {
            // It ends with the runtime's descriptors only.
            while let Ok((client, _)) = listener.accept().await {
                servers.rotate_left(1);
                let token = spawner.token();
                let forward = token.run_until_cancelled_owned(forward(
                    client,
                    servers.clone(),
                    receiver.clone(),
                ));
                drop(spawner.spawn("proxy-connection", forward));
            }
        };
        let token = tasks.token();
        drop(tasks.spawn("proxy", token.run_until_cancelled_owned(accept)));
        Ok(proxy)
    }

    /// Stops to forward, or forwards again.
    pub(super) fn cut(&self, to_server: bool, to_client: bool) {
        self.state.send_modify(|state| {
            state.is_cut_to_server = to_server;
            state.is_cut_to_client = to_client;
        });
    }

    /// Breaks all connections.
    pub(super) fn reset(&self) {
        self.state.send_modify(|state| state.resets += 1);
    }
}

async fn forward(
    client: TcpStream,
    servers: Vec<SocketAddr>,
    mut state: watch::Receiver<Forwarding>,
) {
    let resets = state.borrow_and_update().resets;
    let (to_server, to_client) = (state.clone(), state.clone());
    let Ok(server) = TcpStream::connect(&servers[..]).await else {
        return;
    };
    // A failure delays packets only.
    drop(client.set_nodelay(true).and(server.set_nodelay(true)));
    let ((client_read, client_write), (server_read, server_write)) =
        (client.into_split(), server.into_split());
    let up = copy(client_read, server_write, to_server, |state| {
        state.is_cut_to_server
    });
    let down = copy(server_read, client_write, to_client, |state| {
        state.is_cut_to_client
    });
    // A reset drops both directions. It comes first, the directions are independent.
    tokio::select! {
        biased;
        _ = state.wait_for(|state| state.resets > resets) => {}
        () = up => {}
        () = down => {}
    }
}

/// Forwards one direction until an end fails or closes.
async fn copy(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    mut state: watch::Receiver<Forwarding>,
    is_cut: fn(&Forwarding) -> bool,
) {
    let mut buffer = vec![0; BUFFER_BYTES];
    while let Ok(count @ 1..) = from.read(&mut buffer).await {
        if state.wait_for(|state| !is_cut(state)).await.is_err() {
            return;
        }
        if to.write_all(&buffer[..count]).await.is_err() {
            return;
        }
    }
}
