//! The budget of an evaluation, and the functions with which an instrumented expression counts its cost.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use kube_cel::cel::{Context, ExecutionError, Value as CelValue};
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::values;

/// Wraps the condition of a comprehension: counts one step.
pub(crate) const COUNT_STEP: &str = "__step__";
/// Wraps an expression whose value can be large: counts its bytes.
pub(crate) const COUNT_BYTES: &str = "__sized__";
/// Wraps the string or list that `replace` or `join` is called on: limits its size.
pub(crate) const LIMIT_FACTOR: &str = "__factor__";
/// Wraps the arguments of `replace` and `join`: limits their size.
pub(crate) const LIMIT_REPLACED: &str = "__small__";

/// The maximum number of evaluations of comprehension bodies.
const STEPS_MAX: u64 = 1_000_000;
/// The maximum size of all new values together, in bytes.
const BYTES_MAX: usize = 16 << 20;
/// The maximum size of a string on which `replace` is called, in bytes.
const FACTOR_BYTES_MAX: usize = 64 << 10;
/// The maximum size of an argument of `replace` or `join`, in bytes.
const REPLACED_BYTES_MAX: usize = 1 << 10;
/// The time limit of an evaluation.
const TIME_MAX: Duration = Duration::from_secs(1);

/// The remaining steps, bytes and time of an evaluation.
#[derive(Debug)]
pub struct Budget {
    steps: AtomicU64,
    bytes: AtomicU64,
    /// The deadline of the present evaluation.
    deadline: Mutex<Instant>,
    /// The deadline of all evaluations.
    last_deadline: Instant,
}

thread_local! {
    /// The budget of the evaluation that this thread runs. Functions are shared by all evaluations, so they find it here.
    static CURRENT: RefCell<Option<Arc<Budget>>> = const { RefCell::new(None) };
}

/// Restores the budget of the outer evaluation when it is dropped, also after a panic.
struct RestoreOuter(Option<Arc<Budget>>);

impl Drop for RestoreOuter {
    fn drop(&mut self) {
        CURRENT.set(self.0.take());
    }
}

impl Budget {
    /// Runs `evaluation`, whose functions use this budget.
    pub(crate) fn run<T>(self: &Arc<Self>, evaluation: impl FnOnce() -> T) -> T {
        let _outer = RestoreOuter(CURRENT.replace(Some(self.clone())));
        evaluation()
    }

    /// Returns the budget of the evaluation that this thread runs.
    ///
    /// # Errors
    /// This thread runs none: only functions of an evaluation have a budget.
    pub fn current() -> Result<Arc<Self>, ExecutionError> {
        let current = CURRENT.with_borrow(Clone::clone);
        current.ok_or_else(|| exceeded("there is no budget"))
    }

    pub(crate) fn new(last_deadline: Instant) -> Self {
        let budget = Self {
            steps: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            deadline: Mutex::new(last_deadline),
            last_deadline,
        };
        budget.renew();
        budget
    }

    /// Resets the steps, bytes and time for the next evaluation.
    pub(crate) fn renew(&self) {
        self.steps.store(0, Ordering::Relaxed);
        self.bytes.store(0, Ordering::Relaxed);
        *self.deadline.lock() = self.last_deadline.min(Instant::now() + TIME_MAX);
    }

    /// Checks that there is time left.
    pub(crate) fn check_deadline(&self) -> Result<(), ExecutionError> {
        match Instant::now() < self.deadline() {
            true => Ok(()),
            false => Err(exceeded("the evaluation takes too long")),
        }
    }

    /// Returns the deadline of the present evaluation.
    pub fn deadline(&self) -> Instant {
        *self.deadline.lock()
    }

    fn count_step(&self) -> Result<(), ExecutionError> {
        if self.steps.fetch_add(1, Ordering::Relaxed) >= STEPS_MAX {
            return Err(exceeded("no further evaluation"));
        }
        self.check_deadline()
    }

    fn count_bytes(&self, value: &CelValue) -> Result<(), ExecutionError> {
        let size = values::size(value, BYTES_MAX) as u64;
        let before = self.bytes.fetch_add(size, Ordering::Relaxed);
        if before + size > BYTES_MAX as u64 {
            return Err(exceeded("its values are too large"));
        }
        self.check_deadline()
    }
}

pub(crate) fn exceeded(why: &str) -> ExecutionError {
    let text = format!(
        "operation cancelled: actual cost limit exceeded: {why}, validation failed due to running \
         out of cost budget"
    );
    ExecutionError::function_error("budget", text)
}

/// Adds the functions that count cost against the budget of the evaluation.
pub(crate) fn register(context: &mut Context<'_>) {
    context.add_function(
        COUNT_STEP,
        |condition: bool| -> Result<CelValue, ExecutionError> {
            Budget::current()?.count_step()?;
            Ok(CelValue::Bool(condition))
        },
    );
    context.add_function(
        COUNT_BYTES,
        |value: CelValue| -> Result<CelValue, ExecutionError> {
            Budget::current()?.count_bytes(&value)?;
            Ok(value)
        },
    );
    for (name, max) in [
        (LIMIT_FACTOR, FACTOR_BYTES_MAX),
        (LIMIT_REPLACED, REPLACED_BYTES_MAX),
    ] {
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
