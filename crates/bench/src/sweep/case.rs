//! The rows of a sweep: each is a verb on a resource in an encoding, and a load that measures it.

use std::num::{NonZeroU32, NonZeroUsize};
use std::sync::Arc;

use crate::args::{
    Encoding, FillArgs, GeneratorArgs, GetArgs, ListArgs, ListQueryArgs, Mode, ObjectArgs,
    OpenRequest, ReportArgs, Resource, ResponseArgs, SelectionArgs, StormArgs, StormLoadArgs,
    TargetArgs, WatchArgs, WatchLoadArgs, WriteArgs, WriteLoadArgs, WriteVerb,
};
use crate::error::BenchError;
use crate::report::Report;
use crate::target::Target;
use crate::{fill, read, storm, watch, write};

/// The namespace of the objects that are read.
const NAMESPACE: &str = "bench-sweep";

/// Objects in a page of a paged list.
const PAGE: u32 = 100;
/// The nodes of the objects: a field selector selects those of one.
const NODES: u32 = 50;
const WATCHERS: u32 = 20;
/// Writes per second while watches are open.
const WATCH_RATE: f64 = 200.0;

/// A verb, as far as a row of the table has one of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operation {
    Get,
    ListCached,
    ListConsistent,
    ListPages,
    ListLabel,
    ListField,
    WatchList,
    Watch,
    Write(WriteVerb),
}

/// A row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Case {
    pub resource: Resource,
    pub operation: Operation,
    pub accept: Encoding,
}

/// The measured value of a row.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Measurement {
    /// The server's CPU time per unit of work.
    pub cpu_us: f64,
    /// How often the work was done.
    pub count: f64,
}

/// A server and the sizes of all rows.
pub(super) struct Subject {
    pub target: Arc<Target>,
    pub target_args: TargetArgs,
    pub pid: u32,
    pub objects: NonZeroU32,
    /// Percent of the full number of requests.
    pub scale: u32,
}

impl Operation {
    const READS: [Self; 8] = [
        Self::Get,
        Self::ListCached,
        Self::ListConsistent,
        Self::ListPages,
        Self::ListLabel,
        Self::ListField,
        Self::WatchList,
        Self::Watch,
    ];

    /// Returns all operations in the order of their measurement.
    pub(super) fn all() -> impl Iterator<Item = Self> {
        let reads = Self::READS.into_iter();
        reads.chain(WriteVerb::ALL.into_iter().map(Self::Write))
    }

    /// Returns the name in the table.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::ListCached => "list-rv0",
            Self::ListConsistent => "list",
            Self::ListPages => "list-pages",
            Self::ListLabel => "list-label",
            Self::ListField => "list-field",
            Self::WatchList => "watch-list",
            Self::Watch => "watch",
            Self::Write(verb) => verb.name(),
        }
    }

    /// Returns true if a row exists for this resource and encoding.
    fn applies_to(self, resource: Resource, accept: Encoding) -> bool {
        let applies = match self {
            Self::Write(WriteVerb::StrategicPatch) => !resource.is_custom(),
            _ => true,
        };
        // The responses to writes are rarely requested in another form.
        let has_form = match self {
            Self::Write(_) => matches!(accept, Encoding::Json | Encoding::Protobuf),
            _ => true,
        };
        applies && has_form && resource.has_encoding(accept)
    }
}

impl Case {
    /// Returns all rows.
    pub(super) fn all() -> impl Iterator<Item = Self> {
        Resource::ALL.into_iter().flat_map(|resource| {
            Operation::all().flat_map(move |operation| {
                let encodings = Encoding::ALL.into_iter();
                let applies = move |accept: &Encoding| operation.applies_to(resource, *accept);
                encodings.filter(applies).map(move |accept| Self {
                    resource,
                    operation,
                    accept,
                })
            })
        })
    }
}

impl Subject {
    fn scaled(&self, full: u32) -> NonZeroU32 {
        let scaled = u64::from(full) * u64::from(self.scale) / 100;
        NonZeroU32::new(scaled as u32).unwrap_or(NonZeroU32::MIN)
    }

    fn report_args(&self) -> ReportArgs {
        ReportArgs {
            pid: Some(self.pid),
            // Only CPU time is measured.
            generator: GeneratorArgs {
                threads: None,
                saturate: true,
            },
            ..ReportArgs::default()
        }
    }

    fn object_args(&self, resource: Resource) -> ObjectArgs {
        ObjectArgs {
            resource,
            count: self.objects,
            namespace: NAMESPACE.to_owned(),
            namespaces: NonZeroU32::MIN,
        }
    }

    /// Creates the objects that the reads of a resource find.
    ///
    /// # Errors
    /// A request fails.
    pub(super) async fn fill(&self, resource: Resource) -> Result<(), BenchError> {
        let args = FillArgs {
            target: self.target_args.clone(),
            report: self.report_args(),
            objects: self.object_args(resource),
            size: size(resource),
            rate: 0.0,
            connections: connections(8),
            label: vec![("tier".to_owned(), "bench".to_owned())],
            nodes: NonZeroU32::new(NODES).expect("a constant that is not 0"),
        };
        let report = fill::run(args, &self.target).await?;
        match report.faults.is_empty() {
            true => Ok(()),
            false => Err(BenchError::Setup(report.faults.join("; "))),
        }
    }

    /// Measures a row.
    ///
    /// # Errors
    /// The server cannot be measured, or the run has faults.
    pub(super) async fn measure(&self, case: Case) -> Result<Measurement, BenchError> {
        let (report, counted) = match case.operation {
            Operation::Get => (self.get(case).await?, "requests_answered"),
            Operation::Watch => (self.watch(case).await?, "events_delivered"),
            Operation::WatchList => (self.watch_list(case).await?, "answers_complete"),
            Operation::Write(verb) => (self.write(case, verb).await?, "requests_answered"),
            _ => (self.list(case).await?, "requests_answered"),
        };
        if !report.faults.is_empty() {
            return Err(BenchError::Faults(report.faults));
        }
        let value = |key: &str| -> Result<f64, BenchError> {
            let value = report.value(key)?;
            let number = value.parse();
            number.map_err(|_| BenchError::Setup(format!("{key} is {value}, not a number")))
        };
        let count = value(counted)?;
        Ok(Measurement {
            cpu_us: value("cpu_ms")? * 1e3 / count.max(1.0),
            count,
        })
    }

    async fn get(&self, case: Case) -> Result<Report, BenchError> {
        let args = GetArgs {
            target: self.target_args.clone(),
            report: self.report_args(),
            objects: self.object_args(case.resource),
            requests: self.scaled(1_500),
            connections: connections(2),
            resource_version: None,
            responses: responses(case),
        };
        read::get(args, &self.target).await
    }

    async fn list(&self, case: Case) -> Result<Report, BenchError> {
        let mut query = ListQueryArgs {
            limit: None,
            all_pages: false,
            requests: self.scaled(20),
            connections: connections(1),
            selection: selection(case.resource),
        };
        let selection = &mut query.selection;
        match case.operation {
            Operation::ListCached => selection.resource_version = Some("0".to_owned()),
            Operation::ListPages => {
                query.limit = NonZeroU32::new(PAGE);
                query.all_pages = true;
            }
            // Selects nothing, so that the cost is that of the selection.
            Operation::ListLabel => selection.label_selector = Some("tier=none".to_owned()),
            Operation::ListField => {
                query.requests = self.scaled(200);
                selection.field_selector = Some(match case.resource {
                    Resource::Configmaps => "metadata.name=bench-7".to_owned(),
                    _ => "spec.nodeName=node-7".to_owned(),
                });
            }
            _ => {}
        }
        let args = ListArgs {
            target: self.target_args.clone(),
            report: self.report_args(),
            query,
            responses: responses(case),
        };
        read::list(args, &self.target).await
    }

    async fn watch_list(&self, case: Case) -> Result<Report, BenchError> {
        let args = StormArgs {
            target: self.target_args.clone(),
            report: self.report_args(),
            selection: selection(case.resource),
            load: StormLoadArgs {
                clients: self.scaled(20),
                by: OpenRequest::WatchList,
                timeout: 60.0,
            },
            responses: responses(case),
        };
        storm::run(args, &self.target).await
    }

    async fn watch(&self, case: Case) -> Result<Report, BenchError> {
        let args = WatchArgs {
            target: self.target_args.clone(),
            report: self.report_args(),
            load: WatchLoadArgs {
                watchers: NonZeroU32::new(WATCHERS).expect("a constant that is not 0"),
                connections: None,
                events: self.scaled(200).get(),
                rate: WATCH_RATE,
                writers: NonZeroU32::MIN,
                size: size(case.resource),
                mode: Mode::Broadcast,
                resource: Some(case.resource),
                hold: 0.0,
                timeout: 30.0,
            },
            responses: responses(case),
        };
        watch::run(args, &self.target).await
    }

    async fn write(&self, case: Case, verb: WriteVerb) -> Result<Report, BenchError> {
        let requests = match verb {
            WriteVerb::Deletecollection => self.scaled(5),
            _ => self.scaled(300),
        };
        let args = WriteArgs {
            target: self.target_args.clone(),
            report: self.report_args(),
            load: WriteLoadArgs {
                resource: case.resource,
                verb,
                requests,
                rate: 0.0,
                connections: connections(2),
                objects: NonZeroU32::new(100).expect("a constant that is not 0"),
                size: size(case.resource),
                namespace: format!("{NAMESPACE}-write"),
            },
            responses: responses(case),
        };
        write::run(args, &self.target).await
    }
}

/// Returns the name of the resource with what is special about it.
pub(super) const fn description(resource: Resource) -> &'static str {
    match resource {
        Resource::Configmaps => "configmaps",
        Resource::Pods => "pods",
        Resource::Widgets => "custom, CEL rules",
        Resource::Gadgets => "custom, webhook",
    }
}

/// Returns the size of an object in bytes of JSON.
const fn size(resource: Resource) -> usize {
    match resource {
        Resource::Pods => 3_000,
        _ => 1_024,
    }
}

fn connections(count: usize) -> NonZeroUsize {
    NonZeroUsize::new(count).unwrap_or(NonZeroUsize::MIN)
}

fn responses(case: Case) -> ResponseArgs {
    ResponseArgs {
        accept: case.accept,
    }
}

fn selection(resource: Resource) -> SelectionArgs {
    SelectionArgs {
        resource,
        namespace: Some(NAMESPACE.to_owned()),
        resource_version: None,
        label_selector: None,
        field_selector: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_cover_each_verb_encoding_and_resource_that_servers_support() {
        let cases: Vec<Case> = Case::all().collect();
        for (number, case) in cases.iter().enumerate() {
            assert!(!cases[..number].contains(case), "{case:?} is twice");
        }
        let has = |resource, operation, accept| {
            cases.contains(&Case {
                resource,
                operation,
                accept,
            })
        };
        for resource in Resource::ALL {
            for operation in Operation::READS {
                for accept in Encoding::ALL {
                    let expected = accept != Encoding::Protobuf || !resource.is_custom();
                    assert_eq!(
                        has(resource, operation, accept),
                        expected,
                        "{resource:?} {accept:?}"
                    );
                }
            }
            for verb in WriteVerb::ALL {
                let expected = verb != WriteVerb::StrategicPatch || !resource.is_custom();
                let operation = Operation::Write(verb);
                assert_eq!(
                    has(resource, operation, Encoding::Json),
                    expected,
                    "{verb:?}"
                );
                assert!(!has(resource, operation, Encoding::Table));
            }
        }
        assert_eq!(cases.len(), 4 * 8 * 5 - 2 * 8 + 2 * 8 * 2 + 2 * 7);
    }
}
