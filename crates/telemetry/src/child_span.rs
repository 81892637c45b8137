//! The current trace context, and spans of the parts of a request.

use std::borrow::Cow;
use std::fmt;
use std::future::Future;

use futures_util::future::Either;
use http::HeaderMap;
use opentelemetry::trace::{FutureExt as _, SpanKind, Status, TraceContextExt as _, Tracer as _};
use opentelemetry::{Context, KeyValue};

use crate::propagation::{inject, inject_context};
use crate::text_attribute;
use crate::tracer::RequestScope;

/// Returns the current context; `None` if there is no trace.
fn current() -> Option<Context> {
    Context::map_current(|context| context.has_active_span().then(|| context.clone()))
}

/// Runs `future`, with `context` as the current one while it is polled if there is a context.
pub fn run_in<F: Future>(
    context: Option<Context>,
    future: F,
) -> impl Future<Output = F::Output> + use<F> {
    match context {
        Some(context) => Either::Left(future.with_context(context)),
        None => Either::Right(future),
    }
}

/// Runs `future` with the context that is current now. For a future that another task polls: a task has no context
/// of its own.
pub fn run_in_current<F: Future>(future: F) -> impl Future<Output = F::Output> + use<F> {
    run_in(current(), future)
}

/// A span of a part of the current request. It ends when it is dropped. It does nothing if the request is not sampled, as
/// does the default one.
///
/// ```
/// use watchet_telemetry::{ChildSpan, text_attribute};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// let span = ChildSpan::start(|| ("Compute".into(), vec![text_attribute("what", "a sum")]));
/// let sum = span.run(async { 1 + 1 }).await;
/// # assert_eq!(sum, 2);
/// # }
/// ```
#[derive(Debug, Default)]
pub struct ChildSpan(Option<Context>);

impl ChildSpan {
    /// Starts a child of the current span. `describe` returns its name and its attributes; it is called only if the span is
    /// recorded. The span also has the attribute `audit-id` of its request.
    pub fn start(describe: impl FnOnce() -> (Cow<'static, str>, Vec<KeyValue>)) -> Self {
        Self::start_as(SpanKind::Internal, describe)
    }

    /// As [`Self::start`], for a request to another program.
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
        let Some(scope) = parent.get::<RequestScope>() else {
            return Self(None);
        };
        let (name, mut attributes) = describe();
        attributes.push(scope.audit_id.clone());
        let builder = scope.tracer.span_builder(name);
        let builder = builder.with_kind(kind).with_attributes(attributes);
        let span = scope.tracer.build_with_context(builder, &parent);
        Self(Some(parent.with_span(span)))
    }

    /// Runs `future` as this part of the request: its own spans are children of this span.
    pub fn run<F: Future>(&self, future: F) -> impl Future<Output = F::Output> + use<F> {
        run_in(self.0.clone(), future)
    }

    /// As [`Self::run`]. If the result is an error, the span has it as its status.
    ///
    /// # Errors
    /// Those of `future`.
    pub async fn run_fallible<T, E: fmt::Display>(
        &self,
        future: impl Future<Output = Result<T, E>>,
    ) -> Result<T, E> {
        let result = self.run(future).await;
        if let Err(error) = &result {
            self.set_error(error);
        }
        result
    }

    /// Adds the headers that continue the trace in another program, as children of this span.
    pub fn inject(&self, headers: &mut HeaderMap) {
        match &self.0 {
            Some(context) => inject_context(context, headers),
            None => inject(headers),
        }
    }

    /// Sets the status of the span to an error.
    pub fn set_error(&self, error: &dyn fmt::Display) {
        if let Some(context) = &self.0 {
            let text = text_attribute("", error.to_string()).value.to_string();
            context.span().set_status(Status::error(text));
        }
    }

    /// Sets an attribute, which `attribute` returns; it is called only if the span is recorded.
    pub fn set(&self, attribute: impl FnOnce() -> KeyValue) {
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
