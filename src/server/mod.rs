//! The process: config, build, spawn, drain; TLS and authentication. (skeleton)
