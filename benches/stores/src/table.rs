//! Prints measurements as a table in Markdown.

use crate::compare::{Measured, SYNCS_WRITES};
use crate::record::live_bytes;

/// The title of a column, and its value for a store; `None` if it does not apply.
type Column = (&'static str, fn(&Measured) -> Option<String>);

const COLUMNS: [Column; 12] = [
    ("creates/s", |m| rate(m, "create")),
    ("p99 ms", |m| p99(m, "create")),
    ("CPU ms", |m| cpu(m, "create")),
    ("updates/s", |m| rate(m, "update")),
    ("p99 ms", |m| p99(m, "update")),
    ("CPU ms", |m| cpu(m, "update")),
    ("syncs per 100 writes", |m| {
        let syncs = m.get("syncs")?;
        Some(format!("{:.1}", syncs * 100.0 / SYNCS_WRITES as f64))
    }),
    ("written per byte", |m| {
        // Each write is a head and a record, whether it creates or updates.
        let writes = live_bytes(m.objects + m.updates, 0);
        stored(m)?;
        Some(format!("{:.1}", m.get("written")? / writes as f64))
    }),
    ("disk per byte", |m| {
        space(m, "space", live_bytes(m.objects, m.updates))
    }),
    ("at rest", |m| {
        space(m, "space_at_rest", live_bytes(m.objects, 0))
    }),
    ("open ms", |m| {
        Some(format!("{:.0}", m.get("open_us")? / 1e3))
    }),
    ("read all ms", |m| {
        Some(format!("{:.0}", m.get("read_us")? / 1e3))
    }),
];

/// Prints a table of stores with the same number of objects.
pub(crate) fn print(measured: &[Measured]) {
    let Some(first) = measured.first() else {
        return;
    };
    let columns: Vec<&Column> = COLUMNS
        .iter()
        .filter(|(_, value)| measured.iter().any(|one| value(one).is_some()))
        .collect();
    println!("\n{} objects, {} updates\n", first.objects, first.updates);
    let titles: Vec<_> = columns.iter().map(|(title, _)| *title).collect();
    println!("| store | {} |", titles.join(" | "));
    println!("|---|{}", "---|".repeat(titles.len()));
    for one in measured {
        let values: Vec<_> = columns
            .iter()
            .map(|(_, value)| value(one).unwrap_or_else(|| "-".to_owned()))
            .collect();
        println!("| {} | {} |", one.kind.title(), values.join(" | "));
    }
}

/// Returns the number of writes of a phase. Few take too little time for the resolution of CPU times.
fn writes(measured: &Measured, phase: &str) -> Option<f64> {
    const WRITES_MIN: f64 = 10_000.0;
    let writes = measured.get(&format!("{phase}_writes"))?;
    (writes >= WRITES_MIN).then_some(writes)
}

fn rate(measured: &Measured, phase: &str) -> Option<String> {
    let seconds = measured.get(&format!("{phase}_us"))? / 1e6;
    Some(format!("{:.0}", writes(measured, phase)? / seconds))
}

fn p99(measured: &Measured, phase: &str) -> Option<String> {
    writes(measured, phase)?;
    let p99 = measured.get(&format!("{phase}_p99_us"))?;
    Some(format!("{:.1}", p99 / 1e3))
}

fn cpu(measured: &Measured, phase: &str) -> Option<String> {
    let cpu = measured.get(&format!("{phase}_cpu_us"))? / 1e3;
    Some(format!("{:.3}", cpu / writes(measured, phase)?))
}

fn space(measured: &Measured, name: &str, live: usize) -> Option<String> {
    stored(measured)?;
    Some(format!("{:.2}", measured.get(name)? / live as f64))
}

/// Returns `None` without a store.
fn stored(measured: &Measured) -> Option<()> {
    measured.get("open_us").map(|_| ())
}
