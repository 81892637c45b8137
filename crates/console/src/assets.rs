//! The files of the console.

use std::sync::LazyLock;

use axum::body::Body;
use axum::response::Response;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use sha2::{Digest as _, Sha256};

use crate::response::empty;

/// A file.
pub(crate) struct Asset {
    /// The name in the directory and in URLs.
    pub(crate) name: &'static str,
    content: &'static str,
}

macro_rules! assets {
    ($($name:literal),+ $(,)?) => {
        &[$(Asset { name: $name, content: include_str!(concat!("../assets/", $name)) }),+]
    };
}

/// All files.
pub(crate) const ASSETS: &[Asset] = assets![
    "api.js",
    "console.css",
    "diff.js",
    "dom.js",
    "format.js",
    "history.js",
    "icon.svg",
    "index.html",
    "main.js",
    "metrics.js",
    "page_caches.js",
    "page_object.js",
    "page_objects.js",
    "page_overview.js",
    "page_tape.js",
    "page_watchers.js",
    "plots.js",
    "ring.js",
    "routes.js",
    "sampler.js",
    "session.js",
    "store.js",
    "time_slider.js",
    "virtual_list.js",
    "watchers.js",
    "yaml.js",
];

/// The entity tag, in quotes, of all files together, because modules of different builds are not compatible.
static TAG: LazyLock<HeaderValue> = LazyLock::new(|| {
    let mut hasher = Sha256::new();
    for asset in ASSETS {
        hasher.update(asset.content);
    }
    let digest: [u8; 32] = hasher.finalize().into();
    let hex: String = digest[..16].iter().map(|b| format!("{b:02x}")).collect();
    HeaderValue::from_str(&format!("\"{hex}\"")).unwrap_or(HeaderValue::from_static("\"\""))
});

/// Returns the file `name`, or `index.html` if it is empty; 404 if there is no such file.
pub(crate) fn respond(name: &str, headers: &HeaderMap) -> Response {
    let name = if name.is_empty() { "index.html" } else { name };
    let asset = ASSETS.iter().find(|asset| asset.name == name);
    let Some(asset) = asset else {
        return empty(StatusCode::NOT_FOUND);
    };
    let mut response = match headers.get(header::IF_NONE_MATCH) == Some(&*TAG) {
        true => empty(StatusCode::NOT_MODIFIED),
        false => Response::new(Body::from(asset.content)),
    };
    let content_type = HeaderValue::from_static(content_type(asset.name));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, content_type);
    headers.insert(header::ETAG, TAG.clone());
    // The browser revalidates the file each time.
    let no_cache = HeaderValue::from_static("no-cache");
    headers.insert(header::CACHE_CONTROL, no_cache);
    response
}

fn content_type(name: &str) -> &'static str {
    match name.rsplit('.').next() {
        Some("html") => "text/html; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("svg") => "image/svg+xml",
        _ => "text/javascript; charset=utf-8",
    }
}
