//! `FlowControl`: the current configuration, the classification of requests, and the limits of the levels.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::BuildHasher as _;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use http::HeaderValue;
use parking_lot::Mutex;

use crate::allocation::{SeatBounds, divide};
use crate::defaults::{mandatory_levels, mandatory_schemas};
use crate::demand::DemandHistory;
use crate::fair_queues::LimitResponse;
use crate::level::{Level, LevelDump, Rejected, Seat, SeatRequest};
use crate::level_settings::{InvalidLevel, LevelSettings, Seats};
use crate::matching::{RequestDigest, is_match};
use crate::objects::{
    CATCH_ALL, Distinguisher, EXEMPT, FlowSchema, PriorityLevelConfiguration, Rule,
};
use crate::tracked_requests::{Describe, Origin, RequestDetails};
use crate::work::Work;
use watchet_metrics::{FlowControlMetrics, FlowMetrics};

/// The interval at which [`FlowControl::adjust_limits`] must be called.
pub const ADJUSTMENT_PERIOD: Duration = Duration::from_secs(10);

/// Admits the requests of a server by FlowSchemas and priority levels. Until it is configured, it has the mandatory
/// objects.
#[derive(Debug)]
pub struct FlowControl {
    /// The FlowSchemas, by increasing `matchingPrecedence`.
    schemas: ArcSwap<Vec<Arc<Schema>>>,
    levels: Mutex<Levels>,
    metrics: Arc<FlowControlMetrics>,
    hasher: foldhash::quality::RandomState,
}

/// The levels by name, including those whose objects were deleted while they had requests.
#[derive(Debug)]
struct Levels {
    /// The number of seats of the server.
    total: usize,
    by_name: BTreeMap<String, ManagedLevel>,
}

#[derive(Debug)]
struct ManagedLevel {
    level: Arc<Level>,
    settings: LevelSettings,
    seats: Seats,
    demand: DemandHistory,
    uid: Option<HeaderValue>,
    /// False if its object was deleted.
    is_configured: bool,
}

/// A FlowSchema with its level.
#[derive(Debug)]
struct Schema {
    name: Arc<str>,
    precedence: i32,
    uid: Option<HeaderValue>,
    distinguisher: Option<Distinguisher>,
    rules: Vec<Rule>,
    level: Arc<Level>,
    level_uid: Option<HeaderValue>,
    is_exempt: bool,
    metrics: Arc<FlowMetrics>,
}

/// The flow of a request.
#[derive(Debug, Clone)]
pub struct Classification {
    schema: Arc<Schema>,
    hash: u64,
    describe: Option<Describe>,
}

/// The result of [`FlowControl::configure`].
#[derive(Debug, Default, PartialEq, Eq)]
pub struct ConfigurationReport {
    /// The levels that are ignored.
    pub invalid: Vec<InvalidLevel>,
    /// The names of the schemas whose level does not exist; they match no request.
    pub dangling: BTreeSet<String>,
}

impl FlowControl {
    /// Creates the flow control of a server with `seats` seats.
    pub fn new(seats: usize, metrics: Arc<FlowControlMetrics>) -> Arc<Self> {
        let control = Arc::new(Self {
            schemas: ArcSwap::default(),
            levels: Mutex::new(Levels {
                total: seats,
                by_name: BTreeMap::new(),
            }),
            metrics,
            hasher: foldhash::quality::RandomState::default(),
        });
        control.configure(&[], &[]);
        control
    }

    /// Replaces the configuration by these objects, and adds missing mandatory objects. Waiting requests stay in the
    /// queues of their level.
    pub fn configure(
        &self,
        schemas: &[FlowSchema],
        levels: &[PriorityLevelConfiguration],
    ) -> ConfigurationReport {
        let mut managed = self.levels.lock();
        let mut configured = ConfigurationReport::default();
        for level in managed.by_name.values_mut() {
            level.is_configured = false;
        }
        for object in levels {
            match LevelSettings::of(object) {
                Ok(settings) => managed.set(object, settings),
                Err(invalid) => configured.invalid.push(invalid),
            }
        }
        for schema in schemas {
            if !managed.has(schema.level()) {
                configured.dangling.insert(schema.name().to_owned());
            }
        }
        for object in mandatory_levels() {
            if !managed.has(object.name()) {
                let settings = LevelSettings::of(&object).expect("the mandatory levels are valid");
                managed.set(&object, settings);
            }
        }
        managed.remove_idle();
        managed.divide_seats();
        managed.adjust(&self.metrics);
        let valid = schemas
            .iter()
            .filter(|schema| !configured.dangling.contains(schema.name()));
        let mut active: Vec<_> = valid.map(|schema| self.schema(schema, &managed)).collect();
        active.sort_by(|a, b| (a.precedence, &a.name).cmp(&(b.precedence, &b.name)));
        for missing in mandatory_schemas() {
            if !active.iter().any(|schema| *schema.name == *missing.name()) {
                let schema = self.schema(&missing, &managed);
                match missing.name() {
                    EXEMPT => active.insert(0, schema),
                    _ => active.push(schema),
                }
            }
        }
        self.schemas.store(Arc::new(active));
        configured
    }

    /// Divides the seats between the levels by their recent demand. To be called each [`ADJUSTMENT_PERIOD`].
    pub fn adjust_limits(&self) {
        let mut managed = self.levels.lock();
        if managed.remove_idle() {
            managed.divide_seats();
        }
        managed.adjust(&self.metrics);
    }

    /// Returns the flow of a request.
    pub fn classify(&self, request: &RequestDigest<'_>) -> Classification {
        let schemas = self.schemas.load();
        let mut all = schemas.iter();
        let schema = all
            .find(|schema| is_match(&schema.rules, request))
            // `catch-all` matches `system:authenticated` and `system:unauthenticated`: every user has one of the
            // groups, unless an authenticator has a bug.
            .or_else(|| schemas.iter().find(|schema| *schema.name == *CATCH_ALL))
            .expect("the mandatory schemas exist");
        let distinguisher = match schema.distinguisher {
            Some(Distinguisher::ByUser) => request.user,
            Some(Distinguisher::ByNamespace) => request.target.namespace(),
            None => "",
        };
        let flow = (&*schema.name, distinguisher);
        Classification {
            hash: self.hasher.hash_one(flow),
            schema: Arc::clone(schema),
            describe: None,
        }
    }

    /// Returns the state of each level by name.
    pub(crate) fn dump(&self) -> Vec<(String, bool, LevelDump)> {
        let managed = self.levels.lock();
        let levels = managed.by_name.iter();
        levels
            .map(|(name, level)| (name.clone(), level.is_configured, level.level.dump()))
            .collect()
    }

    fn schema(&self, object: &FlowSchema, managed: &Levels) -> Arc<Schema> {
        let level = &managed.by_name[object.level()];
        let spec = &object.spec;
        Arc::new(Schema {
            name: object.name().into(),
            precedence: spec.matching_precedence,
            uid: header(&object.metadata.uid),
            distinguisher: spec.distinguisher_method.map(|method| method.kind),
            rules: spec.rules.clone(),
            level: Arc::clone(&level.level),
            level_uid: level.uid.clone(),
            is_exempt: level.settings.response == LimitResponse::Unlimited,
            metrics: self.metrics.flow(object.level(), object.name()),
        })
    }
}

impl Levels {
    fn has(&self, name: &str) -> bool {
        self.by_name
            .get(name)
            .is_some_and(|level| level.is_configured)
    }

    fn set(&mut self, object: &PriorityLevelConfiguration, settings: LevelSettings) {
        let name = object.name();
        let level = self
            .by_name
            .entry(name.to_owned())
            .or_insert_with(|| ManagedLevel {
                level: Level::new(name.to_owned()),
                settings,
                seats: Seats::default(),
                demand: DemandHistory::default(),
                uid: None,
                is_configured: true,
            });
        level.settings = settings;
        level.uid = header(&object.metadata.uid);
        level.is_configured = true;
    }

    /// Removes the levels that have neither an object nor requests. Returns true if there were any.
    fn remove_idle(&mut self) -> bool {
        let before = self.by_name.len();
        let retained = |level: &ManagedLevel| level.is_configured || !level.level.is_idle();
        self.by_name.retain(|_, level| retained(level));
        self.by_name.len() < before
    }

    /// Computes the nominal seats of each level and their bounds.
    fn divide_seats(&mut self) {
        let levels = self.by_name.values();
        let shares: i64 = levels.map(|level| i64::from(level.settings.shares)).sum();
        for level in self.by_name.values_mut() {
            level.seats = Seats::of(&level.settings, self.total, shares);
        }
    }

    /// Computes the limit of each level by its demand since the last call, and applies it.
    fn adjust(&mut self, metrics: &FlowControlMetrics) {
        let mut bounds = Vec::new();
        for level in self.by_name.values_mut() {
            level.demand.add(level.level.take_demand());
            let seats = level.seats;
            let needed = level.demand.high_watermark.min(seats.nominal as f64);
            let lower = needed.max(seats.lower as f64);
            bounds.push(SeatBounds {
                target: level.demand.smoothed.max(lower),
                lower,
                upper: seats.upper as f64,
            });
        }
        let nominal = self.by_name.values().map(|level| level.seats.nominal).sum();
        let limits = divide(nominal, &bounds);
        for (index, level) in self.by_name.values_mut().enumerate() {
            if let Some(limits) = &limits {
                // Otherwise an idle level of a small server could have no seat, and its first request would wait for
                // the next adjustment.
                let least = level.seats.nominal.min(1);
                level.seats.current = (limits[index].round() as usize).max(least);
            }
            let seats_max = level.seats.request_max(&level.settings);
            let response = level.settings.response;
            level
                .level
                .configure(response, level.seats.current, seats_max);
        }
        let levels = self.by_name.iter();
        let levels = levels.map(|(name, level)| (name.clone(), level.seats.metrics(level.demand)));
        metrics.set_levels(levels.collect());
    }
}

impl Classification {
    /// Returns this flow with a function that returns the details of the request. Only dumps call it.
    #[must_use]
    pub fn with_details(
        self,
        describe: impl Fn() -> RequestDetails + Send + Sync + 'static,
    ) -> Self {
        Self {
            describe: Some(Describe(Arc::new(describe))),
            ..self
        }
    }

    /// Returns true if requests of the flow never wait.
    pub fn is_exempt(&self) -> bool {
        self.schema.is_exempt
    }

    /// Returns the name of the FlowSchema.
    pub fn flow_schema(&self) -> &str {
        &self.schema.name
    }

    /// Returns the name of the priority level.
    pub fn priority_level(&self) -> &str {
        &self.schema.level.name
    }

    /// Returns the uid of the FlowSchema, unless it is not stored.
    pub fn flow_schema_uid(&self) -> Option<&HeaderValue> {
        self.schema.uid.as_ref()
    }

    /// Returns the uid of the PriorityLevelConfiguration, unless it is not stored.
    pub fn priority_level_uid(&self) -> Option<&HeaderValue> {
        self.schema.level_uid.as_ref()
    }

    /// Waits at most `wait_max` for seats. Cancel safe: a dropped request leaves its queue.
    ///
    /// # Errors
    /// The queue is full, the level has neither queues nor a free seat, or `wait_max` has passed.
    pub async fn admit(
        &self,
        work: Work,
        is_watch: bool,
        wait_max: Duration,
    ) -> Result<Seat, Rejected> {
        let schema = &self.schema;
        let request = SeatRequest {
            origin: Origin {
                schema: Arc::clone(&schema.name),
                distinguisher: schema.distinguisher,
                describe: self.describe.clone(),
            },
            hash: self.hash,
            work,
            is_watch,
        };
        schema.level.admit(&schema.metrics, request, wait_max).await
    }
}

/// Returns the header with this uid, unless it is empty.
fn header(uid: &str) -> Option<HeaderValue> {
    let value = (!uid.is_empty()).then(|| HeaderValue::from_str(uid));
    value?.ok()
}

#[cfg(test)]
mod tests;
