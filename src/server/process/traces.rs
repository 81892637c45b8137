//! Starts distributed tracing: reads the `TracingConfiguration`, and starts the tracer and the exporter.

use std::net::SocketAddr;
use std::sync::Arc;

use crate::metrics::Metrics;
use crate::server::config::file_setting::FileSetting;
use crate::server::config::setting_value::ConfigError;
use crate::tasks::Tasks;
use crate::telemetry::{Exporter, Tracer, TracingConfiguration};

/// Reads the configuration, if there is one.
///
/// # Errors
/// The file cannot be read, or the configuration is invalid.
pub(super) fn read(
    file: Option<&FileSetting>,
) -> Result<Option<TracingConfiguration>, ConfigError> {
    let Some(file) = file else {
        return Ok(None);
    };
    let configuration = file.read()?.parse();
    let configuration = configuration.map_err(|error| {
        file.error(format_args!("is not a valid TracingConfiguration: {error}"))
    })?;
    Ok(Some(configuration))
}

/// Starts the exporter as a task of `tasks`; returns the tracer. The name of the host and the port of `address`, the server's,
/// identify the server among those that export to the same collector.
pub(super) fn start(
    configuration: &TracingConfiguration,
    address: SocketAddr,
    metrics: &Arc<Metrics>,
    tasks: &Tasks,
) -> Tracer {
    let host = hostname::get().ok();
    let host = host.and_then(|host| host.into_string().ok());
    let host = host.unwrap_or_else(|| address.ip().to_string());
    let instance = format!("{host}:{}", address.port());
    let (tracer, ended) = Tracer::new(configuration, &instance, metrics);
    let endpoint = &configuration.endpoint;
    let exporter = Exporter::new(endpoint, &tracer, ended, Arc::clone(metrics));
    tasks.spawn("trace-exporter", exporter.run(tasks.token()));
    tracer
}
