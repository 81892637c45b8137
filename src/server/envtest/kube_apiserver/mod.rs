//! This program called as `kube-apiserver`: converts the flags of kube-apiserver 1.36 to a server
//! configuration. Flags without a counterpart are accepted and logged; unsupported flags whose
//! effect matters are rejected.

use std::ffi::OsString;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use jiff::Timestamp;

use crate::authorizers::AuthorizerType;
use crate::controllers;
use crate::http;
use crate::server::config::authorization::AuthorizationConfig;
use crate::server::config::flags::Spec;
use crate::server::config::server_config::Config;
use crate::server::config::setting_value::{ConfigError, Source};
use crate::server::config::settings::Settings;
use crate::server::config::storage::StorageConfig;
use crate::server::envtest::command_line::{self, CommandLine};
use crate::server::envtest::{kube_apiserver_flags, program, store};
use crate::server::process::files::{self, PRIVATE, PUBLIC};
use crate::server::process::pki;

const ABOUT: &str = "watchet, called as kube-apiserver: serves the Kubernetes API for tests and accepts the \
     flags of kube-apiserver 1.36.\nMade for controller-runtime's envtest; see `watchet envtest-assets`.";

/// The default of --cert-dir, where a missing serving certificate is created.
const DEFAULT_CERT_DIR: &str = "/var/run/kubernetes";

/// Values of --authorization-mode. Modes that watchet does not have are ignored if others are given.
const AUTHORIZATION_MODES: &[&str] = &[
    "AlwaysAllow",
    "AlwaysDeny",
    "ABAC",
    "Webhook",
    "RBAC",
    "Node",
];

/// The parsed command line.
#[derive(Debug)]
pub(in crate::server) enum Invocation {
    /// Print this text and exit.
    Print(String),
    /// Serve.
    Serve(Box<ApiServer>),
}

/// A kube-apiserver that is configured but not started.
#[derive(Debug)]
pub(in crate::server) struct ApiServer {
    /// The server configuration.
    pub config: Config,
    /// Flags that were given and have no effect.
    ignored: Vec<&'static str>,
}

/// Parses a command line, the name of the program first.
///
/// # Errors
/// A flag is unknown, malformed or contradicts another one; the certificate in --cert-dir is
/// incomplete.
pub(in crate::server) fn parse(
    arguments: impl Iterator<Item = OsString>,
) -> Result<Invocation, ConfigError> {
    let flags = kube_apiserver_flags::all();
    let line = CommandLine::parse(&flags, arguments.skip(1)).map_err(ConfigError::new)?;
    if line.is_true("help") {
        return Ok(Invocation::Print(command_line::help(ABOUT, &flags)));
    }
    if line.is_true("version") {
        let version = format!("Kubernetes {}\n", http::git_version());
        return Ok(Invocation::Print(version));
    }
    check(&line)?;
    let mut settings = settings(&line);
    let given_dir = line.value("cert-dir").map(PathBuf::from);
    let given = settings.flags();
    let files = [&given.tls_cert_file, &given.tls_private_key_file];
    let has_certificate = files.iter().any(|file| file.non_empty().is_some());
    // Validated first, so that a wrong flag creates no files.
    let mut config = Config::check(&settings)?;
    if let Some(dir) = given_dir.as_deref().filter(|_| !has_certificate) {
        let (certificate, key) = serving_certificate(dir, config.listen.address)?;
        settings.give(
            "tls-cert-file",
            certificate.display().to_string(),
            Source::Flag,
        );
        settings.give(
            "tls-private-key-file",
            key.display().to_string(),
            Source::Flag,
        );
        config = Config::check(&settings)?;
    }
    config.controllers = controllers::Selection::of_api_server();
    config.console = false;
    use_directory(
        &mut config,
        given_dir.unwrap_or_else(|| DEFAULT_CERT_DIR.into()),
    );
    let is_ignored = |name: &&str| {
        flags
            .iter()
            .any(|flag| flag.name == *name && flag.is_ignored())
    };
    let ignored = line.names().into_iter().filter(is_ignored).collect();
    Ok(Invocation::Serve(Box::new(ApiServer { config, ignored })))
}

impl ApiServer {
    /// Logs requested features that the server does not have.
    pub(in crate::server) fn log_ignored(&self) {
        program::log_ignored(&self.ignored);
        let always_allow = AuthorizationConfig::Modes(vec![AuthorizerType::AlwaysAllow], None);
        if self.config.authorization == always_allow {
            tracing::info!("no authorization: every authenticated user may do everything");
        }
    }

    /// Requests the location of the store from --etcd-servers. Blocks until one of them responds.
    ///
    /// # Errors
    /// None responds.
    pub(in crate::server) fn locate_store(&mut self) -> Result<(), ConfigError> {
        let StorageConfig::Etcd(etcd) = &self.config.storage else {
            return Ok(());
        };
        if etcd.ca.is_some() || etcd.identity.is_some() {
            return Ok(());
        }
        let located = store::locate(&etcd.servers).map_err(|error| {
            let servers = etcd.servers.join(",");
            ConfigError::new(format_args!(
                "--etcd-servers {servers:?}: etcd does not respond: {error}"
            ))
        })?;
        if let Some(store) = located {
            // One directory per prefix: servers with different prefixes share an etcd but no
            // objects.
            let prefix = etcd.prefix.trim_matches('/').replace('/', "%2F");
            let directory = store.data_dir.join(prefix);
            let servers = etcd.servers.clone();
            self.config.storage = StorageConfig::EnvtestEtcd { servers, store };
            use_directory(&mut self.config, directory);
        }
        Ok(())
    }
}

fn use_directory(config: &mut Config, directory: PathBuf) {
    config.kubeconfig = directory.join("kubeconfig");
    config.data_dir = directory;
}

/// Returns the settings from the flags, with kube-apiserver's defaults.
fn settings(line: &CommandLine) -> Settings {
    let mut settings = Settings::default();
    for (setting, default) in [
        ("bind-address", "0.0.0.0"),
        ("service-cluster-ip-range", "10.0.0.0/24"),
    ] {
        settings.give(setting, default, Source::Default);
    }
    for Spec { name, .. } in settings.specs().to_vec() {
        if let Some(value) = line.value(&name) {
            settings.give(&name, value, Source::Flag);
        }
    }
    let modes = line.value("authorization-mode").unwrap_or_default();
    let is_supported = |mode: &&str| AuthorizerType::from_name(mode).is_some();
    let modes: Vec<&str> = modes.split(',').filter(is_supported).collect();
    if line
        .value("authorization-config")
        .is_none_or(|file| file.is_empty())
    {
        settings.give("authorization-mode", modes.join(","), Source::Flag);
    }
    settings.give("storage", "etcd", Source::Flag);
    for (name, setting) in [("v", "log-level"), ("logging-format", "log-format")] {
        if let Some(value) = line.value(name) {
            settings.give(setting, value, Source::Flag);
        }
    }
    settings
}

/// Rejects what kube-apiserver rejects, with its messages, and what is not supported here.
fn check(line: &CommandLine) -> Result<(), ConfigError> {
    let refuse = |problem: String| Err(ConfigError::new(problem));
    let is_given = |name: &str| line.value(name).is_some_and(|value| !value.is_empty());
    if !is_given("etcd-servers") {
        return refuse("--etcd-servers must be specified".to_owned());
    }
    if let Some(port) = line.value("secure-port")
        && !port.parse().is_ok_and(|port: u16| port > 0)
    {
        return refuse(format!(
            "--secure-port {port} must be between 1 and 65535, inclusive. It cannot be turned off with 0"
        ));
    }
    if let Some(backend) = line.value("storage-backend")
        && !matches!(backend.as_str(), "" | "etcd3")
    {
        return refuse(format!(
            "--storage-backend {backend:?} invalid, allowed values: etcd3. If not specified, it will \
             default to 'etcd3'"
        ));
    }
    check_authorization(line, is_given)?;
    let oidc = line
        .names()
        .into_iter()
        .find(|name| name.starts_with("oidc-"));
    if let Some(oidc) = oidc.filter(|_| is_given("authentication-config")) {
        return refuse(format!(
            "authentication-config file and oidc-* flags are mutually exclusive: remove \
             --authentication-config or --{oidc}"
        ));
    }
    if is_given("service-account-signing-endpoint") {
        return refuse(
            "--service-account-signing-endpoint is not supported: name a key with \
             --service-account-signing-key-file"
                .to_owned(),
        );
    }
    Ok(())
}

fn check_authorization(
    line: &CommandLine,
    is_given: impl Fn(&str) -> bool,
) -> Result<(), ConfigError> {
    let refuse = |problem: String| Err(ConfigError::new(problem));
    let given = line.value("authorization-mode").unwrap_or_default();
    let modes: Vec<&str> = given.split(',').filter(|mode| !mode.is_empty()).collect();
    let has = |mode: &str| modes.contains(&mode);
    if let Some(unknown) = modes
        .iter()
        .find(|mode| !AUTHORIZATION_MODES.contains(mode))
    {
        return refuse(format!(
            "authorization-mode {unknown:?} is not a valid mode"
        ));
    }
    if (1..modes.len()).any(|index| modes[..index].contains(&modes[index])) {
        return refuse(format!(
            "authorization-mode {modes:?} has mode specified more than once"
        ));
    }
    for (mode, file, called) in [
        ("ABAC", "authorization-policy-file", "policy"),
        ("Webhook", "authorization-webhook-config-file", "config"),
    ] {
        match (has(mode), is_given(file)) {
            (true, false) => {
                return refuse(format!(
                    "authorization-mode {mode}'s authorization {called} file not passed: give --{file}"
                ));
            }
            (false, true) => {
                return refuse(format!("cannot specify --{file} without mode {mode}"));
            }
            _ => {}
        }
    }
    if is_given("authorization-config") && !modes.is_empty() {
        return refuse(
            "--authorization-config can not be specified when --authorization-mode or \
             --authorization-webhook-* flags are defined"
                .to_owned(),
        );
    }
    Ok(())
}

/// Returns the serving certificate and its key in `dir`; creates a self-signed pair if there is
/// none.
fn serving_certificate(dir: &Path, address: IpAddr) -> Result<(PathBuf, PathBuf), ConfigError> {
    let (certificate, key) = (dir.join("apiserver.crt"), dir.join("apiserver.key"));
    match (certificate.exists(), key.exists()) {
        (true, true) => {}
        (false, false) => {
            make_certificate(dir, &certificate, &key, address).map_err(|error| {
                ConfigError::new(format_args!("--cert-dir {:?}: {error}", dir.display()))
            })?;
        }
        (has_certificate, _) => {
            let (has, lacks) = match has_certificate {
                true => ("apiserver.crt", "apiserver.key"),
                false => ("apiserver.key", "apiserver.crt"),
            };
            return Err(ConfigError::new(format_args!(
                "--cert-dir {:?}: has {has} but no {lacks}: restore the latter or remove the former",
                dir.display()
            )));
        }
    }
    Ok((certificate, key))
}

fn make_certificate(
    dir: &Path,
    certificate: &Path,
    key: &Path,
    address: IpAddr,
) -> Result<(), pki::PkiError> {
    let made = pki::create_self_signed(address, Timestamp::now())?;
    files::make_private_dir(dir)?;
    files::write(key, made.key.as_bytes(), PRIVATE)?;
    files::write(certificate, made.certificate.as_bytes(), PUBLIC)?;
    Ok(())
}

#[cfg(test)]
mod tests;
