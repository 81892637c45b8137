//! `/healthz`, `/livez` and `/readyz`: named checks in kube-apiserver's text format. The process
//! supplies the checks, except those of the HTTP layer itself and of the caches.

use axum::body::Body;
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::Response;
use futures_util::future::join_all;

use crate::config::HttpConfig;
use crate::endpoints::method::check_is_read;
use crate::error::HttpError;
use crate::health_check::HealthCheck;
use crate::request::query::Query;
use crate::response::document::response;
use crate::state::HttpState;

/// The check of the caches of all resources. The log names those that are not ready; the response does not, because it
/// needs no credentials and the names of custom resources are not public.
const WATCHCACHE: &str = "watchcache";

/// The maximum number of caches whose reasons are in the log.
const REASONS_MAX: usize = 3;

/// The name of a check and its result.
type Outcome = (String, Result<(), String>);

/// A health endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Endpoint {
    /// The deprecated endpoint, which combines the other two.
    Healthz,
    /// Whether the process should be kept running.
    Livez,
    /// Whether the server should receive requests.
    Readyz,
}

impl Endpoint {
    /// Returns the endpoint of this path segment.
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

/// Responds to a request for `endpoint`, or for one of its checks: `name` has the path segments after the endpoint.
pub(crate) async fn respond(
    state: &HttpState,
    parts: &Parts,
    endpoint: Endpoint,
    name: &[&str],
) -> Result<Response, HttpError> {
    check_is_read(parts)?;
    let query = Query::parse(parts.uri.query().unwrap_or_default())?;
    let name = name.join("/");
    let caches = state.registry.cache_readiness();
    let mut outcomes = outcomes(endpoint, &name, combine(&caches), &state.config).await;
    for (check, outcome) in &outcomes {
        state.failing_checks.record(check, outcome);
    }
    if name.is_empty() {
        return Ok(summary(endpoint, &query, &outcomes));
    }
    match outcomes.pop() {
        None => Err(HttpError::NoSuchPath),
        Some((_, Ok(()))) => Ok(text(StatusCode::OK, "ok".to_owned())),
        Some((_, Err(_))) => {
            let body = "internal server error: reason withheld\n".to_owned();
            Ok(text(StatusCode::INTERNAL_SERVER_ERROR, body))
        }
    }
}

/// Returns one result for the caches of all resources: the number of those that are not ready, and the reasons of the
/// first.
fn combine(caches: &[(String, Result<(), String>)]) -> Result<(), String> {
    let reason = |(resource, readiness): &(String, Result<(), String>)| {
        let reason = readiness.as_ref().err()?;
        Some(format!("{resource}: {reason}"))
    };
    let reasons: Vec<String> = caches.iter().filter_map(reason).collect();
    if reasons.is_empty() {
        return Ok(());
    }
    let shown = reasons[..reasons.len().min(REASONS_MAX)].join("; ");
    let (failed, all) = (reasons.len(), caches.len());
    Err(format!("{failed} of {all} caches are not ready: {shown}"))
}

/// Runs the checks of `endpoint`, or only the one called `name` if that is not empty.
async fn outcomes(
    endpoint: Endpoint,
    name: &str,
    caches: Result<(), String>,
    config: &HttpConfig,
) -> Vec<Outcome> {
    let selected = |check: &str| name.is_empty() || name == check;
    let mut outcomes = vec![("ping".to_owned(), Ok(()))];
    if endpoint != Endpoint::Livez {
        let checks = config.checks.iter().filter(|check| selected(check.name()));
        outcomes.extend(join_all(checks.map(run)).await);
    }
    if endpoint == Endpoint::Readyz {
        outcomes.push((WATCHCACHE.to_owned(), caches));
        let draining = config.connections.token().is_cancelled();
        let shutdown = match draining {
            true => Err("the server is shutting down".to_owned()),
            false => Ok(()),
        };
        outcomes.push(("shutdown".to_owned(), shutdown));
    }
    outcomes.retain(|(check, _)| selected(check));
    outcomes
}

async fn run(check: &HealthCheck) -> Outcome {
    (check.name().to_owned(), check.run().await)
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
            Err(_) => {
                failed = true;
                // Probes need no credentials, so the reason goes to the log only.
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

    use super::*;
    use crate::health_check::CHECK_TIMEOUT;

    async fn code_and_body(response: Response) -> String {
        let code = response.status().as_u16();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        format!("{code} {}", String::from_utf8(body.to_vec()).unwrap())
    }

    async fn check(endpoint: Endpoint, query: &str, config: &HttpConfig, expect: &str) {
        let outcomes = outcomes(endpoint, "", Ok(()), config).await;
        let query = Query::parse(query).unwrap();
        assert_eq!(
            code_and_body(summary(endpoint, &query, &outcomes)).await,
            expect
        );
    }

    #[test]
    fn caches_that_are_not_ready_are_counted() {
        let cache = |name: &str, ready| {
            let readiness = match ready {
                true => Ok(()),
                false => Err("away".to_owned()),
            };
            (name.to_owned(), readiness)
        };
        assert_eq!(combine(&[cache("a", true)]), Ok(()));
        let caches = ["a", "b", "c", "d"].map(|name| cache(name, false));
        let all = [&caches[..], &[cache("e", true)]].concat();
        let expected = "4 of 5 caches are not ready: a: away; b: away; c: away";
        assert_eq!(combine(&all), Err(expected.to_owned()));
    }

    #[tokio::test(start_paused = true)]
    async fn report_lists_each_check() {
        use Endpoint::{Healthz, Livez, Readyz};
        let mut config = HttpConfig {
            checks: vec![HealthCheck::new("storage", || async { Ok(()) })],
            ..HttpConfig::default()
        };
        check(Readyz, "", &config, "200 ok").await;
        let verbose = "200 [+]ping ok\n[+]storage ok\n[+]watchcache ok\n[+]shutdown ok\n\
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

        // Checks run concurrently, otherwise a probe would time out; a single check can be
        // requested by name.
        let stuck = |name| HealthCheck::new(name, std::future::pending);
        config.checks = vec![stuck("a"), stuck("b"), stuck("c")];
        let started = tokio::time::Instant::now();
        assert_eq!(
            outcomes(Readyz, "", Err("away".into()), &config)
                .await
                .len(),
            6
        );
        assert_eq!(started.elapsed(), CHECK_TIMEOUT);
        let one = outcomes(Readyz, "ping", Ok(()), &config).await;
        assert_eq!(one, [("ping".to_owned(), Ok(()))]);
        assert_eq!(
            started.elapsed(),
            CHECK_TIMEOUT,
            "the other checks did not run"
        );

        config.checks.clear();
        config.connections.cancel();
        let draining = "500 [+]ping ok\n[+]watchcache ok\n[-]shutdown failed: reason \
                        withheld\nreadyz check failed\n";
        check(Readyz, "", &config, draining).await;
        check(Livez, "", &config, "200 ok").await;
    }
}
