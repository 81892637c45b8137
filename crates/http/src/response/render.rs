//! Renders objects as JSON in a negotiated form: the object itself, metadata only, or rows of a
//! Table. `list_body` and `watch_body` combine the parts.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::{BufMut, BytesMut};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use watchet_api::{Object, ResourceVersion};
use watchet_registry::{PrintedFields, Registry, Resource};

use crate::request::accept::{Form, IncludeObject};
use crate::response::chunks::ChunkError;
use watchet_protobuf::{Encoder, Schema};

/// The group and version of Tables and PartialObjectMetadata.
const META_V1: &str = "meta.k8s.io/v1";

/// Renders objects of one resource in one form.
#[derive(Debug, Clone)]
pub(crate) struct Renderer {
    resource: Arc<Resource>,
    form: Form,
    /// Set if the stored version differs from the version that clients of the resource see.
    converter: Option<Arc<Registry>>,
    /// Set if the output is protobuf.
    protobuf: Option<Encoder>,
    /// The fields that the cells are printed from; `None` if the form is no Table.
    printed_fields: Option<Arc<PrintedFields>>,
}

/// Deserializes only the metadata of an object, verbatim.
#[derive(Deserialize)]
struct WithMetadata<'a> {
    #[serde(borrow)]
    metadata: &'a RawValue,
}

impl Renderer {
    /// Creates a renderer of `resource` in `form`.
    pub(crate) fn new(registry: &Arc<Registry>, resource: Arc<Resource>, form: Form) -> Self {
        let converter = registry.converts(&resource).then(|| registry.clone());
        let is_table = matches!(form, Form::Table(_));
        let printed_fields = is_table.then(|| Arc::new(resource.strategy.printed_fields()));
        Self {
            resource,
            form,
            converter,
            protobuf: None,
            printed_fields,
        }
    }

    /// Returns the renderer with protobuf as the output encoding; `None` if the kind has no such encoding.
    pub(crate) fn in_protobuf(self, schema: &Arc<Schema>) -> Option<Self> {
        let (kind, api_version) = self.object_type();
        Some(Self {
            protobuf: Some(Encoder::new(schema, &api_version, &kind)?),
            ..self
        })
    }

    /// Returns the encoder of protobuf, unless the output is JSON.
    pub(crate) fn protobuf(&self) -> Option<&Encoder> {
        self.protobuf.as_ref()
    }

    /// Creates a renderer of `resource` in `form` without version conversion.
    #[cfg(test)]
    pub(crate) fn unconverted(resource: Arc<Resource>, form: Form) -> Self {
        Self {
            resource,
            form,
            converter: None,
            protobuf: None,
            printed_fields: None,
        }
    }

    /// Returns the form.
    pub(crate) fn form(&self) -> Form {
        self.form
    }

    /// Returns true if objects are rows of a Table.
    pub(crate) fn is_table(&self) -> bool {
        matches!(self.form, Form::Table(_))
    }

    /// Returns true if the output for an object is the very bytes in the cache.
    pub(crate) fn is_verbatim(&self) -> bool {
        self.is_stored_form() && self.protobuf.is_none()
    }

    /// Returns the number of the custom resource version that is rendered; 0 for a built-in.
    pub(crate) fn version_number(&self) -> u32 {
        self.resource.version_number()
    }

    /// Returns true if objects are converted from another stored version.
    pub(crate) fn converts(&self) -> bool {
        self.converter.is_some()
    }

    /// Returns true if the output is the stored version of the whole object, in any encoding.
    pub(crate) fn is_stored_form(&self) -> bool {
        self.form == Form::Object && self.converter.is_none()
    }

    fn body<'a>(&self, object: &'a Object) -> Result<Cow<'a, [u8]>, ChunkError> {
        let stored = object.body_slice();
        let converted = match &self.converter {
            Some(registry) => registry.converted(&self.resource, stored)?,
            None => None,
        };
        Ok(converted.map_or(Cow::Borrowed(stored), Cow::Owned))
    }

    /// Returns the kind and apiVersion of one object in this form.
    pub(crate) fn object_type(&self) -> (String, String) {
        match self.form {
            Form::Object => (self.resource.kind.clone(), self.resource.api_version()),
            Form::Metadata => ("PartialObjectMetadata".to_owned(), META_V1.to_owned()),
            Form::Table(_) => ("Table".to_owned(), META_V1.to_owned()),
        }
    }

    /// Returns the kind and apiVersion of a list in this form.
    pub(crate) fn list_type(&self) -> (String, String) {
        match self.form {
            Form::Object => (
                format!("{}List", self.resource.kind),
                self.resource.api_version(),
            ),
            Form::Metadata => ("PartialObjectMetadataList".to_owned(), META_V1.to_owned()),
            Form::Table(_) => self.object_type(),
        }
    }

    /// Appends `object` as an item of a list of this form, or as a row of a Table.
    ///
    /// # Errors
    /// The object's bytes are not JSON, which `Object::decode` excludes.
    pub(crate) fn write_item(&self, object: &Object, out: &mut BytesMut) -> Result<(), ChunkError> {
        if self.form == Form::Metadata && self.converter.is_none() {
            write_metadata(object.metadata_slice(), out);
            return Ok(());
        }
        let body = self.body(object)?;
        match self.form {
            Form::Object => out.put_slice(&body),
            Form::Metadata => write_metadata(metadata_of(&body)?, out),
            Form::Table(include) => {
                let metadata = match &body {
                    Cow::Borrowed(_) => object.metadata_slice(),
                    Cow::Owned(converted) => metadata_of(converted)?,
                };
                self.write_row(&body, metadata, include, out)?;
            }
        }
        Ok(())
    }

    /// Appends `object` alone in this form; `columns` says whether a Table includes its column
    /// definitions.
    ///
    /// # Errors
    /// As [`Self::write_item`].
    pub(crate) fn write_object(
        &self,
        object: &Object,
        columns: bool,
        out: &mut BytesMut,
    ) -> Result<(), ChunkError> {
        let Form::Table(_) = self.form else {
            return self.write_item(object, out);
        };
        let metadata = table_metadata(object.resource_version());
        out.put_slice(self.table_head(&metadata, columns).as_bytes());
        self.write_item(object, out)?;
        out.put_slice(b"]}");
        Ok(())
    }

    /// Returns a Table up to its first row; `metadata` is JSON.
    pub(crate) fn table_head(&self, metadata: &str, columns: bool) -> String {
        let columns = if columns {
            self.columns().to_string()
        } else {
            "null".to_owned()
        };
        format!(
            r#"{{"kind":"Table","apiVersion":"{META_V1}","metadata":{metadata},"columnDefinitions":{columns},"rows":["#
        )
    }

    fn columns(&self) -> Value {
        let columns = self.resource.table_columns().iter();
        columns
            .map(|column| {
                serde_json::json!({
                    "name": column.name,
                    "type": column.r#type,
                    "format": column.format,
                    "description": column.description,
                    "priority": column.priority,
                })
            })
            .collect()
    }

    fn write_row(
        &self,
        body: &[u8],
        metadata: &[u8],
        include: IncludeObject,
        out: &mut BytesMut,
    ) -> Result<(), serde_json::Error> {
        let value = match &self.printed_fields {
            Some(fields) => fields.decode(body)?,
            None => serde_json::from_slice(body)?,
        };
        let cells = self.resource.table_cells(&value, jiff::Timestamp::now());
        out.put_slice(br#"{"cells":"#);
        out.put_slice(Value::Array(cells).to_string().as_bytes());
        out.put_slice(br#","object":"#);
        match include {
            IncludeObject::None => out.put_slice(b"null"),
            IncludeObject::Metadata => write_metadata(metadata, out),
            IncludeObject::Object => out.put_slice(body),
        }
        out.put_slice(b"}");
        Ok(())
    }

    /// Appends the object of a bookmark in this form. In a Table it is a row that always includes
    /// its metadata, whatever the value of `includeObject`, because the annotation must arrive.
    ///
    /// # Errors
    /// As [`Self::write_item`].
    pub(crate) fn write_bookmark(
        &self,
        metadata: &str,
        columns: bool,
        out: &mut BytesMut,
    ) -> Result<(), ChunkError> {
        if let Form::Table(_) = self.form {
            out.put_slice(self.table_head(metadata, columns).as_bytes());
            let body = format!(r#"{{"metadata":{metadata}}}"#);
            let metadata = metadata.as_bytes();
            self.write_row(body.as_bytes(), metadata, IncludeObject::Metadata, out)?;
            out.put_slice(b"]}");
            return Ok(());
        }
        let (kind, api_version) = self.object_type();
        let object =
            format!(r#"{{"kind":"{kind}","apiVersion":"{api_version}","metadata":{metadata}}}"#);
        out.put_slice(object.as_bytes());
        Ok(())
    }
}

/// Returns the metadata of a single object's Table; an object that is not stored (dry run) has no
/// version.
fn table_metadata(at: ResourceVersion) -> String {
    match at.is_zero() {
        true => "{}".to_owned(),
        false => format!(r#"{{"resourceVersion":"{at}"}}"#),
    }
}

/// Returns the JSON of the metadata of an object.
fn metadata_of(body: &[u8]) -> Result<&[u8], serde_json::Error> {
    let object: WithMetadata<'_> = serde_json::from_slice(body)?;
    Ok(object.metadata.get().as_bytes())
}

/// Appends a PartialObjectMetadata with this JSON of `metadata`.
fn write_metadata(metadata: &[u8], out: &mut BytesMut) {
    out.put_slice(br#"{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":"#);
    out.put_slice(metadata);
    out.put_slice(b"}");
}
