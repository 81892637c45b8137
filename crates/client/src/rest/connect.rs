//! Opens connections, with TLS, and HTTP/2 if negotiated, and assigns responses to them. Their tasks belong to one
//! group.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper_rustls::{FixedServerNameResolver, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioTimer;
use parking_lot::Mutex;
use rustls_pki_types::ServerName;

use super::config::RestConfig;
use super::dial::Dial;
use super::material::{Identity, Material, Sources};
use super::tls;
use watchet_tasks::Tasks;

/// The idle time after which a keep-alive is sent. Go's default.
const KEEP_ALIVE: Duration = Duration::from_secs(30);

/// The timeout of an HTTP/2 ping, Go's default.
const PING_TIMEOUT: Duration = Duration::from_secs(15);

/// The maximum idle time of a connection.
const IDLE_MAX: Duration = Duration::from_secs(90);

/// The HTTP/2 receive windows of a stream and of a connection, as in Go's client. The latter is so
/// large that a watch that is not read does not block other streams.
const STREAM_WINDOW: u32 = 4 << 20;
const CONNECTION_WINDOW: u32 = 1 << 30;

/// The maximum number of concurrent streams used of one HTTP/2 connection. Servers allow at least
/// 100; a further request would wait for the end of a stream, which may be a watch.
const STREAMS_MAX: usize = 90;

/// A pool of connections to the server; a single one for HTTP/2.
pub(super) type Pool = Client<HttpsConnector<Dial>, Full<Bytes>>;

/// As many pools as the number of concurrent responses requires. Go's client also opens further
/// connections.
#[derive(Debug)]
pub(super) struct Pools {
    transport: Transport,
    sources: Sources,
    tasks: Tasks,
    state: Mutex<State>,
}

/// The settings of connections that do not change when certificates are reloaded.
#[derive(Debug)]
struct Transport {
    insecure: bool,
    server_name: Option<ServerName<'static>>,
    dial: Dial,
    /// Whether TLS connections offer HTTP/2.
    http2: bool,
}

#[derive(Debug)]
struct State {
    /// The trust and identity of the connector's connections.
    material: Material,
    connector: HttpsConnector<Dial>,
    lanes: Vec<Lane>,
}

#[derive(Debug)]
struct Lane {
    pool: Pool,
    /// Cloned for each response that is being read.
    streams: Arc<()>,
}

/// Reserves a stream for a response until it is dropped.
#[derive(Debug)]
pub(super) struct StreamPermit {
    _stream: Arc<()>,
}

impl Pools {
    /// Creates the pools for `config`; connections are tasks of `tasks`.
    ///
    /// # Errors
    /// The TLS or proxy settings are invalid.
    pub(super) fn new(config: &RestConfig, tasks: Tasks) -> Result<Self, String> {
        let sources = Sources::of(config);
        let material = sources.read()?;
        let transport = Transport {
            insecure: config.insecure_skip_tls_verify,
            server_name: tls::server_name(config)?,
            dial: Dial::new(config.proxy_url.as_deref(), config.dialer.as_ref())?,
            http2: config.http2,
        };
        let connector = transport.connector(&material)?;
        let state = State {
            material,
            connector,
            lanes: Vec::new(),
        };
        Ok(Self {
            transport,
            sources,
            tasks,
            state: Mutex::new(state),
        })
    }

    /// Re-reads certificate files, unless that was done recently, and applies them and `issued` to
    /// new connections. Existing connections only complete their responses.
    ///
    /// # Errors
    /// The issued certificate is invalid.
    pub(super) async fn refresh(&self, issued: Option<&Identity>) -> Result<(), String> {
        let read = self.sources.read_again().await.transpose();
        let read = read.unwrap_or_else(|error| {
            tracing::warn!(%error, "cannot re-read certificates, keeping the previous ones");
            None
        });
        if read.is_none() && issued.is_none() {
            return Ok(());
        }
        let mut state = self.state.lock();
        let mut material = read.unwrap_or_else(|| state.material.clone());
        if let Some(issued) = issued {
            material.identity = Some(issued.clone());
        }
        if material == state.material {
            return Ok(());
        }
        let connect = |material: &Material| self.transport.connector(material);
        let mut made = connect(&material);
        if made.is_err() && issued.is_some() && material.authority != state.material.authority {
            // An invalid file, possibly half-written, must not be reported as an invalid issued
            // certificate.
            material.authority.clone_from(&state.material.authority);
            if material == state.material {
                return Ok(());
            }
            made = connect(&material);
        }
        match made {
            Ok(connector) => {
                tracing::debug!("certificates have changed, new connections use them");
                *state = State {
                    material,
                    connector,
                    lanes: Vec::new(),
                };
                Ok(())
            }
            Err(why) if issued.is_some() => Err(why),
            // Probably only one of two files has been rotated so far.
            Err(why) => {
                tracing::warn!(
                    why,
                    "new certificates are invalid, keeping the previous ones"
                );
                Ok(())
            }
        }
    }

    /// Forces a re-read of certificate files after a failed request, in case they were rotated.
    pub(super) fn force_read(&self) {
        self.sources.force_read();
    }

    /// Returns a pool with a free stream, and the reservation.
    pub(super) fn acquire(&self) -> (Pool, StreamPermit) {
        let state = &mut *self.state.lock();
        let (connector, lanes) = (&state.connector, &mut state.lanes);
        // One reference is the lane's own.
        let free = |lane: &Lane| Arc::strong_count(&lane.streams) <= STREAMS_MAX;
        let at = lanes.iter().position(free).unwrap_or_else(|| {
            lanes.push(Lane {
                pool: pool(connector.clone(), &self.tasks),
                streams: Arc::default(),
            });
            lanes.len() - 1
        });
        let permit = StreamPermit {
            _stream: lanes[at].streams.clone(),
        };
        (lanes[at].pool.clone(), permit)
    }
}

impl Transport {
    /// Returns a connector with the trust and identity of `material`.
    fn connector(&self, material: &Material) -> Result<HttpsConnector<Dial>, String> {
        let builder = HttpsConnectorBuilder::new()
            .with_tls_config(tls::client_config(self.insecure, material)?)
            .https_or_http();
        let builder = match self.server_name.clone() {
            Some(name) => builder.with_server_name_resolver(FixedServerNameResolver::new(name)),
            None => builder,
        };
        let dial = self.dial.clone();
        Ok(match self.http2 {
            true => builder.enable_all_versions().wrap_connector(dial),
            false => builder.enable_http1().wrap_connector(dial),
        })
    }
}

fn pool(connector: HttpsConnector<Dial>, tasks: &Tasks) -> Pool {
    Client::builder(tasks.clone())
        .timer(TokioTimer::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(IDLE_MAX)
        .http2_initial_stream_window_size(STREAM_WINDOW)
        .http2_initial_connection_window_size(CONNECTION_WINDOW)
        .http2_keep_alive_interval(KEEP_ALIVE)
        .http2_keep_alive_timeout(PING_TIMEOUT)
        .build(connector)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The garbage collector watches more resources than a connection has streams.
    #[test]
    fn open_responses_do_not_block_others() {
        let pools = Pools::new(&RestConfig::new("http://a"), Tasks::new()).unwrap();
        let mut reservations: Vec<StreamPermit> =
            (0..STREAMS_MAX).map(|_| pools.acquire().1).collect();
        let lanes = || pools.state.lock().lanes.len();
        assert_eq!(lanes(), 1);
        reservations.push(pools.acquire().1);
        assert_eq!(lanes(), 2);
        // A free stream is used first.
        reservations.remove(0);
        let counts = || -> Vec<usize> {
            let state = pools.state.lock();
            let lanes = state.lanes.iter();
            lanes
                .map(|lane| Arc::strong_count(&lane.streams) - 1)
                .collect()
        };
        assert_eq!(counts(), [STREAMS_MAX - 1, 1]);
        reservations.push(pools.acquire().1);
        assert_eq!(counts(), [STREAMS_MAX, 1]);
    }
}
