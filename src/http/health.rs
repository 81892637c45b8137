//! `/healthz`, `/livez` and `/readyz` (§8.7): named checks in upstream's text format. What the checks
//! look at is given by the process, except those about the wire itself and the caches.

use std::time::Duration;

use axum::body::Body;
use axum::http::StatusCode;
use axum::response::Response;

use crate::registry::Registry;

use super::config::WireConfig;
use super::error::WireError;
use super::query::Query;
use super::response::response;

/// How long one check may take before it counts as failed: probes usually give up after as much.
const CHECK_TIMEOUT: Duration = Duration::from_secs(2);

/// Which question is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Endpoint {
    /// The older question for both.
    Healthz,
    /// Whether the process is worth keeping.
    Livez,
    /// Whether requests should be sent to it.
    Readyz,
}

impl Endpoint {
    /// The endpoint of this path segment.
    pub(crate) fn from_path(segment: &str) -> Option<Self> {
        match segment {
            "healthz" => Some(Self::Healthz),
            "livez" => Some(Self::Livez),
            "readyz" => Some(Self::Readyz),
            _ => None,
        }
    }

    const fn as_str(self) -> &'static str {
        match self {
            Self::Healthz => "healthz",
            Self::Livez => "livez",
            Self::Readyz => "readyz",
        }
    }
}

/// One check and how it went.
type Outcome = (String, Result<(), String>);

/// Answers `endpoint`, or one check of it by name.
pub(crate) async fn answer(
    endpoint: Endpoint,
    name: &str,
    query: &Query,
    registry: &Registry,
    config: &WireConfig,
) -> Result<Response, WireError> {
    let caches = registry.cache_readiness();
    let outcomes = outcomes(endpoint, caches, config).await;
    if name.is_empty() {
        return Ok(summary(endpoint, query, &outcomes));
    }
    match outcomes.iter().find(|(n, _)| n == name) {
        None => Err(WireError::NoSuchPath),
        Some((_, Ok(()))) => Ok(text(StatusCode::OK, "ok".to_owned())),
        Some((_, Err(reason))) => {
            let body = format!("internal server error: {reason}\n");
            Ok(text(StatusCode::INTERNAL_SERVER_ERROR, body))
        }
    }
}

async fn outcomes(endpoint: Endpoint, caches: Vec<Outcome>, config: &WireConfig) -> Vec<Outcome> {
    let mut outcomes = vec![("ping".to_owned(), Ok(()))];
    if endpoint != Endpoint::Livez {
        for check in &config.checks {
            let outcome = match tokio::time::timeout(CHECK_TIMEOUT, check.run()).await {
                Ok(outcome) => outcome,
                Err(_) => Err(format!("no answer within {CHECK_TIMEOUT:?}")),
            };
            outcomes.push((check.name().to_owned(), outcome));
        }
    }
    if endpoint == Endpoint::Readyz {
        let caches = caches.into_iter();
        outcomes.extend(caches.map(|(name, outcome)| (format!("watchcache/{name}"), outcome)));
        let draining = config.shutdown.is_cancelled();
        let shutdown = match draining {
            true => Err("the server is shutting down".to_owned()),
            false => Ok(()),
        };
        outcomes.push(("shutdown".to_owned(), shutdown));
    }
    outcomes
}

fn summary(endpoint: Endpoint, query: &Query, outcomes: &[Outcome]) -> Response {
    let excluded: Vec<&str> = query.all("exclude").collect();
    let mut lines = String::new();
    let mut failed = false;
    for (name, outcome) in outcomes {
        if excluded.contains(&&**name) {
            lines.push_str(&format!("[+]{name} excluded: ok\n"));
            continue;
        }
        match outcome {
            Ok(()) => lines.push_str(&format!("[+]{name} ok\n")),
            Err(reason) => {
                failed = true;
                tracing::warn!(check = name, reason, "{} failed", endpoint.as_str());
                // Probes need no credential: why it failed is for the log.
                lines.push_str(&format!("[-]{name} failed: reason withheld\n"));
            }
        }
    }
    for name in excluded {
        if !outcomes.iter().any(|(known, _)| known == name) {
            lines.push_str(&format!(
                "warn: some health checks cannot be excluded: no matches for {name:?}\n"
            ));
        }
    }
    let endpoint = endpoint.as_str();
    if failed {
        lines.push_str(&format!("{endpoint} check failed\n"));
        return text(StatusCode::INTERNAL_SERVER_ERROR, lines);
    }
    if query.get("verbose").is_none() {
        return text(StatusCode::OK, "ok".to_owned());
    }
    lines.push_str(&format!("{endpoint} check passed\n"));
    text(StatusCode::OK, lines)
}

fn text(code: StatusCode, body: String) -> Response {
    response(code, "text/plain; charset=utf-8", Body::from(body))
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt as _;

    use super::super::config::HealthCheck;
    use super::*;

    async fn told(response: Response) -> String {
        let code = response.status().as_u16();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        format!("{code} {}", String::from_utf8(body.to_vec()).unwrap())
    }

    async fn check(endpoint: Endpoint, query: &str, config: &WireConfig, expect: &str) {
        let caches = vec![("pods".to_owned(), Ok(()))];
        let outcomes = outcomes(endpoint, caches, config).await;
        let query = Query::parse(query).unwrap();
        assert_eq!(told(summary(endpoint, &query, &outcomes)).await, expect);
    }

    #[tokio::test(start_paused = true)]
    async fn the_text_format() {
        use Endpoint::{Healthz, Livez, Readyz};
        let mut config = WireConfig {
            checks: vec![HealthCheck::new("storage", || async { Ok(()) })],
            ..WireConfig::default()
        };
        check(Readyz, "", &config, "200 ok").await;
        let verbose = "200 [+]ping ok\n[+]storage ok\n[+]watchcache/pods ok\n[+]shutdown ok\n\
                       readyz check passed\n";
        check(Readyz, "verbose", &config, verbose).await;
        let verbose = "200 [+]ping ok\nlivez check passed\n";
        check(Livez, "verbose=true", &config, verbose).await;

        config.checks = vec![HealthCheck::new("storage", || async { Err("away".into()) })];
        let failed = "500 [+]ping ok\n[-]storage failed: reason withheld\nhealthz check failed\n";
        check(Healthz, "", &config, failed).await;
        let excluded = "200 [+]ping ok\n[+]storage excluded: ok\nwarn: some health checks cannot \
                        be excluded: no matches for \"x\"\nhealthz check passed\n";
        check(
            Healthz,
            "verbose&exclude=storage&exclude=x",
            &config,
            excluded,
        )
        .await;

        config.checks = vec![HealthCheck::new("storage", std::future::pending)];
        check(Healthz, "", &config, failed).await;

        config.checks.clear();
        config.shutdown.cancel();
        let draining = "500 [+]ping ok\n[+]watchcache/pods ok\n[-]shutdown failed: reason \
                        withheld\nreadyz check failed\n";
        check(Readyz, "", &config, draining).await;
        check(Livez, "", &config, "200 ok").await;
    }
}
