//! What the controller's informers and its queue count, over HTTP for who scrapes it. What there is to
//! count, and when, is not known here.

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

/// What is reported once this process leads.
pub(crate) type Counting = Arc<OnceLock<(Arc<SharedInformerFactory>, Arc<WorkQueue<ObjectKey>>)>>;

/// Answers `GET /metrics` for ever.
pub(crate) async fn serve(address: SocketAddr, counting: Counting) -> io::Result<Infallible> {
    let listener = TcpListener::bind(address).await?;
    let address = listener.local_addr()?;
    tracing::info!("metrics are at http://{address}/metrics");
    let routes = Router::new().route("/metrics", get(scrape));
    axum::serve(listener, routes.with_state(counting)).await?;
    Err(io::Error::other("the listener is gone"))
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
