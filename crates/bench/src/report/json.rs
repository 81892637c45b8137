//! The JSON form of a report, which `bench compare` reads. Each member is one line, also a long
//! list of points.

use std::borrow::Cow;
use std::fmt;

use serde::de::{DeserializeOwned, MapAccess, Visitor};
use serde::ser::SerializeMap as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

use super::{Report, Value};

/// The value of the member `format`.
const FORMAT: &str = "watchet-bench-report";

/// The version of the format. Reports of version 0 have neither `format` nor `format_version`, and
/// no points.
const VERSION: u64 = 1;

/// The members that are not values of the report.
const FORMAT_MEMBER: &str = "format";
const VERSION_MEMBER: &str = "format_version";
const FAULTS: &str = "faults";
const METADATA: &str = "metadata";
const SERVER: &str = "server";
const DISTRIBUTIONS: &str = "distributions";
const THROUGHPUT: &str = "throughput";
const LATENCY_TIMELINE: &str = "latency_timeline";

/// Why a text is not a report.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReportFormatError {
    #[error("it is not JSON: {0}")]
    Json(#[from] serde_json::Error),
    #[error("it has no member {0:?}")]
    Missing(&'static str),
    #[error("its format is {0:?}")]
    Format(String),
    #[error("its format version is {0}, and this watchet reads versions up to {VERSION}")]
    Version(u64),
    #[error("its member {member:?} is invalid: {source}")]
    Member {
        member: String,
        source: serde_json::Error,
    },
}

impl Report {
    /// Returns the report as JSON with one member per line.
    pub(crate) fn json(&self) -> String {
        let document = serde_json::to_string(self).expect("all keys are strings");
        let members: Members = serde_json::from_str(&document).expect("it was just written");
        let line = |(key, value): &(String, Box<RawValue>)| {
            format!("  {}: {value}", serde_json::Value::from(key.as_str()))
        };
        let lines: Vec<String> = members.0.iter().map(line).collect();
        format!("{{\n{}\n}}\n", lines.join(",\n"))
    }

    /// Parses the JSON of a report of this or an earlier version.
    ///
    /// # Errors
    /// The text is not a report, or is one of a later version of the format.
    pub(crate) fn parse(text: &str) -> Result<Self, ReportFormatError> {
        let Members(members) = serde_json::from_str(text)?;
        let find = |name: &str| members.iter().find(|(key, _)| key == name);
        if let Some((key, format)) = find(FORMAT_MEMBER) {
            let format: String = read(key, format)?;
            if format != FORMAT {
                return Err(ReportFormatError::Format(format));
            }
        }
        if let Some((key, version)) = find(VERSION_MEMBER) {
            let version: u64 = read(key, version)?;
            if version > VERSION {
                return Err(ReportFormatError::Version(version));
            }
        }
        for required in ["load", FAULTS] {
            if find(required).is_none() {
                return Err(ReportFormatError::Missing(required));
            }
        }
        let mut report = Self::default();
        for (key, value) in &members {
            report.read_member(key, value)?;
        }
        Ok(report)
    }

    fn read_member(&mut self, key: &str, value: &RawValue) -> Result<(), ReportFormatError> {
        match key {
            FORMAT_MEMBER | VERSION_MEMBER => {}
            FAULTS => self.faults = read(key, value)?,
            METADATA => self.metadata = read(key, value)?,
            SERVER => self.server = read(key, value)?,
            THROUGHPUT => self.throughput = read(key, value)?,
            LATENCY_TIMELINE => self.latency_timeline = read(key, value)?,
            DISTRIBUTIONS => {
                let Pairs(distributions) = read(key, value)?;
                self.distributions = distributions;
            }
            // A later version of the format may add members of other types.
            _ => {
                if let Ok(value) = serde_json::from_str::<Value>(value.get()) {
                    self.rows.push((Cow::Owned(key.to_owned()), value));
                }
            }
        }
        Ok(())
    }
}

fn read<T: DeserializeOwned>(key: &str, value: &RawValue) -> Result<T, ReportFormatError> {
    serde_json::from_str(value.get()).map_err(|source| ReportFormatError::Member {
        member: key.to_owned(),
        source,
    })
}

impl Serialize for Report {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry(FORMAT_MEMBER, FORMAT)?;
        map.serialize_entry(VERSION_MEMBER, &VERSION)?;
        for (key, value) in &self.rows {
            map.serialize_entry(key, value)?;
        }
        map.serialize_entry(FAULTS, &self.faults)?;
        if let Some(metadata) = &self.metadata {
            map.serialize_entry(METADATA, metadata)?;
        }
        if let Some(server) = &self.server {
            map.serialize_entry(SERVER, server)?;
        }
        map.serialize_entry(DISTRIBUTIONS, &PairsRef(&self.distributions))?;
        map.serialize_entry(THROUGHPUT, &rounded(&self.throughput))?;
        if let Some(timeline) = &self.latency_timeline {
            map.serialize_entry(LATENCY_TIMELINE, timeline)?;
        }
        map.end()
    }
}

/// Returns the points with the precision that a plot shows.
fn rounded(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let round = |value: f64| (value * 1e3).round() / 1e3;
    points.iter().map(|(x, y)| (round(*x), round(*y))).collect()
}

/// The members of a JSON object in their order, unparsed.
struct Members(Vec<(String, Box<RawValue>)>);

impl<'de> Deserialize<'de> for Members {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Pairs::deserialize(deserializer).map(|pairs| {
            let owned = |(key, value): (Cow<'static, str>, _)| (key.into_owned(), value);
            Self(pairs.0.into_iter().map(owned).collect())
        })
    }
}

/// A JSON object in the order of its members.
struct Pairs<T>(Vec<(Cow<'static, str>, T)>);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Pairs<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct InOrder<T>(std::marker::PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for InOrder<T> {
            type Value = Pairs<T>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Pairs<T>, A::Error> {
                let mut pairs = Vec::new();
                while let Some((key, value)) = map.next_entry::<String, T>()? {
                    pairs.push((Cow::Owned(key), value));
                }
                Ok(Pairs(pairs))
            }
        }
        deserializer.deserialize_map(InOrder(std::marker::PhantomData))
    }
}

/// Pairs to be written as a JSON object.
struct PairsRef<'p, T>(&'p [(Cow<'static, str>, T)]);

impl<T: Serialize> Serialize for PairsRef<'_, T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(key, value)| (key, value)))
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::report;
    use super::*;
    use crate::latency_timeline::LatencyTimeline;
    use crate::metadata::Metadata;
    use crate::server_info::ServerInfo;
    use std::time::Duration;

    #[test]
    fn a_report_is_read_as_it_was_written() {
        let mut report = report();
        let mut timeline = LatencyTimeline::default();
        timeline.record(Duration::from_millis(5), Duration::from_millis(2));
        report.timeline("latency_us", &timeline);
        report.throughput = vec![(0.1, 30.0), (0.2, 1.5)];
        report.metadata = Some(Metadata {
            command: "watchet bench watch".to_owned(),
            ..Metadata::default()
        });
        report.server = Some(ServerInfo {
            version: Some("v1.36.3".to_owned()),
            storage: None,
        });
        let text = report.json();
        let parsed = Report::parse(&text).unwrap();
        assert_eq!(parsed.json(), text);
        assert_eq!(parsed.table(), report.table());
        assert_eq!(parsed.distributions, report.distributions);
        assert_eq!(parsed.metadata, report.metadata);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "{");
        assert_eq!(lines[1], r#"  "format": "watchet-bench-report","#);
        assert_eq!(lines[2], r#"  "format_version": 1,"#);
        assert_eq!(lines[3], r#"  "load": "watch","#);
    }

    #[test]
    fn a_report_without_a_format_is_read() {
        let old = r#"{"load": "get", "bytes": 5, "latency_us": {"count": 1, "mean": 2.5, "p50": 2,
            "p90": 2, "p99": 2, "p999": 2, "max": 2}, "faults": ["1 requests failed"]}"#;
        let report = Report::parse(old).unwrap();
        assert_eq!(report.value("load").unwrap(), "get");
        assert_eq!(report.value("bytes").unwrap(), "5");
        assert_eq!(report.value("latency_us.mean").unwrap(), "2.5");
        assert_eq!(report.faults, ["1 requests failed"]);
        assert_eq!(report.metadata, None);
    }

    #[test]
    fn members_of_later_versions_are_ignored() {
        let text = r#"{"load": "get", "faults": [], "quantum": [[1, 2]], "flag": null}"#;
        let report = Report::parse(text).unwrap();
        assert_eq!(report.table(), "load  get\n");
    }

    #[test]
    fn other_texts_are_errors() {
        for (text, message) in [
            ("", "it is not JSON"),
            ("[]", "it is not JSON"),
            ("{\"faults\": []}", "it has no member \"load\""),
            ("{\"load\": \"get\"}", "it has no member \"faults\""),
            ("{\"format\": \"x\"}", "its format is \"x\""),
            ("{\"format_version\": 2}", "its format version is 2"),
            (
                "{\"load\": \"get\", \"faults\": 3}",
                "its member \"faults\" is invalid",
            ),
        ] {
            let error = Report::parse(text).unwrap_err().to_string();
            assert!(error.contains(message), "{text}: {error}");
        }
    }
}
