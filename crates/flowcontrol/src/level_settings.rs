//! The settings of a priority level from its object, and its share of the seats of the server.

use crate::demand::DemandHistory;
use crate::fair_queues::LimitResponse;
use crate::objects::{EXEMPT, PriorityLevelConfiguration, Queuing};
use crate::shuffle_sharding::Dealer;
use watchet_metrics::LevelSeats;

/// The maximum share of the nominal seats of a level that one request may occupy.
const SEATS_MAX_PART: f64 = 0.15;

/// The maximum number of seats of a request in a level without queues. `Work` has a lower maximum.
const SEATS_MAX_ANY: usize = usize::MAX;

/// The settings in the object of a level.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct LevelSettings {
    pub(crate) response: LimitResponse,
    pub(crate) shares: i32,
    lendable_percent: i32,
    /// `None` is no limit.
    borrowing_limit_percent: Option<i32>,
    hand_size: Option<usize>,
}

/// The error of an object whose fields contradict each other. It is ignored.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("PriorityLevelConfiguration {name:?} is ignored: {problem}")]
pub struct InvalidLevel {
    /// The name of the object.
    pub name: String,
    problem: &'static str,
}

impl LevelSettings {
    /// Reads the settings from the object.
    ///
    /// # Errors
    /// The fields contradict each other, or the queues cannot be sharded.
    pub(crate) fn of(object: &PriorityLevelConfiguration) -> Result<Self, InvalidLevel> {
        let invalid = |problem| InvalidLevel {
            name: object.name().to_owned(),
            problem,
        };
        let spec = &object.spec;
        if (spec.kind == "Exempt") != (object.name() == EXEMPT) {
            return Err(invalid(
                "only the level \"exempt\" has the type Exempt, and it has no other",
            ));
        }
        match (spec.kind.as_str(), &spec.limited, &spec.exempt) {
            ("Exempt", None, exempt) => {
                let exempt = exempt.clone().unwrap_or_default();
                Ok(Self {
                    response: LimitResponse::Unlimited,
                    shares: exempt.nominal_concurrency_shares.unwrap_or(0).max(0),
                    lendable_percent: exempt.lendable_percent.unwrap_or(0),
                    borrowing_limit_percent: None,
                    hand_size: None,
                })
            }
            ("Limited", Some(limited), None) => {
                let response = &limited.limit_response;
                let (response, hand_size) = match (response.kind.as_str(), response.queuing) {
                    ("Reject", None) => (LimitResponse::Reject, None),
                    ("Queue", Some(queuing)) => {
                        let (queues, hand_size) = sharded(queuing).ok_or_else(|| {
                            invalid("queues cannot be sharded with this handSize")
                        })?;
                        (queues, Some(hand_size))
                    }
                    _ => {
                        return Err(invalid(
                            "limitResponse has queuing exactly if it has the type Queue",
                        ));
                    }
                };
                Ok(Self {
                    response,
                    shares: limited.nominal_concurrency_shares.unwrap_or(30).max(0),
                    lendable_percent: limited.lendable_percent.unwrap_or(0),
                    borrowing_limit_percent: limited.borrowing_limit_percent,
                    hand_size,
                })
            }
            _ => Err(invalid("the members of spec do not fit its type")),
        }
    }
}

fn sharded(queuing: Queuing) -> Option<(LimitResponse, usize)> {
    let number = |value: i32| usize::try_from(value).ok();
    let (queues, hand_size) = (number(queuing.queues)?, number(queuing.hand_size)?);
    let response = LimitResponse::Queue {
        dealer: Dealer::new(queues, hand_size)?,
        length_max: number(queuing.queue_length_limit)?,
    };
    Some((response, hand_size))
}

/// The seats of a level.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Seats {
    pub(crate) nominal: usize,
    /// The number of seats that the level does not lend.
    pub(crate) lower: usize,
    pub(crate) upper: usize,
    /// The current limit, after lending and borrowing.
    pub(crate) current: usize,
}

impl Seats {
    /// Returns the seats of a level with these settings in a server with `total` seats, which are divided into `shares`
    /// shares.
    pub(crate) fn of(settings: &LevelSettings, total: usize, shares: i64) -> Self {
        let nominal = match shares {
            0 => 0,
            shares => (total as f64 * f64::from(settings.shares) / shares as f64).ceil() as usize,
        };
        let percent = |percent: i32| (nominal as f64 * f64::from(percent.max(0)) / 100.0).round();
        let lendable = (percent(settings.lendable_percent) as usize).min(nominal);
        let borrowing = settings.borrowing_limit_percent;
        let borrowing = borrowing.map_or(total, |limit| percent(limit) as usize);
        Self {
            nominal,
            lower: nominal - lendable,
            upper: nominal + borrowing,
            current: nominal - lendable / 2,
        }
    }

    /// Returns the maximum number of seats of a request.
    pub(crate) fn request_max(&self, settings: &LevelSettings) -> usize {
        let Some(hand_size) = settings.hand_size else {
            return SEATS_MAX_ANY;
        };
        let part = (self.nominal as f64 * SEATS_MAX_PART).ceil() as usize;
        part.min(self.nominal / hand_size).max(1)
    }

    pub(crate) fn metrics(&self, demand: DemandHistory) -> LevelSeats {
        LevelSeats {
            nominal: self.nominal,
            lower: self.lower,
            upper: self.upper,
            current: self.current,
            demand_high_watermark: demand.high_watermark,
            demand_smoothed: demand.smoothed,
        }
    }
}
