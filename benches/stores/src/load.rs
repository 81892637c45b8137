//! The load, in a process of its own: `stores load STORE DIRECTORY OBJECTS UPDATES`. With `count` in place of `load` it ends
//! after the second phase.
//!
//! 1. 16 writers create the objects. Each waits until its write is on disk, then makes the next.
//! 2. The same writers update random objects.
//! 3. The history is deleted, as a compaction of watchet does, and the store rests for some seconds.
//! 4. The writers update random objects until the process is killed.
//!
//! Each object has one writer, which knows its revision. The process prints what it measured and, for the check after the
//! kill, `acknowledged OBJECT VERSION` for the versions after the third phase and for each write of the fourth.

use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, bail};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::process::{self, Mark};
use crate::record;
use crate::stores::{Kind, Store};

const WRITERS: usize = 16;

/// How long the store rests after a compaction.
const REST: Duration = Duration::from_secs(2);

/// A client and its objects, which are all whose number has the same remainder.
struct Writer {
    store: Arc<Store>,
    random: fastrand::Rng,
    objects: Vec<Object>,
    latencies: Vec<Duration>,
}

/// An object and its last acknowledged write.
struct Object {
    number: usize,
    version: u64,
    revision: Option<u64>,
}

impl Writer {
    fn new(store: Arc<Store>, number: usize, objects: usize) -> Self {
        let objects = (number..objects).step_by(WRITERS).map(|number| Object {
            number,
            version: 0,
            revision: None,
        });
        Self {
            store,
            random: fastrand::Rng::with_seed(number as u64),
            objects: objects.collect(),
            latencies: Vec::new(),
        }
    }

    async fn write(&mut self, index: usize) -> Result<()> {
        let object = &mut self.objects[index];
        let key = record::key(object.number);
        let value = record::value(object.number, object.version + 1);
        let begin = Instant::now();
        let revision = self.store.put(key, value, object.revision).await?;
        self.latencies.push(begin.elapsed());
        object.version += 1;
        object.revision = Some(revision);
        Ok(())
    }

    async fn create(mut self) -> Result<Self> {
        for index in 0..self.objects.len() {
            self.write(index).await?;
        }
        Ok(self)
    }

    async fn update(mut self, updates: usize) -> Result<Self> {
        for _ in 0..updates {
            let index = self.random.usize(..self.objects.len());
            self.write(index).await?;
        }
        Ok(self)
    }

    /// Updates forever, and prints each acknowledged write.
    async fn update_and_print(mut self) -> Result<Self> {
        loop {
            let index = self.random.usize(..self.objects.len());
            self.write(index).await?;
            self.objects[index].print()?;
        }
    }
}

impl Object {
    fn print(&self) -> Result<()> {
        writeln!(
            std::io::stdout().lock(),
            "acknowledged {} {}",
            self.number,
            self.version
        )?;
        Ok(())
    }
}

/// When the load ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// After the second phase.
    AfterUpdates,
    /// When the process is killed.
    Kill,
}

/// Runs the load.
pub(crate) fn run(
    kind: Kind,
    directory: &Path,
    objects: usize,
    updates: usize,
    end: End,
) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()?;
    runtime.block_on(async {
        let store = Arc::new(Store::create(kind, directory)?);
        let mut background = JoinSet::new();
        if let Store::Watchet(store) = &*store {
            background.spawn(store.handle().maintain());
        }
        let mut writers: Vec<_> = (0..WRITERS)
            .map(|number| Writer::new(store.clone(), number, objects))
            .collect();
        writers = phase("create", writers, Writer::create).await?;
        let update = |writer: Writer| writer.update(updates / WRITERS);
        writers = phase("update", writers, update).await?;
        if end == End::AfterUpdates {
            return Ok(());
        }
        print("space", process::disk_bytes(directory)?)?;
        store.compact().await?;
        tokio::time::sleep(REST).await;
        print("space_at_rest", process::disk_bytes(directory)?)?;
        print("written", process::written_bytes()?)?;
        for writer in &writers {
            writer.objects.iter().try_for_each(Object::print)?;
        }
        println_flush("ready")?;
        concurrently(writers, Writer::update_and_print).await?;
        bail!("the load has ended without a kill")
    })
}

/// Runs `work` with all writers, and prints the measurements.
async fn phase<F>(
    name: &str,
    writers: Vec<Writer>,
    work: impl Fn(Writer) -> F,
) -> Result<Vec<Writer>>
where
    F: Future<Output = Result<Writer>> + Send + 'static,
{
    let mark = Mark::now()?;
    let mut writers = concurrently(writers, work).await?;
    let usage = mark.elapsed()?;
    let mut latencies: Vec<Duration> = Vec::new();
    for writer in &mut writers {
        latencies.append(&mut writer.latencies);
    }
    latencies.sort_unstable();
    let writes = latencies.len();
    let p99 = latencies[writes * 99 / 100];
    print(&format!("{name}_writes"), writes as u64)?;
    print(&format!("{name}_us"), usage.elapsed.as_micros() as u64)?;
    print(&format!("{name}_cpu_us"), usage.cpu.as_micros() as u64)?;
    print(&format!("{name}_p99_us"), p99.as_micros() as u64)?;
    Ok(writers)
}

async fn concurrently<F>(writers: Vec<Writer>, work: impl Fn(Writer) -> F) -> Result<Vec<Writer>>
where
    F: Future<Output = Result<Writer>> + Send + 'static,
{
    let mut running: JoinSet<_> = writers.into_iter().map(work).collect();
    let mut writers = Vec::new();
    while let Some(writer) = running.join_next().await {
        writers.push(writer??);
    }
    Ok(writers)
}

fn print(name: &str, value: u64) -> Result<()> {
    println_flush(&format!("{name} {value}"))
}

fn println_flush(line: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}")?;
    Ok(out.flush()?)
}
