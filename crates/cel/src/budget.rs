//! What one evaluation may cost, and the functions by which expressions count what they cost.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use kube_cel::cel::{Context, ExecutionError, Value as CelValue};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::values;

/// Wraps the condition of a comprehension: one step.
pub(super) const STEP: &str = "__step__";
/// Wraps what makes a new value that can be large: so many bytes.
pub(super) const SIZED: &str = "__sized__";
/// Wraps what is multiplied by something else.
pub(super) const FACTOR: &str = "__factor__";
/// Likewise, what multiplies it.
pub(super) const SMALL: &str = "__small__";

/// How many times the bodies of comprehensions may be evaluated.
const STEPS_MAX: u64 = 1_000_000;
/// How many bytes of new values there may be.
const BYTES_MAX: usize = 16 << 20;
/// How large a text may be in which others are replaced.
const FACTOR_BYTES_MAX: usize = 64 << 10;
/// How large such others may be.
const SMALL_BYTES_MAX: usize = 1 << 10;
/// How long it may take.
const TIME_MAX: Duration = Duration::from_secs(1);

/// What one evaluation may still cost.
#[derive(Debug)]
pub(super) struct Budget {
    steps: AtomicU64,
    bytes: AtomicU64,
    until: Mutex<Instant>,
    /// When no evaluation goes on, whatever it may still cost.
    end: Instant,
}

impl Budget {
    pub(super) fn new(end: Instant) -> Self {
        let budget = Self {
            steps: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            until: Mutex::new(end),
            end,
        };
        budget.renew();
        budget
    }

    pub(super) fn renew(&self) {
        self.steps.store(0, Ordering::Relaxed);
        self.bytes.store(0, Ordering::Relaxed);
        *self.until.lock() = self.end.min(Instant::now() + TIME_MAX);
    }

    /// Whether there is time left.
    pub(super) fn check(&self) -> Result<(), ExecutionError> {
        match Instant::now() < self.until() {
            true => Ok(()),
            false => Err(exceeded("the evaluation takes too long")),
        }
    }

    /// Returns the end of the present evaluation.
    pub(super) fn until(&self) -> Instant {
        *self.until.lock()
    }

    fn step(&self) -> Result<(), ExecutionError> {
        if self.steps.fetch_add(1, Ordering::Relaxed) >= STEPS_MAX {
            return Err(exceeded("no further evaluation"));
        }
        self.check()
    }

    fn sized(&self, value: &CelValue) -> Result<(), ExecutionError> {
        let size = values::size(value, BYTES_MAX) as u64;
        let before = self.bytes.fetch_add(size, Ordering::Relaxed);
        if before + size > BYTES_MAX as u64 {
            return Err(exceeded("its values are too large"));
        }
        self.check()
    }
}

fn exceeded(why: &str) -> ExecutionError {
    let text = format!(
        "operation cancelled: actual cost limit exceeded: {why}, validation failed due to running \
         out of cost budget"
    );
    ExecutionError::function_error("budget", text)
}

/// Adds the functions that count against `budget`.
pub(super) fn register(context: &mut Context<'_>, budget: &Arc<Budget>) {
    let steps = budget.clone();
    context.add_function(
        STEP,
        move |go_on: bool| -> Result<CelValue, ExecutionError> {
            steps.step()?;
            Ok(CelValue::Bool(go_on))
        },
    );
    let bytes = budget.clone();
    context.add_function(
        SIZED,
        move |value: CelValue| -> Result<CelValue, ExecutionError> {
            bytes.sized(&value)?;
            Ok(value)
        },
    );
    for (name, max) in [(FACTOR, FACTOR_BYTES_MAX), (SMALL, SMALL_BYTES_MAX)] {
        context.add_function(
            name,
            move |value: CelValue| -> Result<CelValue, ExecutionError> {
                match &value {
                    CelValue::String(text) if text.len() > max => {
                        Err(exceeded("a text is too large for what is done with it"))
                    }
                    _ => Ok(value),
                }
            },
        );
    }
}
