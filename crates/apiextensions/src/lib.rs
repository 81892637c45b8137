//! Custom resources: serves the resources that CustomResourceDefinitions define. `follow` watches the definitions in
//! their cache, which contains those of every server, checks that their names are free, and adds their resources to the
//! registry's table.
//!
//! # Definitions
//!
//! - *Definition*: a CustomResourceDefinition. Its *versions* are resources of the registry that share
//!   a storage prefix, `<group>/<plural>`, and therefore a cache.
//! - *Storage version*: the version that new objects are stored in.
//!
//! # Invariants
//!
//! 1. The served resources come from stored definitions, never from the body of a request.
//! 2. A client that reads from this server that a definition is established can use its resources here. The response to a
//!    write of a definition is sent after the server has applied it.
//! 3. A definition is deleted after its objects: a later definition with the same name has none of them.
//! 4. A write depends on the definition that the server serves when it stores the object. See `write_barrier`, also for
//!    several servers.

mod active_cleanups;
mod batches;
mod checks;
mod cleanup;
mod columns;
mod conditions;
mod conversion_cache;
mod custom;
mod definition;
mod definitions;
mod follow;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod json_path;
mod provider;
mod resources;
mod review;
mod schema;
mod strategy;
mod structural;
mod v1beta1;
mod versions;
mod write_barrier;

pub use definitions::Definitions;
pub use provider::CustomResources;
pub use strategy::DefinitionStrategy;
