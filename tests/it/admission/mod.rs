//! Admission on real sockets: webhooks are HTTPS servers inside the test.

mod client;
