//! The body of a list: head, items and tail, encoded in chunks from the objects of the cache. The
//! bytes do not depend on the chunk boundaries.

use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};
use serde_json::Value;

use watchet_api::{Object, ShardSelector};
use watchet_registry::ObjectList;

use crate::request::accept::Form;
use crate::response::chunks::{ChunkError, ChunkSource};
use crate::response::protobuf_renderer::ProtobufRenderer;
use crate::response::render::Renderer;
use crate::response::yaml::yaml;
use watchet_protobuf::list_tail;

/// A chunk is sent when it has this many bytes: enough to make writes cheap. A list in flight holds
/// two or three chunks (`chunks` looks ahead), and the number of lists is limited by the in-flight
/// limit of reads.
const CHUNK_BYTES: usize = 64 << 10;

/// Extra capacity for the item that completes a chunk. A larger item makes the buffer grow, which
/// can copy the whole chunk.
const ITEM_BYTES_RESERVED: usize = 16 << 10;

/// A source of the chunks of a JSON list.
pub(crate) struct ListSource {
    renderer: Renderer,
    /// `None` once sent.
    head: Option<String>,
    items: std::vec::IntoIter<Arc<Object>>,
    first: bool,
    ended: bool,
}

impl ListSource {
    /// Creates the source of `list` in the form of `renderer`; `shard` is the requested shard.
    pub(crate) fn new(renderer: Renderer, list: ObjectList, shard: Option<&ShardSelector>) -> Self {
        let metadata = list_metadata(&list, shard);
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

/// A source of the chunks of a protobuf list. The length of a list precedes its items: it is computed first, from the
/// encodings that the objects retain and the lengths of those that were dropped. Such an item is encoded again for
/// output, because the first encoding of a whole list would stay in memory as long as a slow client reads.
pub(crate) struct ProtobufListSource {
    renderer: Renderer,
    /// `None` once sent.
    head: Option<Vec<u8>>,
    items: std::vec::IntoIter<Arc<Object>>,
    tail: Option<&'static [u8]>,
}

/// How many items are measured between two yields to the runtime.
const PROTOBUF_ITEMS: usize = 128;

impl ProtobufListSource {
    /// Creates the source of `list` in the form of `renderer`, which renders protobuf.
    ///
    /// # Errors
    /// An object has no protobuf encoding.
    pub(crate) async fn new(
        renderer: Renderer,
        list: ObjectList,
        shard: Option<&ShardSelector>,
    ) -> Result<Self, ChunkError> {
        let mut bytes = 0;
        for items in list.items.chunks(PROTOBUF_ITEMS) {
            for object in items {
                bytes += protobuf(&renderer)?.item_len(object)?;
            }
            tokio::task::yield_now().await;
        }
        let (kind, api_version) = renderer.list_type();
        let metadata = list_metadata(&list, shard);
        let list_type = (&*api_version, &*kind);
        let encoder = protobuf(&renderer)?.encoder();
        let head = encoder.encode_list_head(list_type, metadata.as_bytes(), bytes)?;
        Ok(Self {
            renderer,
            head: Some(head),
            items: list.items.into_iter(),
            tail: Some(list_tail()),
        })
    }
}

/// Returns the protobuf renderer of a response that is protobuf.
fn protobuf(renderer: &Renderer) -> Result<ProtobufRenderer<'_>, ChunkError> {
    ProtobufRenderer::of(renderer).ok_or(ChunkError::NotProtobuf)
}

impl ChunkSource for ProtobufListSource {
    fn next_chunk(&mut self) -> Option<Result<Bytes, ChunkError>> {
        let mut out = Vec::with_capacity(CHUNK_BYTES + ITEM_BYTES_RESERVED);
        out.extend(self.head.take().unwrap_or_default());
        while out.len() < CHUNK_BYTES {
            let Some(object) = self.items.next() else {
                out.extend_from_slice(self.tail.take().unwrap_or_default());
                break;
            };
            let written = protobuf(&self.renderer)
                .and_then(|protobuf| protobuf.write_item(&object, &mut out));
            if let Err(error) = written {
                return Some(Err(error));
            }
        }
        (!out.is_empty()).then(|| Ok(out.into()))
    }
}

/// A source of the chunks of a YAML list, encoded item by item, because a list may be large.
pub(crate) struct YamlListSource {
    renderer: Renderer,
    /// `None` once sent.
    head: Option<String>,
    items: std::vec::IntoIter<Arc<Object>>,
    tail: Option<String>,
}

impl YamlListSource {
    /// Creates the source of `list` in the form of `renderer`, which must not be a Table.
    ///
    /// # Errors
    /// The list's metadata cannot be encoded.
    pub(crate) fn new(
        renderer: Renderer,
        list: ObjectList,
        shard: Option<&ShardSelector>,
    ) -> Result<Self, ChunkError> {
        let metadata: Value = serde_json::from_str(&list_metadata(&list, shard))?;
        let (kind, api_version) = renderer.list_type();
        let items = if list.items.is_empty() { " []" } else { "" };
        let tail = yaml(&serde_json::json!({"kind": kind, "metadata": metadata}))?;
        Ok(Self {
            renderer,
            head: Some(format!("apiVersion: {api_version}\nitems:{items}\n")),
            items: list.items.into_iter(),
            tail: Some(tail),
        })
    }

    fn item(&self, object: &Object) -> Result<String, ChunkError> {
        let mut json = BytesMut::new();
        self.renderer.write_item(object, &mut json)?;
        let item: Value = serde_json::from_slice(&json)?;
        yaml(&Value::Array(vec![item]))
    }
}

impl ChunkSource for YamlListSource {
    fn next_chunk(&mut self) -> Option<Result<Bytes, ChunkError>> {
        let mut out = self.head.take().unwrap_or_default();
        while out.len() < CHUNK_BYTES {
            let text = match self.items.next() {
                Some(object) => match self.item(&object) {
                    Ok(text) => text,
                    Err(error) => return Some(Err(error)),
                },
                None => match self.tail.take() {
                    Some(tail) => tail,
                    None => break,
                },
            };
            out.push_str(&text);
        }
        (!out.is_empty()).then(|| Ok(out.into()))
    }
}

fn list_metadata(list: &ObjectList, shard: Option<&ShardSelector>) -> String {
    let mut members = Vec::new();
    // A list of objects that are not stored has no resourceVersion; upstream leaves out the empty member.
    if !list.resource_version.is_zero() {
        members.push(format!(r#""resourceVersion":"{}""#, list.resource_version));
    }
    if let Some(token) = &list.continue_token {
        // A continue token is URL-safe base64: nothing in it needs escaping.
        members.push(format!(r#""continue":"{token}""#));
    }
    if let Some(remaining) = list.remaining {
        members.push(format!(r#""remainingItemCount":{remaining}"#));
    }
    if let Some(shard) = shard {
        // The canonical selector needs no escaping either.
        members.push(format!(r#""shardInfo":{{"selector":"{shard}"}}"#));
    }
    format!("{{{}}}", members.join(","))
}

impl ChunkSource for ListSource {
    fn next_chunk(&mut self) -> Option<Result<Bytes, ChunkError>> {
        if self.ended {
            return None;
        }
        let mut out = BytesMut::with_capacity(CHUNK_BYTES + ITEM_BYTES_RESERVED);
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
                return Some(Err(error));
            }
        }
        Some(Ok(out.freeze()))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::request::accept::IncludeObject;
    use crate::test_objects::{config_maps, object, pods_as};
    use watchet_api::{EventType, ResourceVersion};

    fn list(items: Vec<Arc<Object>>) -> ObjectList {
        ObjectList {
            resource_version: ResourceVersion::new(9),
            items,
            continue_token: None,
            remaining: None,
        }
    }

    fn chunks(renderer: Renderer, list: ObjectList) -> Vec<Bytes> {
        let mut source = ListSource::new(renderer, list, None);
        std::iter::from_fn(|| source.next_chunk().map(Result::unwrap)).collect()
    }

    fn text(renderer: Renderer, list: ObjectList) -> String {
        String::from_utf8(chunks(renderer, list).concat()).unwrap()
    }

    #[test]
    fn an_empty_list_has_empty_items() {
        assert_eq!(
            text(pods_as(Form::Object), list(vec![])),
            "{\"kind\":\"PodList\",\"apiVersion\":\"v1\",\"metadata\":{\"resourceVersion\":\"9\"},\
             \"items\":[]}\n"
        );
    }

    /// The YAML and the JSON list must be the same document; Tables are tested elsewhere.
    #[test]
    fn yaml_equals_json() {
        for count in [0, 1, 300] {
            let objects = (0..count).map(|n| object(&format!("m{n:03}"), n, EventType::Added, 400));
            let page = ObjectList {
                continue_token: Some("abc".to_owned()),
                ..list(objects.collect())
            };
            let json: Value =
                serde_json::from_str(&text(pods_as(Form::Object), page.clone())).unwrap();
            let mut source = YamlListSource::new(pods_as(Form::Object), page, None).unwrap();
            let chunks: Vec<Bytes> =
                std::iter::from_fn(|| source.next_chunk().map(Result::unwrap)).collect();
            assert!(chunks.iter().all(|chunk| chunk.len() < 2 * CHUNK_BYTES));
            let yaml = String::from_utf8(chunks.concat()).unwrap();
            let actual: Value =
                serde_saphyr::from_str(&yaml).unwrap_or_else(|e| panic!("{e}: {yaml}"));
            assert_eq!(actual, json, "{count}");
        }
    }

    #[test]
    fn a_page_has_a_continue_token() {
        let page = ObjectList {
            continue_token: Some("abc".to_owned()),
            remaining: Some(3),
            ..list(vec![object("a", 5, EventType::Added, 0)])
        };
        let actual: Value = serde_json::from_str(&text(pods_as(Form::Object), page)).unwrap();
        let expect = json!({"resourceVersion": "9", "continue": "abc", "remainingItemCount": 3});
        assert_eq!(actual["metadata"], expect);
        assert_eq!(actual["items"][0]["metadata"]["resourceVersion"], "5");
    }

    #[test]
    fn a_long_list_comes_in_bounded_chunks() {
        let items: Vec<_> = (0..50)
            .map(|n| object(&format!("o{n:02}"), n + 1, EventType::Added, 10_000))
            .collect();
        let chunks = chunks(pods_as(Form::Object), list(items));
        assert!(chunks.len() > 5, "{} chunks", chunks.len());
        assert!(
            chunks
                .iter()
                .all(|chunk| chunk.len() < CHUNK_BYTES + 11_000)
        );
        let actual: Value = serde_json::from_slice(&chunks.concat()).unwrap();
        assert_eq!(actual["items"].as_array().unwrap().len(), 50);
        assert_eq!(actual["items"][49]["metadata"]["name"], "o49");
    }

    #[test]
    fn tables_and_partial_metadata_are_encoded() {
        let items = || list(vec![object("a", 5, EventType::Added, 0)]);
        let partial = text(pods_as(Form::Metadata), items());
        let actual: Value = serde_json::from_str(&partial).unwrap();
        assert_eq!(actual["kind"], "PartialObjectMetadataList");
        assert_eq!(
            actual["items"][0],
            json!({
                "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1",
                "metadata": {"name": "a", "resourceVersion": "5"},
            })
        );
        for (include, kind) in [
            (IncludeObject::None, Value::Null),
            (IncludeObject::Metadata, json!("PartialObjectMetadata")),
            (IncludeObject::Object, json!("Pod")),
        ] {
            let renderer = Renderer::unconverted(config_maps(), Form::Table(include));
            let actual: Value = serde_json::from_str(&text(renderer, items())).unwrap();
            assert_eq!(actual["kind"], "Table");
            assert_eq!(actual["metadata"]["resourceVersion"], "9");
            let columns = actual["columnDefinitions"].as_array().unwrap();
            let column = columns[0].as_object().unwrap();
            let keys: Vec<_> = column.keys().collect();
            assert_eq!(keys, ["description", "format", "name", "priority", "type"]);
            assert_eq!(
                actual["rows"][0]["cells"].as_array().unwrap().len(),
                columns.len()
            );
            assert_eq!(actual["rows"][0]["object"]["kind"], kind, "{include:?}");
        }
    }
}
