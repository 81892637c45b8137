//! One run of one target in this process: the loop that makes and executes inputs.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::time::Duration;

use tokio::time::Instant;

use serde::{Deserialize, Serialize};

use crate::corpus;
use crate::coverage::Coverage;
use crate::execute::{Failure, execute};
use crate::minimize::minimize;
use crate::mutate::Mutator;
use crate::targets::Target;

/// The time limit of the minimization of a failing input.
const MINIMIZE_MAX: Duration = Duration::from_secs(20);

/// The number of different failures after which a run ends.
const FAILURES_MAX: usize = 20;

/// What a run did.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub struct Report {
    /// The number of executed inputs.
    pub inputs: u64,
    /// The number of seconds.
    pub seconds: f64,
    /// The number of inputs from the repository and from earlier runs.
    pub corpus: usize,
    /// The number of inputs that executed code that no input before them had executed.
    pub new: usize,
    /// The number of edges that were executed; zero without instrumentation.
    pub edges: usize,
    /// The time of the slowest input in milliseconds.
    pub slowest_ms: u128,
    /// The failures and the files with their inputs.
    pub failures: Vec<(Failure, PathBuf)>,
}

/// A run of a target.
#[derive(Debug)]
pub struct Worker<'a> {
    target: &'a Target,
    /// Has the input that is being executed, if the process ends.
    current: &'a File,
    coverage: Coverage,
    inputs: Vec<Vec<u8>>,
    report: Report,
}

impl<'a> Worker<'a> {
    /// Returns a run that has not begun. `current` will have the input that is being executed.
    pub fn new(target: &'a Target, current: &'a File) -> Self {
        Self {
            target,
            current,
            coverage: Coverage::new(),
            inputs: Vec::new(),
            report: Report::default(),
        }
    }

    /// Executes the corpus, and then mutations of it until the time has passed.
    ///
    /// # Errors
    /// A file cannot be read or written.
    pub fn run(mut self, seed: u64, time: Duration) -> io::Result<Report> {
        let began = Instant::now();
        let name = self.target.name;
        let mut corpus = corpus::read(&corpus::directory(name))?;
        let saved = corpus::found(name, "corpus");
        corpus.extend(corpus::read(&saved)?);
        self.report.corpus = corpus.len();
        for (_, input) in corpus {
            self.execute(&input)?;
            self.inputs.push(input);
        }
        if self.inputs.is_empty() {
            self.inputs.push(Vec::new());
        }
        let mut mutator = Mutator::new(seed, self.target.dictionary, self.target.bytes_max);
        while began.elapsed() < time && self.report.failures.len() < FAILURES_MAX {
            let chosen = mutator.choose(self.inputs.len());
            let other = mutator.choose(self.inputs.len());
            let input = mutator.mutate(&self.inputs[chosen], &self.inputs[other]);
            if self.execute(&input)? {
                self.report.new += 1;
                corpus::save(&saved, "", &input)?;
                self.inputs.push(input);
            }
        }
        self.report.seconds = began.elapsed().as_secs_f64();
        self.report.edges = self.coverage.edges();
        Ok(self.report)
    }

    /// Executes an input. Returns true if it executed new code.
    fn execute(&mut self, input: &[u8]) -> io::Result<bool> {
        remember(self.current, input)?;
        self.report.inputs += 1;
        self.coverage.reset();
        let executed = execute(self.target, input);
        let is_new = self.coverage.add();
        match executed {
            Ok(elapsed) => {
                self.report.slowest_ms = self.report.slowest_ms.max(elapsed.as_millis());
                Ok(is_new)
            }
            Err(failure) => {
                self.record(failure, input)?;
                Ok(false)
            }
        }
    }

    /// Minimizes and saves the input of a failure, unless one like it is known.
    fn record(&mut self, failure: Failure, input: &[u8]) -> io::Result<()> {
        let known = self.report.failures.iter();
        if known
            .map(|(known, _)| known)
            .any(|known| known.is_like(&failure))
        {
            return Ok(());
        }
        let mut remembered = Ok(());
        let smallest = minimize(input, MINIMIZE_MAX, |candidate| {
            // A candidate may end the process.
            remembered = remember(self.current, candidate);
            execute(self.target, candidate).is_err_and(|other| other.is_like(&failure))
        });
        remembered?;
        let failures = corpus::found(self.target.name, "failures");
        let path = corpus::save(&failures, &format!("{}-", failure.kind), &smallest)?;
        self.report.failures.push((failure, path));
        Ok(())
    }
}

/// Writes the input to the file, with its length before it.
fn remember(current: &File, input: &[u8]) -> io::Result<()> {
    let mut bytes = Vec::with_capacity(8 + input.len());
    bytes.extend((input.len() as u64).to_be_bytes());
    bytes.extend(input);
    current.write_all_at(&bytes, 0)
}

/// Returns the input that a run executed last, from the contents of its file.
pub fn remembered(bytes: &[u8]) -> Option<&[u8]> {
    let (length, input) = bytes.split_first_chunk()?;
    input.get(..usize::try_from(u64::from_be_bytes(*length)).ok()?)
}
