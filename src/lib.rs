#![doc = include_str!("ARCHITECTURE.md")]

// The crates below `crates/`, under the names that the documentation uses.
pub use watchet_admission as admission;
pub use watchet_api as api;
pub use watchet_apiextensions as apiextensions;
pub use watchet_audit as audit;
pub use watchet_auth as auth;
pub use watchet_authenticators as authenticators;
pub use watchet_authorizers as authorizers;
pub use watchet_bench as bench;
pub use watchet_builtin as builtin;
pub use watchet_cacher as cacher;
pub use watchet_cel as cel;
pub use watchet_cli as cli;
pub use watchet_client as client;
pub use watchet_console as console;
pub use watchet_controllers as controllers;
pub use watchet_demo as demo;
pub use watchet_encryption as encryption;
pub use watchet_flowcontrol as flowcontrol;
pub use watchet_http as http;
pub use watchet_introspection as introspection;
pub use watchet_metrics as metrics;
pub use watchet_profiling as profiling;
pub use watchet_protobuf as protobuf;
pub use watchet_reflector as reflector;
pub use watchet_registry as registry;
pub use watchet_schema as schema;
pub use watchet_services as services;
pub use watchet_storage as storage;
pub use watchet_tail as tail;
pub use watchet_tasks as tasks;
pub use watchet_telemetry as telemetry;
pub use watchet_x509 as x509;

// In reading order: the server process, the server for tests.
pub mod server;
pub mod testing;

/// Runs the example of the client's README, which needs a server.
#[cfg(doctest)]
#[doc = include_str!("../crates/client/README.md")]
struct ClientReadme;
