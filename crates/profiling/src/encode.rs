//! Encodes samples as a pprof profile, with the names of their functions.

use std::collections::HashMap;
use std::io::{self, Write as _};
use std::time::{Duration, SystemTime};

use flate2::Compression;
use flate2::write::GzEncoder;
use prost::Message as _;

use crate::pprof_messages::{
    Function, Label, Line, Location, Mapping, Profile, Sample as PprofSample, ValueType,
};
use crate::symbols::{self, Symbols};

/// The name and the unit of a value.
type Value = (&'static str, &'static str);

/// The properties of a profile other than its samples.
#[derive(Debug, Clone)]
pub(crate) struct Description {
    /// The names and units of the values of each sample.
    pub values: [Value; 2],
    /// The name of the value that pprof shows by default.
    pub default_value: &'static str,
    /// The interval between two samples, for example 10 ms of CPU time.
    pub period: (Value, i64),
    /// When the recording began.
    pub began: SystemTime,
    /// The duration of the recording.
    pub duration: Duration,
}

/// A stack with its values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Sample {
    /// Return addresses, the innermost first.
    pub addresses: Vec<usize>,
    /// The values, in the order of [`Description::values`].
    pub values: [i64; 2],
    /// The name of the thread.
    pub thread: Option<String>,
}

/// Returns the profile as a protobuf message, compressed with gzip.
///
/// # Errors
/// The compression fails.
pub(crate) fn encode(
    description: &Description,
    samples: &[Sample],
    symbols: &mut Symbols,
) -> io::Result<Vec<u8>> {
    let profile = profile(description, samples, symbols);
    let mut compressed = GzEncoder::new(Vec::new(), Compression::fast());
    compressed.write_all(&profile.encode_to_vec())?;
    compressed.finish()
}

fn profile(description: &Description, samples: &[Sample], symbols: &mut Symbols) -> Profile {
    let mut tables = Tables::new(symbols);
    let program = std::env::current_exe().unwrap_or_default();
    // The flags say that the profile contains all symbols. Otherwise `go tool pprof` would look for them at the addresses of the
    // process.
    let mapping = Mapping {
        id: MAPPING,
        filename: tables.text(&program.display().to_string()),
        has_functions: true,
        has_filenames: true,
        has_line_numbers: true,
        has_inline_frames: true,
    };
    let sample_type = description.values.map(|value| tables.value_type(value));
    let (period_type, period) = description.period;
    let since_epoch = description.began.duration_since(SystemTime::UNIX_EPOCH);
    Profile {
        sample_type: sample_type.to_vec(),
        sample: samples.iter().map(|sample| tables.sample(sample)).collect(),
        mapping: vec![mapping],
        period_type: Some(tables.value_type(period_type)),
        period,
        default_sample_type: tables.text(description.default_value),
        time_nanos: nanoseconds(since_epoch.unwrap_or_default()),
        duration_nanos: nanoseconds(description.duration),
        location: tables.locations,
        function: tables.functions,
        string_table: tables.texts,
    }
}

fn nanoseconds(duration: Duration) -> i64 {
    i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX)
}

/// The ID of the only mapping, which stands for the program and its libraries.
const MAPPING: u64 = 1;

/// The tables of a profile to which samples refer.
struct Tables<'a> {
    symbols: &'a mut Symbols,
    texts: Vec<String>,
    text_indexes: HashMap<String, i64>,
    locations: Vec<Location>,
    location_ids: HashMap<usize, u64>,
    functions: Vec<Function>,
    /// The IDs of functions by the indexes of their names and files.
    function_ids: HashMap<(i64, i64), u64>,
}

impl<'a> Tables<'a> {
    fn new(symbols: &'a mut Symbols) -> Self {
        Self {
            symbols,
            texts: vec![String::new()],
            text_indexes: HashMap::from([(String::new(), 0)]),
            locations: Vec::new(),
            location_ids: HashMap::new(),
            functions: Vec::new(),
            function_ids: HashMap::new(),
        }
    }

    /// Returns the index of `text` in the string table.
    fn text(&mut self, text: &str) -> i64 {
        if let Some(index) = self.text_indexes.get(text) {
            return *index;
        }
        let index = i64::try_from(self.texts.len()).unwrap_or(i64::MAX);
        self.texts.push(text.to_owned());
        self.text_indexes.insert(text.to_owned(), index);
        index
    }

    fn value_type(&mut self, (name, unit): Value) -> ValueType {
        ValueType {
            r#type: self.text(name),
            unit: self.text(unit),
        }
    }

    fn sample(&mut self, sample: &Sample) -> PprofSample {
        let addresses = sample.addresses.iter();
        let thread = sample.thread.as_deref().filter(|name| !name.is_empty());
        PprofSample {
            location_id: addresses.map(|address| self.location(*address)).collect(),
            value: sample.values.to_vec(),
            label: thread.map(|name| self.thread(name)).into_iter().collect(),
        }
    }

    fn thread(&mut self, name: &str) -> Label {
        Label {
            key: self.text("thread"),
            str: self.text(name),
        }
    }

    /// Returns the ID of the location of `address`.
    fn location(&mut self, address: usize) -> u64 {
        if let Some(id) = self.location_ids.get(&address) {
            return *id;
        }
        let found = self.symbols.functions(address).to_vec();
        let line = found.iter().map(|function| Line {
            function_id: self.function(function),
            line: i64::from(function.line),
        });
        let line = line.collect();
        let id = next_id(self.locations.len());
        self.locations.push(Location {
            id,
            mapping_id: MAPPING,
            address: address as u64,
            line,
        });
        self.location_ids.insert(address, id);
        id
    }

    /// Returns the ID of a function.
    fn function(&mut self, function: &symbols::Function) -> u64 {
        let (name, filename) = (self.text(&function.name), self.text(&function.file));
        if let Some(id) = self.function_ids.get(&(name, filename)) {
            return *id;
        }
        let id = next_id(self.functions.len());
        let system_name = self.text(&String::from_utf8_lossy(&function.symbol));
        self.functions.push(Function {
            id,
            name,
            system_name,
            filename,
        });
        self.function_ids.insert((name, filename), id);
        id
    }
}

/// Returns the ID of the next entry of a table with `length` entries. IDs begin at 1, because 0 stands for no entry.
fn next_id(length: usize) -> u64 {
    length as u64 + 1
}
