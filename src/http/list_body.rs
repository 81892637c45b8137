//! The body of a list: head, items, tail, made in chunks from objects that the cache holds (§8.4).
//! The same bytes come out however the chunks fall.

use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};

use crate::api::{Object, ShardSelector};
use crate::registry::ObjectList;

use super::accept::Form;
use super::chunks::{ChunkError, ChunkSource};
use super::protobuf::{ProtobufList, Schema};
use super::render::Renderer;

/// A chunk is sent when it has this many bytes: enough to make writes cheap. A list on its way holds two
/// or three (`chunks` looks ahead), and there are no more lists than seats for reads.
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
    /// `list`, which is of `shard` if one was asked for, as `renderer` shows it.
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

/// The same list in protobuf.
///
/// # Errors
/// An object cannot be written so.
pub(crate) fn protobuf_list(
    schema: &Schema,
    renderer: &Renderer,
    list: &ObjectList,
    shard: Option<&ShardSelector>,
) -> Result<ProtobufList, ChunkError> {
    let metadata = serde_json::from_str(&list_metadata(list, shard))?;
    let items = list.items.iter().map(|object| {
        let mut item = BytesMut::new();
        renderer.write_item(object, &mut item)?;
        Ok(item.freeze())
    });
    let (list_type, item_type) = (renderer.list_type(), renderer.object_type());
    ProtobufList::new(schema, list_type, item_type, &metadata, items)
}

fn list_metadata(list: &ObjectList, shard: Option<&ShardSelector>) -> String {
    let mut metadata = format!(r#"{{"resourceVersion":"{}""#, list.resource_version);
    if let Some(token) = &list.continue_token {
        // A token is URL-safe base64: nothing in it needs escaping.
        metadata.push_str(&format!(r#","continue":"{token}""#));
    }
    if let Some(remaining) = list.remaining {
        metadata.push_str(&format!(r#","remainingItemCount":{remaining}"#));
    }
    if let Some(shard) = shard {
        // The canonical text has nothing that needs escaping either.
        metadata.push_str(&format!(r#","shardInfo":{{"selector":"{shard}"}}"#));
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
                return Some(Err(error));
            }
        }
        Some(Ok(out.freeze()))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::accept::IncludeObject;
    use super::super::test_objects::{config_maps, object, pods_as};
    use super::*;
    use crate::api::{EventType, ResourceVersion};

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

    #[test]
    fn a_page_says_how_to_go_on() {
        let page = ObjectList {
            continue_token: Some("abc".to_owned()),
            remaining: Some(3),
            ..list(vec![object("a", 5, EventType::Added, 0)])
        };
        let told: Value = serde_json::from_str(&text(pods_as(Form::Object), page)).unwrap();
        let expect = json!({"resourceVersion": "9", "continue": "abc", "remainingItemCount": 3});
        assert_eq!(told["metadata"], expect);
        assert_eq!(told["items"][0]["metadata"]["resourceVersion"], "5");
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
        let told: Value = serde_json::from_slice(&chunks.concat()).unwrap();
        assert_eq!(told["items"].as_array().unwrap().len(), 50);
        assert_eq!(told["items"][49]["metadata"]["name"], "o49");
    }

    #[test]
    fn other_forms() {
        let items = || list(vec![object("a", 5, EventType::Added, 0)]);
        let partial = text(pods_as(Form::Metadata), items());
        let told: Value = serde_json::from_str(&partial).unwrap();
        assert_eq!(told["kind"], "PartialObjectMetadataList");
        assert_eq!(
            told["items"][0],
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
            let told: Value = serde_json::from_str(&text(renderer, items())).unwrap();
            assert_eq!(told["kind"], "Table");
            assert_eq!(told["metadata"]["resourceVersion"], "9");
            let columns = told["columnDefinitions"].as_array().unwrap();
            let column = columns[0].as_object().unwrap();
            let keys: Vec<_> = column.keys().collect();
            assert_eq!(keys, ["description", "format", "name", "priority", "type"]);
            assert_eq!(
                told["rows"][0]["cells"].as_array().unwrap().len(),
                columns.len()
            );
            assert_eq!(told["rows"][0]["object"]["kind"], kind, "{include:?}");
        }
    }
}
