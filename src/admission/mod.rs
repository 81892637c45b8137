//! Admission: what may change a write, and what may refuse it, before it is stored: webhooks that are
//! called over HTTPS. It is told what the write is and what the configurations are; it reads no
//! storage, knows no verb's flow and speaks to no client of this server.

pub mod client;
