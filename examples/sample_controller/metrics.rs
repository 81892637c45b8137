//! Serves the metrics of the informers and of the work queue over HTTP, for Prometheus.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};

use axum::Router;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use axum::routing::get;
use tokio::net::TcpListener;
use watchet::client::{InformerMetrics, ObjectKey, SharedInformerFactory, WorkQueue};
use watchet::metrics::Format;

/// The sources of the metrics, set once this process is the leader.
pub(crate) type Counting = Arc<OnceLock<(Arc<SharedInformerFactory>, Arc<WorkQueue<ObjectKey>>)>>;

/// Serves `GET /metrics` until an error.
pub(crate) async fn serve(address: SocketAddr, counting: Counting) -> io::Result<Infallible> {
    let listener = TcpListener::bind(address).await?;
    let address = listener.local_addr()?;
    tracing::info!("metrics are at http://{address}/metrics");
    let routes = Router::new().route("/metrics", get(scrape));
    axum::serve(listener, routes.with_state(counting)).await?;
    Err(io::Error::other("the metrics listener has ended"))
}

async fn scrape(State(counting): State<Counting>) -> impl IntoResponse {
    let metrics = match counting.get() {
        Some((factory, queue)) => InformerMetrics::new().factory(factory).queue(queue),
        None => InformerMetrics::new(),
    };
    let format = Format::Prometheus;
    let content_type = [(CONTENT_TYPE, format.content_type())];
    (content_type, metrics.render(format))
}
