//! The scripts of `tests/watch-scripts`, and the drivers that run them.

use std::path::{Path, PathBuf};

use futures_util::StreamExt as _;

use super::driver::Driver;
use super::need::Need;
use super::run::run;
use super::script::Script;

/// A driver and the needs that it supports.
#[derive(Debug)]
pub struct DriverInfo {
    /// Its name.
    pub name: &'static str,
    /// What it supports beyond reading and writing.
    pub supports: &'static [Need],
    /// The number of scripts that it runs: all whose needs it supports.
    pub scripts: usize,
}

/// The drivers. The tests `crates/cacher/src/tests/scripts` and `tests/it/watch_scripts` contain them.
pub const DRIVERS: [DriverInfo; 5] = [
    DriverInfo {
        name: "cacher over scripted storage",
        supports: &Need::ALL,
        scripts: 54,
    },
    DriverInfo {
        name: "cacher over the embedded store",
        supports: &[Need::Informer, Need::Storage],
        scripts: 44,
    },
    DriverInfo {
        name: "HTTP server",
        supports: &[Need::Cut, Need::Informer, Need::Storage],
        scripts: 48,
    },
    DriverInfo {
        name: "HTTP server, in protobuf",
        supports: &[Need::Cut, Need::Storage],
        scripts: 41,
    },
    DriverInfo {
        name: "process of the program",
        supports: &[Need::Informer],
        scripts: 37,
    },
];

/// The scripts of the directory, or those with the text of `WATCHET_SCRIPT` in their name.
#[derive(Debug)]
pub struct Corpus {
    scripts: Vec<(PathBuf, Script)>,
}

impl Corpus {
    /// Reads and parses the scripts.
    ///
    /// # Panics
    /// If a file is not a valid script, with the position of the error, or if no script has the name.
    pub fn load() -> Self {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/watch-scripts");
        let only = std::env::var("WATCHET_SCRIPT").unwrap_or_default();
        let entries = std::fs::read_dir(&directory).expect("the directory of the scripts");
        let paths = entries.map(|entry| entry.expect("an entry").path());
        let mut paths: Vec<PathBuf> = paths
            .filter(|path| {
                path.extension()
                    .is_some_and(|extension| extension == "script")
            })
            .filter(|path| path.to_string_lossy().contains(&only))
            .collect();
        paths.sort();
        assert!(
            !paths.is_empty(),
            "no script has WATCHET_SCRIPT={only} in its name"
        );
        let parse = |path: PathBuf| {
            let text = std::fs::read_to_string(&path).expect("a readable script");
            let name = path.file_name().expect("a file").to_string_lossy();
            let script = Script::parse(&name, &text).unwrap_or_else(|error| panic!("{error}"));
            (path, script)
        };
        Self {
            scripts: paths.into_iter().map(parse).collect(),
        }
    }

    /// Returns all scripts.
    pub fn scripts(&self) -> impl Iterator<Item = &Script> {
        self.scripts.iter().map(|(_, script)| script)
    }

    /// Returns the scripts that the driver can run.
    pub fn supported_by(&self, driver: &DriverInfo) -> impl Iterator<Item = &Script> {
        self.scripts().filter(|script| {
            script
                .needs
                .iter()
                .all(|need| driver.supports.contains(need))
        })
    }

    /// Runs the scripts that the driver supports, each with a driver of its own, `concurrency` at a time.
    ///
    /// # Panics
    /// With the reports of all failed scripts; if the number of scripts is not the one in `info`.
    pub async fn run<D: Driver>(
        &self,
        info: &DriverInfo,
        concurrency: usize,
        driver: impl AsyncFn() -> D,
    ) {
        let bless = std::env::var_os("WATCHET_BLESS").is_some();
        let runs = self.supported_by(info).map(async |script| {
            let result = run(script, &mut driver().await, bless).await;
            (script, result)
        });
        let mut runs = futures_util::stream::iter(runs).buffer_unordered(concurrency);
        let (mut failures, mut count) = (Vec::new(), 0);
        while let Some((script, result)) = runs.next().await {
            count += 1;
            match result {
                Ok(lines) if bless && lines != script.lines => self.write(script, &lines),
                Ok(_) => {}
                Err(failure) => failures.push(failure.to_string()),
            }
        }
        if std::env::var_os("WATCHET_SCRIPT").is_none() {
            let DriverInfo { name, scripts, .. } = info;
            assert_eq!(
                count,
                *scripts,
                "{name}: DRIVERS in {} has another number of scripts",
                file!()
            );
        }
        failures.sort();
        assert!(
            failures.is_empty(),
            "{} of the watch scripts failed\n\n{}\nWATCHET_SCRIPT=NAME runs one script; WATCHET_BLESS=1 replaces the \
             expectations by what was received.",
            failures.len(),
            failures.join("\n")
        );
    }

    fn write(&self, script: &Script, lines: &[String]) {
        let mut paths = self
            .scripts
            .iter()
            .filter(|(_, other)| other.name == script.name);
        let (path, _) = paths.next().expect("a script of the corpus");
        std::fs::write(path, lines.join("\n") + "\n").expect("a writable script");
        println!("rewrote {}", path.display());
    }
}
