//! What a response consists of: headers, statuses, documents, and the bodies of objects, lists and watches in the
//! negotiated media type and form.

pub(crate) mod chunks;
pub(crate) mod document;
pub(crate) mod encoding;
pub(crate) mod guarded_body;
pub(crate) mod headers;
pub(crate) mod indent;
pub(crate) mod list_body;
pub(crate) mod ordered;
pub(crate) mod protobuf_renderer;
pub(crate) mod render;
pub(crate) mod response_tracker;
pub(crate) mod send_deadline;
pub(crate) mod status;
pub(crate) mod warning;
pub(crate) mod watch_body;
pub(crate) mod watch_meter;
pub(crate) mod websocket;
pub(crate) mod yaml;
