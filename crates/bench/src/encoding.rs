//! The encodings of responses: media types to request, and how their bytes are read.

use clap::ValueEnum;

/// Encodings of objects in responses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(super) enum Encoding {
    /// JSON
    #[default]
    Json,
    /// Kubernetes' protobuf
    Protobuf,
    /// A Table in JSON, as `kubectl get` requests it
    Table,
    /// PartialObjectMetadata or PartialObjectMetadataList in JSON
    Metadata,
    /// The same in protobuf, as the garbage collector and metadata informers request it
    MetadataProtobuf,
}

/// How the bytes of a response are encoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wire {
    Json,
    Protobuf,
}

/// What a response contains: Kubernetes has two kinds of metadata, one for objects and watches, and
/// one for lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Content {
    Object,
    List,
}

impl Encoding {
    /// All encodings.
    pub(super) const ALL: [Self; 5] = [
        Self::Json,
        Self::Protobuf,
        Self::Table,
        Self::Metadata,
        Self::MetadataProtobuf,
    ];

    /// Returns the name on the command line and in reports.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Json => "json",
            Self::Protobuf => "protobuf",
            Self::Table => "table",
            Self::Metadata => "metadata",
            Self::MetadataProtobuf => "metadata-protobuf",
        }
    }

    pub(super) const fn wire(self) -> Wire {
        match self {
            Self::Json | Self::Table | Self::Metadata => Wire::Json,
            Self::Protobuf | Self::MetadataProtobuf => Wire::Protobuf,
        }
    }

    /// Returns the Accept header. It has no second choice, so that a server without the encoding
    /// refuses the request (406) instead of sending another one.
    pub(super) const fn accept(self, content: Content) -> &'static str {
        match (self, content) {
            (Self::Json, _) => "application/json",
            (Self::Protobuf, _) => "application/vnd.kubernetes.protobuf",
            (Self::Table, _) => "application/json;as=Table;g=meta.k8s.io;v=v1",
            (Self::Metadata, Content::Object) => {
                "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
            }
            (Self::Metadata, Content::List) => {
                "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
            }
            (Self::MetadataProtobuf, Content::Object) => {
                "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
            }
            (Self::MetadataProtobuf, Content::List) => {
                "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
            }
        }
    }

    /// Returns the `kind` that a response must have instead of the resource's own.
    pub(super) const fn kind(self, content: Content) -> Option<&'static str> {
        match (self, content) {
            (Self::Json | Self::Protobuf, _) => None,
            (Self::Table, _) => Some("Table"),
            (_, Content::Object) => Some("PartialObjectMetadata"),
            (_, Content::List) => Some("PartialObjectMetadataList"),
        }
    }
}

impl Wire {
    /// Returns the media type, a prefix of the response's Content-Type.
    pub(super) const fn media_type(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::Protobuf => "application/vnd.kubernetes.protobuf",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_encoding_is_requested_in_its_own_media_type() {
        for encoding in Encoding::ALL {
            for content in [Content::Object, Content::List] {
                let accept = encoding.accept(content);
                assert!(accept.starts_with(encoding.wire().media_type()), "{accept}");
                let kind = encoding.kind(content);
                let requested = accept.split(';').find_map(|part| part.strip_prefix("as="));
                assert_eq!(requested, kind, "{accept}");
            }
            let parsed = Encoding::from_str(encoding.name(), false);
            assert_eq!(parsed, Ok(encoding));
        }
    }
}
