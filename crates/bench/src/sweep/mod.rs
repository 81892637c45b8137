//! `bench sweep`: the CPU time of a server per request, for every verb, encoding and kind of
//! resource, and that of a second server, measured row by row in turn.

mod case;
mod table;

use std::io::Write as _;
use std::sync::Arc;

use super::args::{SweepArgs, TargetArgs};
use super::error::BenchError;
use super::objects::conversion::Webhook;
use super::objects::definitions;
use super::target::Target;
use case::{Case, Operation, Subject};
use table::Row;

/// Runs the sweep and returns the table. Rows that failed are in the table and in the error of
/// [`SweepResult::faults`].
///
/// # Errors
/// An argument is invalid, or a server rejects the setup.
pub(super) async fn run(args: SweepArgs) -> Result<SweepResult, BenchError> {
    let cases = selected(&args)?;
    let subjects = subjects(&args)?;
    let webhook = Webhook::start().await?;
    let mut rows = Vec::new();
    for (number, case) in cases.iter().enumerate() {
        let is_first = number == 0 || cases[number - 1].resource != case.resource;
        if is_first {
            for subject in &subjects {
                definitions::install(case.resource, &webhook, &subject.target).await?;
                subject.fill(case.resource).await?;
            }
        }
        rows.push(measure(&subjects, *case, number).await);
        progress(&rows, cases.len());
    }
    let faults = rows.iter().flat_map(Row::faults).collect();
    Ok(SweepResult {
        table: table::render(rows, args.load.goal, args.output),
        faults,
    })
}

/// The result of a sweep.
pub(super) struct SweepResult {
    pub table: String,
    /// The rows that failed, and why.
    pub faults: Vec<String>,
}

/// Returns the rows that the arguments select, grouped by resource.
fn selected(args: &SweepArgs) -> Result<Vec<Case>, BenchError> {
    let load = &args.load;
    for verb in &load.verb {
        let mut names = Operation::all().map(Operation::name);
        if !names.any(|name| name == verb) {
            let names: Vec<_> = Operation::all().map(Operation::name).collect();
            let problem = format!("--verb {verb}: must be one of {}", names.join(", "));
            return Err(BenchError::Usage(problem));
        }
    }
    if !(load.goal.is_finite() && load.goal >= 0.0) {
        let problem = format!("--goal {}: must be a ratio of 0 or more", load.goal);
        return Err(BenchError::Usage(problem));
    }
    let is_selected = |case: &Case| {
        let verb = case.operation.name();
        (load.resource.is_empty() || load.resource.contains(&case.resource))
            && (load.verb.is_empty() || load.verb.iter().any(|name| name == verb))
            && (load.accept.is_empty() || load.accept.contains(&case.accept))
    };
    let cases: Vec<Case> = Case::all().filter(is_selected).collect();
    match cases.is_empty() {
        false => Ok(cases),
        true => Err(BenchError::Usage(
            "--resource, --verb, --accept: no row has this combination".to_owned(),
        )),
    }
}

/// Returns the measured server, and the one to compare with.
fn subjects(args: &SweepArgs) -> Result<Vec<Subject>, BenchError> {
    let subject = |target_args: TargetArgs, pid| {
        Ok::<_, BenchError>(Subject {
            target: Arc::new(Target::open(&target_args)?),
            target_args,
            pid,
            objects: args.load.objects,
            scale: args.load.scale.get(),
        })
    };
    let mut subjects = vec![subject(args.target.clone(), args.pid)?];
    if let (Some(kubeconfig), Some(pid)) = (&args.against, args.against_pid) {
        let target = TargetArgs {
            kubeconfig: Some(kubeconfig.clone()),
            context: None,
            server: None,
            token: None,
            insecure: false,
            http: args.target.http,
        };
        subjects.push(subject(target, pid)?);
    }
    Ok(subjects)
}

/// Measures a row on each server. Which of them is first alternates, so that neither always has the
/// warmer machine.
async fn measure(subjects: &[Subject], case: Case, number: usize) -> Row {
    let mut values: Vec<_> = subjects.iter().map(|_| None).collect();
    for step in 0..subjects.len() {
        let subject = (step + number) % subjects.len();
        let measured = subjects[subject].measure(case).await;
        values[subject] = Some(measured.map_err(|error| match error {
            BenchError::Faults(faults) => faults.join("; "),
            error => error.to_string(),
        }));
    }
    Row {
        case,
        values: values.into_iter().flatten().collect(),
    }
}

fn progress(rows: &[Row], total: usize) {
    if let Some(row) = rows.last() {
        // The table has the result; progress that cannot be printed is not needed.
        let line = format!("{:>3}/{total} {}", rows.len(), row.summary());
        drop(writeln!(std::io::stderr(), "{line}"));
    }
}
