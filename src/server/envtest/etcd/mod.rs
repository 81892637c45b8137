//! This program called as `etcd`: owns the data directory in which envtest's kube-apiserver stores
//! its objects, returns its path to that, and serves /health. It accepts etcd's flags. It does not
//! serve the etcd API; every other request gets an error that says so.

use std::ffi::OsString;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::routing::get;
use http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::api::UserInfo;
use crate::server::config::server_config::{LogConfig, LogFormat};
use crate::server::config::setting_value::ConfigError;
use crate::server::envtest::command_line::{self, CommandLine};
use crate::server::envtest::store::{self, Store};
use crate::server::envtest::{etcd_flags, program};
use crate::server::process::build::BuildError;
use crate::server::process::files::DataDir;
use crate::server::transport::connections::Connections;
use crate::server::transport::listen;
use crate::server::transport::service::{Authentication, Service};
use crate::tasks::{DrainTimeout, Tasks};

const ABOUT: &str = "watchet, called as etcd: owns the data directory of watchet called as kube-apiserver, \
         and accepts the flags of etcd.\nIt serves /health and does not serve the etcd API. Made for \
     controller-runtime's envtest; see `watchet envtest-assets`.";

/// The response to every other request.
const NOT_SERVED: &str = "this is watchet called as etcd, which owns the store of watchet's kube-apiserver \
     and does not serve the etcd API: use a real etcd for that";

/// The gRPC status UNIMPLEMENTED.
const GRPC_UNIMPLEMENTED: u32 = 12;

/// The maximum number of open connections: kube-apiserver's health checks.
const CONNECTIONS_MAX: usize = 1000;

/// The time limit for open connections to end.
const DRAIN_MAX: Duration = Duration::from_secs(5);

/// The parsed command line.
#[derive(Debug)]
pub(in crate::server) enum Invocation {
    /// Print this text and exit.
    Print(String),
    /// Serve.
    Serve(Etcd),
}

/// An etcd that is configured but not started.
#[derive(Debug)]
pub(in crate::server) struct Etcd {
    /// The log settings.
    pub log: LogConfig,
    data_dir: PathBuf,
    listen: Vec<SocketAddr>,
    fsync: bool,
    ignored: Vec<&'static str>,
}

/// A running etcd.
#[derive(Debug)]
pub(in crate::server) struct RunningEtcd {
    ports: Tasks,
    connections: Tasks,
    _data_dir: DataDir,
}

/// Parses a command line, the name of the program first.
///
/// # Errors
/// A flag is unknown, malformed or not supported.
pub(in crate::server) fn parse(
    arguments: impl Iterator<Item = OsString>,
) -> Result<Invocation, ConfigError> {
    let flags = etcd_flags::all();
    let line = CommandLine::parse(&flags, arguments.skip(1)).map_err(ConfigError::new)?;
    if line.is_true("help") {
        return Ok(Invocation::Print(command_line::help(ABOUT, &flags)));
    }
    if line.is_true("version") {
        let version = env!("CARGO_PKG_VERSION");
        return Ok(Invocation::Print(format!(
            "watchet {version}, called as etcd\n"
        )));
    }
    check(&line)?;
    let text = |name: &str| line.value(name).filter(|value| !value.is_empty());
    let name = text("name").unwrap_or_else(|| "default".to_owned());
    let urls = text("listen-client-urls").unwrap_or_else(|| "http://localhost:2379".to_owned());
    let listen = urls.split(',').map(address);
    let is_ignored = |name: &&str| {
        flags
            .iter()
            .any(|flag| flag.name == *name && flag.is_ignored())
    };
    Ok(Invocation::Serve(Etcd {
        log: log(text("log-level").as_deref())?,
        data_dir: text("data-dir").map_or_else(|| format!("{name}.etcd").into(), PathBuf::from),
        listen: listen.collect::<Result<_, _>>()?,
        fsync: !line.is_true("unsafe-no-fsync"),
        ignored: line.names().into_iter().filter(is_ignored).collect(),
    }))
}

/// Rejects flags whose missing effect would be noticed.
fn check(line: &CommandLine) -> Result<(), ConfigError> {
    const TLS: &str = "only plain HTTP on loopback is served, without certificates";
    const ONE_MEMBER: &str = "this is a cluster of one member";
    let refused = [
        ("cert-file", TLS),
        ("key-file", TLS),
        ("trusted-ca-file", TLS),
        ("discovery", ONE_MEMBER),
        ("discovery-srv", ONE_MEMBER),
        ("config-file", "flags only are read"),
    ];
    for (name, why) in refused {
        if line.value(name).is_some_and(|value| !value.is_empty()) {
            return Err(ConfigError::new(format_args!(
                "--{name} is not supported: {why}"
            )));
        }
    }
    for (name, why) in [("client-cert-auth", TLS), ("auto-tls", TLS)] {
        if line.is_true(name) {
            return Err(ConfigError::new(format_args!(
                "--{name} is not supported: {why}"
            )));
        }
    }
    if line.value("initial-cluster-state").as_deref() == Some("existing") {
        return Err(ConfigError::new(format_args!(
            "--initial-cluster-state \"existing\" is not supported: {ONE_MEMBER}"
        )));
    }
    Ok(())
}

/// Returns the address of a URL to listen on.
fn address(url: &str) -> Result<SocketAddr, ConfigError> {
    let wrong =
        |problem: &str| ConfigError::new(format_args!("--listen-client-urls {url:?}: {problem}"));
    let authority = url
        .strip_prefix("http://")
        .ok_or_else(|| wrong("must be http://HOST:PORT; nothing else is served"))?;
    let mut found = authority
        .trim_end_matches('/')
        .to_socket_addrs()
        .map_err(|error| wrong(&format!("is not an address: {error}")))?;
    let address = found
        .next()
        .ok_or_else(|| wrong("the host has no address"))?;
    match address.ip().is_loopback() || address.ip().is_unspecified() {
        true => Ok(address),
        false => Err(wrong(
            "must be a loopback address: the store is a directory of this machine",
        )),
    }
}

fn log(level: Option<&str>) -> Result<LogConfig, ConfigError> {
    let level = match level {
        None | Some("info") => "info",
        Some("debug") => "debug",
        Some("warn") => "warn",
        Some("error" | "dpanic" | "panic" | "fatal") => "error",
        Some(other) => {
            return Err(ConfigError::new(format_args!(
                "--log-level {other:?}: must be debug, info, warn, error, panic or fatal"
            )));
        }
    };
    Ok(LogConfig {
        level: level.to_owned(),
        format: LogFormat::Text,
    })
}

impl Etcd {
    /// Locks the data directory and starts to serve. Must be called in a Tokio runtime.
    ///
    /// # Errors
    /// The data directory or a port is in use or cannot be used.
    pub(in crate::server) fn start(self) -> Result<RunningEtcd, BuildError> {
        program::log_ignored(&self.ignored);
        let data_dir = DataDir::lock(&self.data_dir)?;
        if data_dir.path.join("member").exists() {
            return Err(ConfigError::new(format_args!(
                "--data-dir {:?}: has the data of a real etcd, which this program cannot read: name \
                 another directory",
                self.data_dir.display()
            ))
            .into());
        }
        let listeners = self.listen.iter().map(|address| {
            let listener = listen::bind("--listen-client-urls", *address)?;
            tracing::info!(%address, data_dir = %data_dir.path.display(), "ready");
            Ok(listener)
        });
        let listeners = listeners.collect::<Result<Vec<TcpListener>, BuildError>>()?;
        let store = Store {
            data_dir: data_dir.path.clone(),
            fsync: self.fsync,
        };
        let (ports, connections) = (Tasks::new(), Tasks::new());
        let service = Arc::new(Service {
            router: router(store),
            console: None,
            authentication: Authentication::Unsecured(Arc::new(UserInfo::unsecured())),
            auditor: None,
            tasks: connections.clone(),
        });
        let open = Connections::new(CONNECTIONS_MAX, &Arc::default());
        for listener in listeners {
            let (service, open) = (service.clone(), open.clone());
            let accept = listen::accept(listener, None, service, open, connections.clone());
            drop(ports.spawn("accept http", accept));
        }
        Ok(RunningEtcd {
            ports,
            connections,
            _data_dir: data_dir,
        })
    }
}

impl RunningEtcd {
    /// Stops listening and ends the connections.
    ///
    /// # Errors
    /// A connection did not end in time.
    pub(in crate::server) async fn drain(self) -> Result<(), DrainTimeout> {
        // Listening stops with the group of the connections.
        let connections = self.connections.drain(DRAIN_MAX).await;
        connections.and(self.ports.drain(DRAIN_MAX).await)
    }
}

fn router(store: Store) -> Router {
    let health = || async { respond(StatusCode::OK, &json!({"health": "true", "reason": ""})) };
    let store = json!(store);
    Router::new()
        .route("/health", get(health))
        .route(
            store::PATH,
            get(move || async move { respond(StatusCode::OK, &store) }),
        )
        .fallback(not_served)
}

/// Responds that the etcd API is not served: to gRPC clients with a gRPC status, to others with the
/// JSON of etcd's gateway.
async fn not_served(headers: HeaderMap) -> Response<Body> {
    let is_grpc = headers
        .get(header::CONTENT_TYPE)
        .is_some_and(|value| value.as_bytes().starts_with(b"application/grpc"));
    if !is_grpc {
        let body = json!({
            "error": NOT_SERVED,
            "code": GRPC_UNIMPLEMENTED,
            "message": NOT_SERVED,
        });
        return respond(StatusCode::NOT_IMPLEMENTED, &body);
    }
    let mut response = Response::new(Body::empty());
    let headers = response.headers_mut();
    headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/grpc"),
    );
    headers.insert("grpc-status", GRPC_UNIMPLEMENTED.into());
    headers.insert("grpc-message", HeaderValue::from_static(NOT_SERVED));
    response
}

fn respond(status: StatusCode, body: &Value) -> Response<Body> {
    let mut response = Response::new(Body::from(body.to_string()));
    *response.status_mut() = status;
    response.headers_mut().insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/json"),
    );
    response
}

#[cfg(test)]
mod tests;
