//! The integration tests: the real store, the real server, real clients. This file has only the modules, one per
//! subject.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test fails by panicking, and prints its seed; helpers are not marked as tests"
)]

mod admission;
mod audit;
mod authentication;
mod authorization;
mod bench;
mod builtin;
mod certificates;
mod cli;
mod cluster_authentication;
mod compose;
mod conformance;
mod controllers;
mod convergence;
mod custom;
mod demo;
mod election;
mod encryption;
mod envtest;
mod event_writes;
mod flow_control;
mod harness;
mod hostile_bodies;
mod informer;
mod introspection;
mod kube_apiserver;
mod kube_client;
mod kubectl;
mod kubectl_rights;
mod kubectl_verbs;
mod kubelet;
mod limits;
mod log_level;
mod metrics;
mod nesting;
mod nodes;
mod openapi;
mod operator;
mod overload;
mod profiles;
mod prometheus;
mod quotas;
mod rbac;
mod serve;
mod server_side_apply;
mod services;
mod storage;
mod store;
mod subresources;
mod tail;
mod testing;
mod tidy;
mod traces;
mod unread;
mod watch_access;
mod watch_scripts;
mod websocket;
