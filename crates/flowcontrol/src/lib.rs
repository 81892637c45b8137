//! API Priority and Fairness (KEP-1040): decides which requests run, which wait, and which are rejected.
//!
//! ```text
//! request ─▶ FlowControl::classify: the first FlowSchema that matches, and the flow in it (user, namespace)
//!         ─▶ Classification::admit: the priority level of the schema ─▶ a seat, now or when it is free
//!                 the hand of queues of the flow ─▶ the shortest queue ─▶ fair queuing ─▶ Seat
//! ```
//!
//! The objects `FlowSchema` and `PriorityLevelConfiguration` are the configuration; the caller passes the stored ones to
//! [`FlowControl::configure`]. Each level has a share of the server's seats. [`FlowControl::adjust_limits`] lends the
//! seats that a level does not use to others.
//!
//! A request of a level with free seats costs two short locks of that level and two readings of the clock. There is no
//! global lock.
//!
//! # Example
//!
//! ```
//! use std::time::Duration;
//!
//! use watchet_flowcontrol::{DigestTarget, FlowControl, RequestDigest, Work};
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let control = FlowControl::new(600, Default::default());
//! let groups = ["system:authenticated".to_owned()];
//! let request = RequestDigest {
//!     user: "ann",
//!     groups: &groups,
//!     verb: "get".into(),
//!     target: DigestTarget::Path("/version".into()),
//! };
//! let flow = control.classify(&request);
//! assert_eq!(flow.flow_schema(), "catch-all");
//! let seat = flow.admit(Work::SINGLE, false, Duration::from_secs(15)).await?;
//! drop(seat); // The request has ended.
//! # Ok(())
//! # }
//! ```

mod allocation;
mod defaults;
mod demand;
mod dump;
mod fair_queues;
mod flow_control;
mod level;
mod level_settings;
mod matching;
mod objects;
mod retry_after;
mod shuffle_sharding;
mod tracked_requests;
mod work;

pub use defaults::{AUTO_UPDATE, DefaultObject, default_levels, default_schemas};
pub use flow_control::{ADJUSTMENT_PERIOD, Classification, ConfigurationReport, FlowControl};
pub use level::{Rejected, Seat};
pub use level_settings::InvalidLevel;
pub use matching::{DigestTarget, RequestDigest};
pub use objects::{FlowSchema, PriorityLevelConfiguration};
pub use tracked_requests::RequestDetails;
pub use work::Work;
