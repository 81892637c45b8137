//! The body of a list: head, items, tail, made in chunks from objects that the cache holds (§8.4).
//! The same bytes come out however the chunks fall.

use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};

use crate::api::Object;
use crate::cacher::ObjectList;

use super::accept::Form;
use super::chunks::{ChunkError, ChunkSource};
use super::render::Renderer;

/// A chunk is sent when it has this many bytes: enough to make writes cheap, little enough that ten
/// thousand slow readers of lists hold megabytes and not gigabytes.
const CHUNK_BYTES: usize = 64 << 10;

/// A list on its way out.
pub(crate) struct ListSource {
    renderer: Renderer,
    /// Not yet sent.
    head: Option<String>,
    items: std::vec::IntoIter<Arc<Object>>,
    first: bool,
    ended: bool,
}

impl ListSource {
    /// `list` as `renderer` shows it.
    pub(crate) fn new(renderer: Renderer, list: ObjectList) -> Self {
        let metadata = list_metadata(&list);
        let head = match renderer.form() {
            Form::Table(_) => renderer.table_head(&metadata, true),
            Form::Object | Form::Metadata => {
                let (kind, api_version) = renderer.list_type();
                format!(
                    r#"{{"kind":"{kind}","apiVersion":"{api_version}","metadata":{metadata},"items":["#
                )
            }
        };
        Self {
            renderer,
            head: Some(head),
            items: list.items.into_iter(),
            first: true,
            ended: false,
        }
    }
}

fn list_metadata(list: &ObjectList) -> String {
    let mut metadata = format!(r#"{{"resourceVersion":"{}""#, list.resource_version);
    if let Some(token) = &list.continue_token {
        // A token is URL-safe base64: nothing in it needs escaping.
        metadata.push_str(&format!(r#","continue":"{token}""#));
    }
    if let Some(remaining) = list.remaining {
        metadata.push_str(&format!(r#","remainingItemCount":{remaining}"#));
    }
    metadata.push('}');
    metadata
}

impl ChunkSource for ListSource {
    fn next_chunk(&mut self) -> Option<Result<Bytes, ChunkError>> {
        if self.ended {
            return None;
        }
        let mut out = BytesMut::with_capacity(CHUNK_BYTES);
        if let Some(head) = self.head.take() {
            out.put_slice(head.as_bytes());
        }
        while out.len() < CHUNK_BYTES {
            let Some(object) = self.items.next() else {
                out.put_slice(b"]}\n");
                self.ended = true;
                break;
            };
            if !std::mem::take(&mut self.first) {
                out.put_u8(b',');
            }
            if let Err(error) = self.renderer.write_item(&object, &mut out) {
                self.ended = true;
                return Some(Err(error.into()));
            }
        }
        Some(Ok(out.freeze()))
    }
}
