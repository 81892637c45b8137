//! The limits of one call of a function. The implementations of functions cannot be interrupted, and none of them
//! consults a budget, so the size of the operands, the work, and the size of the result are bounded before the call.
//! `docs/security.md` has the measured time and memory of calls at these limits.

use kube_cel::cel::{ExecutionError, Value as CelValue};
use regex_automata::nfa::thompson::{Config, NFA};

use crate::budget::exceeded;
use crate::values;

/// The maximum size of the operands of a call together, and of its result, as [`values::size`] counts it.
const SIZE_MAX: usize = 2 << 20;
/// The maximum work of a call: compared or copied bytes, or steps of an automaton.
const WORK_MAX: usize = 256 << 20;
/// The maximum size of a regular expression in bytes. Some bytes can name a class of hundreds of ranges of characters.
const PATTERN_BYTES_MAX: usize = 8 << 10;
/// The maximum memory of the automaton of a regular expression. It is compiled in several forms of this size.
const AUTOMATON_BYTES_MAX: usize = 1 << 20;
/// The work of the step of an automaton in one of its states, if all are active. It takes some nanoseconds.
const WORK_PER_STEP: usize = 8;
/// The size of an element of a list or of a short string, besides its text.
const ELEMENT_BYTES: usize = 48;
/// The maximum number of digits that a verb of `format` prints, without those that a precision adds.
const DIGITS_MAX: usize = 330;

/// The cost of a call by the sizes of its operands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cost {
    /// Reads each operand once.
    Linear,
    /// Compares each element of the first operand with each of the second, and the other way round.
    Pairs,
    /// Compares or copies each element of the first operand with each other one.
    OwnPairs,
    /// Compares elements with each other a logarithmic number of times.
    Sort,
    /// Compares the second operand with each position of the first.
    Search,
    /// Compiles the second operand to an automaton and runs it on the first.
    Regex,
    /// As `Regex`, for all matches; there can be one before each character.
    FindAll,
    /// Creates a list whose length is the operand.
    Range,
    /// Replaces the second operand by the third in the first.
    Replace,
    /// Joins the elements of the first operand with the second between them.
    Join,
    /// Formats the elements of the second operand by the format string in the first.
    Format,
    /// Splits the first operand at the second.
    Split,
    /// Copies nested lists once for each level.
    Flatten,
}

/// The sizes of the operands of a call.
#[derive(Default)]
pub(crate) struct OperandSizes(Vec<usize>);

impl OperandSizes {
    /// Adds the next operand.
    ///
    /// # Errors
    /// The total size of the operands is too large.
    pub(crate) fn add(&mut self, operand: &CelValue) -> Result<(), ExecutionError> {
        self.0.push(values::size(operand, SIZE_MAX));
        match self.0.iter().sum::<usize>() <= SIZE_MAX {
            true => Ok(()),
            false => Err(exceeded("the operands of a function are too large")),
        }
    }

    /// Repeats the first operand in front of all.
    pub(crate) fn repeat_first(&mut self) {
        if let Some(first) = self.0.first() {
            self.0.insert(0, *first);
        }
    }
}

/// The cost of a call in addition to reading its operands once: its work, and the size of its result.
#[derive(Default)]
struct Demand {
    work: usize,
    result: usize,
}

impl Cost {
    /// Checks that a call with these operands is within the limits. The target of a method is the first operand.
    ///
    /// # Errors
    /// The cost limit is exceeded.
    pub(crate) fn check(
        self,
        operands: &[&CelValue],
        sizes: &OperandSizes,
    ) -> Result<(), ExecutionError> {
        let Demand { work, result } = self.demand(operands, &sizes.0)?;
        if work > WORK_MAX {
            return Err(exceeded("a function has too much work"));
        }
        if result > SIZE_MAX {
            return Err(exceeded("the result of a function is too large"));
        }
        Ok(())
    }

    fn demand(self, operands: &[&CelValue], sizes: &[usize]) -> Result<Demand, ExecutionError> {
        let size = |at: usize| sizes.get(at).copied().unwrap_or(0);
        let text = |at: usize| match operands.get(at) {
            Some(CelValue::String(text)) => Some(text.as_str()),
            _ => None,
        };
        let items = |at: usize| match operands.get(at) {
            Some(CelValue::List(items)) => items.len(),
            _ => 0,
        };
        let total: usize = sizes.iter().sum();
        let work_of = |work| Demand { work, result: 0 };
        let result_of = |result| Demand { work: 0, result };
        Ok(match self {
            Self::Linear => Demand::default(),
            Self::OwnPairs => work_of(items(0).saturating_mul(size(0))),
            Self::Pairs => work_of(
                (items(0).saturating_mul(size(1))).saturating_add(items(1).saturating_mul(size(0))),
            ),
            Self::Sort => {
                let rounds = items(0).max(operands.len()).max(2).ilog2() + 1;
                work_of(total.saturating_mul(rounds as usize))
            }
            Self::Search => match (text(0), text(1)) {
                (Some(text), Some(found)) => work_of(text.len().saturating_mul(found.len())),
                _ => work_of(items(0).saturating_mul(size(1))),
            },
            Self::Regex => match (text(0), text(1)) {
                (Some(text), Some(pattern)) => work_of(regex_work(text, pattern)?),
                _ => Demand::default(),
            },
            Self::FindAll => match (text(0), text(1)) {
                (Some(text), Some(pattern)) => Demand {
                    work: regex_work(text, pattern)?,
                    result: (text.len() + 1).saturating_mul(ELEMENT_BYTES),
                },
                _ => Demand::default(),
            },
            Self::Range => match operands.first() {
                Some(CelValue::Int(count)) => {
                    let count = usize::try_from(*count).unwrap_or(0);
                    result_of(count.saturating_mul(ELEMENT_BYTES))
                }
                _ => Demand::default(),
            },
            Self::Replace => match (text(0), text(1), text(2)) {
                (Some(text), Some(old), Some(new)) => {
                    let grown = text.matches(old).count().saturating_mul(new.len());
                    result_of(text.len().saturating_add(grown))
                }
                _ => Demand::default(),
            },
            Self::Join => {
                let separators = items(0).saturating_mul(text(1).map_or(0, str::len));
                result_of(size(0).saturating_add(separators))
            }
            Self::Format => result_of(text(0).map_or(0, formatted_digits).saturating_add(total)),
            Self::Split => match (text(0), text(1)) {
                (Some(text), Some(separator)) => {
                    result_of((text.matches(separator).count() + 1).saturating_mul(ELEMENT_BYTES))
                }
                _ => Demand::default(),
            },
            Self::Flatten => match operands.get(1) {
                Some(CelValue::Int(levels)) => {
                    work_of(total.saturating_mul(usize::try_from(*levels).unwrap_or(0).min(1_000)))
                }
                _ => Demand::default(),
            },
        })
    }
}

/// Returns the work of running the automaton of `pattern` on `text`.
fn regex_work(text: &str, pattern: &str) -> Result<usize, ExecutionError> {
    if pattern.len() > PATTERN_BYTES_MAX {
        return Err(exceeded("a regular expression is too long"));
    }
    let config = Config::new().nfa_size_limit(Some(AUTOMATON_BYTES_MAX));
    let automaton = match NFA::compiler().configure(config).build(pattern) {
        Ok(automaton) => automaton,
        Err(error) if error.size_limit().is_some() => {
            return Err(exceeded("a regular expression is too large"));
        }
        // The function reports the invalid expression.
        Err(_) => return Ok(0),
    };
    let steps = text.len().saturating_mul(automaton.states().len());
    Ok(steps.saturating_mul(WORK_PER_STEP))
}

/// Returns the maximum number of characters that the verbs of `format` print, if each prints a number.
fn formatted_digits(format: &str) -> usize {
    let verbs = format.split('%').skip(1).map(|verb| {
        let precision = verb.strip_prefix('.').unwrap_or_default();
        let end = precision.find(|c: char| !c.is_ascii_digit());
        let precision = precision[..end.unwrap_or(precision.len())].parse();
        DIGITS_MAX.saturating_add(precision.unwrap_or(0))
    });
    verbs.fold(0, usize::saturating_add)
}
