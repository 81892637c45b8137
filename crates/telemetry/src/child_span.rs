//! `ChildSpan`: the span of an operation within a request. Also runs futures with a trace context.

use std::borrow::Cow;
use std::fmt;
use std::future::Future;

use futures_util::TryFutureExt as _;
use futures_util::future::Either;
use http::HeaderMap;
use opentelemetry::trace::{FutureExt as _, SpanKind, Status, TraceContextExt as _, Tracer as _};
use opentelemetry::{Context, KeyValue};

use crate::propagation::{inject, inject_context};
use crate::text_attribute;
use crate::tracer::RequestTracer;

/// Returns the current trace context; `None` if the current task serves no traced request.
fn current() -> Option<Context> {
    Context::map_current(|context| context.has_active_span().then(|| context.clone()))
}

/// Runs `future` with `context` as the current trace context. Without a context, runs `future` unchanged.
pub fn with_context<F: Future>(
    context: Option<Context>,
    future: F,
) -> impl Future<Output = F::Output> + use<F> {
    match context {
        Some(context) => Either::Left(future.with_context(context)),
        None => Either::Right(future),
    }
}

/// Runs `future` with the trace context that is current at the time of this call. Required for a future that another task
/// polls, because a task does not inherit the context of the task that spawns it.
pub fn with_current_context<F: Future>(future: F) -> impl Future<Output = F::Output> + use<F> {
    with_context(current(), future)
}

/// The span of an operation within the current request. It ends when it is dropped. If the request is not sampled,
/// [`Self::start`] returns the same as [`Self::default`]: a span that records nothing.
///
/// ```
/// use watchet_telemetry::{ChildSpan, text_attribute};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// let span = ChildSpan::start(|| ("Compute".into(), vec![text_attribute("operation", "sum")]));
/// let sum = span.run(async { 1 + 1 }).await;
/// # assert_eq!(sum, 2);
/// # }
/// ```
#[derive(Debug, Default)]
pub struct ChildSpan(Option<Context>);

impl ChildSpan {
    /// Starts a child of the current span. `describe` returns the name and the attributes; it is called only if the request is
    /// sampled. The span also has the attribute `audit-id` of its request.
    pub fn start(describe: impl FnOnce() -> (Cow<'static, str>, Vec<KeyValue>)) -> Self {
        Self::start_as(SpanKind::Internal, describe)
    }

    /// As [`Self::start`], with the kind `Client`: for a request to another program.
    pub fn start_client(describe: impl FnOnce() -> (Cow<'static, str>, Vec<KeyValue>)) -> Self {
        Self::start_as(SpanKind::Client, describe)
    }

    fn start_as(
        kind: SpanKind,
        describe: impl FnOnce() -> (Cow<'static, str>, Vec<KeyValue>),
    ) -> Self {
        let parent = Context::map_current(|context| {
            let is_recorded = context.has_active_span() && context.span().is_recording();
            is_recorded.then(|| context.clone())
        });
        let Some(parent) = parent else {
            return Self(None);
        };
        let Some(request) = parent.get::<RequestTracer>() else {
            return Self(None);
        };
        let (name, mut attributes) = describe();
        attributes.push(request.audit_id.clone());
        let builder = request.tracer.span_builder(name);
        let builder = builder.with_kind(kind).with_attributes(attributes);
        let span = request.tracer.build_with_context(builder, &parent);
        Self(Some(parent.with_span(span)))
    }

    /// Runs `future` with this span as the current one: spans that `future` starts are its children.
    pub fn run<F: Future>(&self, future: F) -> impl Future<Output = F::Output> + use<F> {
        with_context(self.0.clone(), future)
    }

    /// As [`Self::run`]. If the result is an error, sets the status of the span to it.
    ///
    /// # Errors
    /// The error of `future`.
    pub fn run_fallible<T, E: fmt::Display, F: Future<Output = Result<T, E>>>(
        &self,
        future: F,
    ) -> impl Future<Output = Result<T, E>> + use<'_, T, E, F> {
        // Not an `async fn`: its future would store `future` twice, as the argument and while it is awaited.
        self.run(future).inspect_err(|error| self.set_error(error))
    }

    /// Adds the trace context to the headers of a request to another program, with this span as the parent.
    pub fn inject(&self, headers: &mut HeaderMap) {
        match &self.0 {
            Some(context) => inject_context(context, headers),
            None => inject(headers),
        }
    }

    /// Sets the status of the span to `error`.
    pub fn set_error(&self, error: &dyn fmt::Display) {
        if let Some(context) = &self.0 {
            let text = text_attribute("", error.to_string()).value.to_string();
            context.span().set_status(Status::error(text));
        }
    }

    /// Sets the attribute that `attribute` returns. `attribute` is called only if the request is sampled.
    pub fn set_attribute(&self, attribute: impl FnOnce() -> KeyValue) {
        if let Some(context) = &self.0 {
            context.span().set_attribute(attribute());
        }
    }
}

impl Drop for ChildSpan {
    fn drop(&mut self) {
        // Futures that still run in the context do not delay the end of the span.
        if let Some(context) = &self.0 {
            context.span().end();
        }
    }
}
