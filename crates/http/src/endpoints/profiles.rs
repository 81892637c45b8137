//! Serves profiles of the running server at `/debug/pprof/`, with kube-apiserver's paths. By default only administrators may
//! read them.

use std::time::Duration;

use axum::body::Body;
use axum::http::header::{CONTENT_DISPOSITION, X_CONTENT_TYPE_OPTIONS};
use axum::http::request::Parts;
use axum::http::{HeaderValue, StatusCode};
use axum::response::Response;
use tokio::time::Instant;

use crate::endpoints::method::check_is_read;
use crate::error::HttpError;
use crate::request::query::Query;
use crate::response::document::response;
use crate::response::send_deadline::SendDeadline;
use crate::state::HttpState;
use watchet_api::MemoryUse;
use watchet_profiling::{
    CPU_PROFILE_BYTES, HeapSampling, heap_sampling, record_cpu_profile, record_heap_profile,
};

/// The duration of a recording without the parameter `seconds`, as upstream for CPU profiles.
const SECONDS_DEFAULT: u32 = 30;

/// The maximum of the parameter `seconds`.
const SECONDS_MAX: u32 = 3600;

const TEXT: &str = "text/plain; charset=utf-8";

/// Returns the part of a path after `/debug/pprof/`, such as `profile`, which can be empty; `None` for other paths.
pub(crate) fn name<'a>(segments: &[&'a str]) -> Option<&'a str> {
    match segments {
        ["debug", "pprof"] => Some(""),
        ["debug", "pprof", name] => Some(name),
        _ => None,
    }
}

/// Responds with a profile, the command line or the index. The request timeout does not apply to a recording. It ends early if the
/// client closes the connection or the server drains.
///
/// # Errors
/// 404 with `--profiling=false` or if there is no such profile, 405 for a method other than GET and HEAD, 400 for an invalid `seconds`;
/// 409 if a profile is being recorded, 429 if the server has too little memory for a profile, 501 if the build records no heap
/// profiles.
pub(crate) async fn serve(
    state: &HttpState,
    parts: &Parts,
    name: &str,
) -> Result<Response, HttpError> {
    if !state.config.profiling {
        return Err(HttpError::NoSuchPath);
    }
    check_is_read(parts)?;
    let tasks = &state.config.connections;
    match name {
        "" => Ok(response(StatusCode::OK, TEXT, Body::from(index()))),
        "cmdline" => Ok(response(StatusCode::OK, TEXT, Body::from(command_line()))),
        "profile" => {
            let seconds = seconds_parameter(parts)?.unwrap_or(SECONDS_DEFAULT);
            check_memory(state)?;
            let profile = record_cpu_profile(tasks, duration_of(seconds)).await?;
            Ok(profile_response(state, profile, "profile"))
        }
        "heap" => {
            let seconds = heap_seconds(seconds_parameter(parts)?, heap_sampling())?;
            let profile = record_heap_profile(tasks, duration_of(seconds)).await?;
            Ok(profile_response(state, profile, "heap"))
        }
        _ => Err(HttpError::NoSuchPath),
    }
}

fn duration_of(seconds: u32) -> Duration {
    Duration::from_secs(seconds.into())
}

/// Returns the value of the query parameter `seconds`; `None` if it is absent.
fn seconds_parameter(parts: &Parts) -> Result<Option<u32>, HttpError> {
    let query = Query::parse(parts.uri.query().unwrap_or_default())?;
    let Some(seconds) = query.integer("seconds")? else {
        return Ok(None);
    };
    let valid = u32::try_from(seconds).ok();
    let valid = valid.filter(|seconds| (1..=SECONDS_MAX).contains(seconds));
    match valid {
        Some(seconds) => Ok(Some(seconds)),
        None => Err(HttpError::BadRequest(format!(
            "invalid value {seconds} of query parameter \"seconds\": it must be between 1 and {SECONDS_MAX}"
        ))),
    }
}

/// Returns the duration of a heap profile in seconds. `requested` is the value of the parameter `seconds`.
fn heap_seconds(requested: Option<u32>, sampling: HeapSampling) -> Result<u32, HttpError> {
    match (sampling, requested) {
        (HeapSampling::Always, None) => Ok(0),
        (HeapSampling::Always, Some(seconds)) => Err(HttpError::BadRequest(format!(
            "invalid value {seconds} of query parameter \"seconds\": omit it: with prof_active:true in the environment variable \
             _RJEM_MALLOC_CONF, a heap profile contains all allocations since the start of the server"
        ))),
        (_, requested) => Ok(requested.unwrap_or(SECONDS_DEFAULT)),
    }
}

/// Checks that a CPU profile fits below the memory limit of the server.
fn check_memory(state: &HttpState) -> Result<(), HttpError> {
    let memory = &state.config.memory;
    let reserved = memory.reserve(MemoryUse::Profile, CPU_PROFILE_BYTES, false)?;
    // The recording uses most of this memory only at its end. Until then, other requests may use it.
    drop(reserved);
    Ok(())
}

fn profile_response(state: &HttpState, profile: Vec<u8>, name: &'static str) -> Response {
    let body = Body::from(profile);
    let mut response = response(StatusCode::OK, "application/octet-stream", body);
    let disposition = match name {
        "heap" => "attachment; filename=\"heap\"",
        _ => "attachment; filename=\"profile\"",
    };
    let headers = response.headers_mut();
    headers.insert(CONTENT_DISPOSITION, HeaderValue::from_static(disposition));
    let no_sniff = HeaderValue::from_static("nosniff");
    headers.insert(X_CONTENT_TYPE_OPTIONS, no_sniff);
    let deadline = Instant::now() + state.config.request_timeout;
    response
        .extensions_mut()
        .insert(SendDeadline::from(deadline));
    response
}

/// Returns the command line of the process, its arguments separated by zero bytes, as upstream.
fn command_line() -> String {
    let arguments = std::env::args_os().map(|argument| argument.to_string_lossy().into_owned());
    arguments.collect::<Vec<_>>().join("\0")
}

fn index() -> String {
    let seconds = format!("seconds=1 to {SECONDS_MAX}, default {SECONDS_DEFAULT}");
    let heap = match heap_sampling() {
        HeapSampling::Unavailable => "(this program cannot record heap profiles)".to_owned(),
        HeapSampling::OnRequest => {
            format!("what was allocated in this time, and not freed; {seconds}")
        }
        HeapSampling::Always => {
            "what was allocated since the start of the server, and not freed".to_owned()
        }
    };
    format!(
        "/debug/pprof/\n\n\
         profile  where the server spends CPU time; {seconds}\n\
         heap     {heap}\n\
         cmdline  the command line of the server, its arguments separated by zero bytes\n\n\
         kubectl get --raw '/debug/pprof/profile?seconds=10' > cpu.pb.gz && go tool pprof -top cpu.pb.gz\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_paths_below_debug_pprof_have_a_name() {
        assert_eq!(name(&["debug", "pprof"]), Some(""));
        assert_eq!(name(&["debug", "pprof", "heap"]), Some("heap"));
        for other in [&["debug"][..], &["debug", "pprof", "a", "b"], &["pprof"]] {
            assert_eq!(name(other), None, "{other:?}");
        }
    }

    #[test]
    fn a_heap_profile_since_the_start_takes_no_time() {
        let seconds = |given, sampling| heap_seconds(given, sampling).map_err(|e| e.to_string());
        assert_eq!(seconds(None, HeapSampling::OnRequest), Ok(SECONDS_DEFAULT));
        assert_eq!(seconds(Some(2), HeapSampling::OnRequest), Ok(2));
        assert_eq!(seconds(None, HeapSampling::Always), Ok(0));
        let error = seconds(Some(2), HeapSampling::Always).unwrap_err();
        assert!(error.contains("omit it"), "{error}");
    }
}
