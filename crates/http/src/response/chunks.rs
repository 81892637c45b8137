//! Response bodies produced chunk by chunk from a source of JSON chunks, with optional indentation
//! and gzip. A list of any size streams in pieces and is never in memory as a whole.

use std::io::Write as _;
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::Body;
use bytes::{Bytes, BytesMut};
use flate2::Compression;
use flate2::write::GzEncoder;
use http_body::{Frame, SizeHint};

use watchet_registry::ApiError;

use crate::error::HttpError;
use crate::response::indent::Indenter;
use watchet_protobuf::EncodeError;

/// Bodies up to this size are not compressed, as in kube-apiserver: compression costs more than it
/// saves.
pub(crate) const COMPRESS_ABOVE_BYTES: usize = 128 << 10;

/// Why a body ended early. The client sees a reset connection or stream, never a complete response.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ChunkError {
    /// An object could not be rendered in the requested form.
    #[error("cannot render an object: {0}")]
    Render(#[from] serde_json::Error),
    /// An object could not be converted from its stored form.
    #[error("cannot convert an object: {0}")]
    Convert(#[source] Box<ApiError>),
    /// An object could not be encoded as protobuf.
    #[error("cannot write an object as protobuf: {0}")]
    Protobuf(#[source] EncodeError),
    /// The renderer of a protobuf list renders JSON.
    #[error("the kind has no protobuf encoding")]
    NotProtobuf,
    /// An object could not be encoded as YAML.
    #[error("cannot write YAML: {0}")]
    Yaml(String),
    /// Writing to the in-memory compressor failed.
    #[error("cannot compress: {0}")]
    Compress(#[from] std::io::Error),
}

impl From<ApiError> for ChunkError {
    fn from(error: ApiError) -> Self {
        Self::Convert(Box::new(error))
    }
}

impl From<ChunkError> for HttpError {
    fn from(error: ChunkError) -> Self {
        Self::Internal(error.to_string())
    }
}

impl From<EncodeError> for ChunkError {
    fn from(error: EncodeError) -> Self {
        match error {
            EncodeError::Json(error) => Self::Render(error),
            error @ EncodeError::Value(_) => Self::Protobuf(error),
        }
    }
}

/// A source of body chunks.
pub(crate) trait ChunkSource: Send + 'static {
    /// Returns the next bytes, never empty; `None` at the end.
    fn next_chunk(&mut self) -> Option<Result<Bytes, ChunkError>>;
}

/// A source of a single, complete chunk.
#[derive(Debug)]
pub(crate) struct SingleChunk(Option<Bytes>);

impl SingleChunk {
    /// Creates a source of these bytes.
    pub(crate) fn new(bytes: Bytes) -> Self {
        Self(Some(bytes).filter(|b| !b.is_empty()))
    }
}

impl ChunkSource for SingleChunk {
    fn next_chunk(&mut self) -> Option<Result<Bytes, ChunkError>> {
        self.0.take().map(Ok)
    }
}

/// An adapter that indents the JSON of another source.
pub(crate) struct Pretty<S> {
    source: S,
    indenter: Indenter,
}

impl<S> Pretty<S> {
    /// Creates an adapter that indents the JSON of `source`.
    pub(crate) fn new(source: S) -> Self {
        Self {
            source,
            indenter: Indenter::default(),
        }
    }
}

impl<S: ChunkSource> ChunkSource for Pretty<S> {
    fn next_chunk(&mut self) -> Option<Result<Bytes, ChunkError>> {
        loop {
            let chunk = match self.source.next_chunk()? {
                Ok(chunk) => chunk,
                Err(error) => return Some(Err(error)),
            };
            let mut out = Vec::with_capacity(chunk.len() * 2);
            self.indenter.feed(&chunk, &mut out);
            if !out.is_empty() {
                return Some(Ok(out.into()));
            }
        }
    }
}

impl ChunkSource for Box<dyn ChunkSource> {
    fn next_chunk(&mut self) -> Option<Result<Bytes, ChunkError>> {
        (**self).next_chunk()
    }
}

/// A body and whether it is compressed.
pub(crate) struct Encoded {
    /// The body.
    pub(crate) body: Body,
    /// Whether it carries `Content-Encoding: gzip`.
    pub(crate) gzip: bool,
}

/// Builds the body of the chunks of `source`. With `gzip_accepted` a body of more than
/// [`COMPRESS_ABOVE_BYTES`] is compressed. That many bytes are produced before the response begins, to determine
/// whether the body is longer; the length of a shorter body is known.
///
/// # Errors
/// One of these first chunks failed; the request can still get an error response.
pub(crate) fn encode(
    mut source: Box<dyn ChunkSource>,
    gzip_accepted: bool,
) -> Result<Encoded, ChunkError> {
    let mut start = Vec::new();
    let mut size = 0;
    while size <= COMPRESS_ABOVE_BYTES {
        let Some(chunk) = source.next_chunk() else {
            return Ok(Encoded {
                body: Body::from(join(start, size)),
                gzip: false,
            });
        };
        let chunk = chunk?;
        size += chunk.len();
        start.push(chunk);
    }
    let compressor = gzip_accepted.then(new_compressor);
    let body = ChunkBody {
        start: start.into_iter(),
        source,
        compressor,
    };
    Ok(Encoded {
        gzip: body.compressor.is_some(),
        body: Body::new(body),
    })
}

fn join(mut chunks: Vec<Bytes>, size: usize) -> Bytes {
    if chunks.len() == 1 {
        return chunks.remove(0);
    }
    let mut all = BytesMut::with_capacity(size);
    for chunk in chunks {
        all.extend_from_slice(&chunk);
    }
    all.freeze()
}

/// Returns a compressor into memory, at the level that costs little more than a copy.
fn new_compressor() -> GzEncoder<Vec<u8>> {
    GzEncoder::new(Vec::new(), Compression::fast())
}

/// Compresses `bytes` into one complete gzip member whose data can be read before its end.
///
/// The sync flush before the end closes the deflate block that holds the data and aligns it to a byte. Go's
/// `compress/flate` returns the data of a block when the block ends, and that of the final block only
/// together with its end-of-stream, which its `gzip.Reader` checks by reading the header of the
/// next member: without the flush a Go client sees the last events of a write only after the next write.
/// kube-apiserver does the same (`Flush`, then `Close`, for each write of a watch).
///
/// # Errors
/// The compressor fails.
pub(crate) fn gzip_member(bytes: &[u8]) -> Result<Bytes, std::io::Error> {
    let mut compressor = new_compressor();
    compressor.write_all(bytes)?;
    compressor.flush()?;
    compressor.finish().map(Bytes::from)
}

/// A body that produces its chunks when the connection can send them.
struct ChunkBody {
    /// The chunks that are already produced.
    start: std::vec::IntoIter<Bytes>,
    source: Box<dyn ChunkSource>,
    compressor: Option<GzEncoder<Vec<u8>>>,
}

impl ChunkBody {
    fn plain_chunk(&mut self) -> Option<Result<Bytes, ChunkError>> {
        match self.start.next() {
            Some(chunk) => Some(Ok(chunk)),
            None => self.source.next_chunk(),
        }
    }

    fn compressed_chunk(
        &mut self,
        mut compressor: GzEncoder<Vec<u8>>,
    ) -> Option<Result<Bytes, ChunkError>> {
        loop {
            match self.plain_chunk() {
                None => return Some(compressor.finish().map(Bytes::from).map_err(Into::into)),
                Some(Err(error)) => return Some(Err(error)),
                Some(Ok(chunk)) => {
                    if let Err(error) = compressor.write_all(&chunk) {
                        return Some(Err(error.into()));
                    }
                }
            }
            if !compressor.get_ref().is_empty() {
                let out = std::mem::take(compressor.get_mut());
                self.compressor = Some(compressor);
                return Some(Ok(out.into()));
            }
        }
    }
}

impl http_body::Body for ChunkBody {
    type Data = Bytes;
    type Error = ChunkError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ChunkError>>> {
        let chunk = match self.compressor.take() {
            Some(compressor) => self.compressed_chunk(compressor),
            None => self.plain_chunk(),
        };
        if let Some(Err(error)) = &chunk {
            tracing::error!(%error, "a response body ended early");
        }
        Poll::Ready(chunk.map(|chunk| chunk.map(Frame::data)))
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::default()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use http_body_util::BodyExt as _;

    use super::*;

    /// Chunks `0,0,0,…` of `size` bytes, `left` of them.
    struct Zeros {
        left: usize,
        size: usize,
    }

    impl ChunkSource for Zeros {
        fn next_chunk(&mut self) -> Option<Result<Bytes, ChunkError>> {
            self.left = self.left.checked_sub(1)?;
            Some(Ok("0,".repeat(self.size / 2).into()))
        }
    }

    async fn collect(encoded: Encoded) -> Vec<u8> {
        encoded.body.collect().await.unwrap().to_bytes().to_vec()
    }

    #[tokio::test]
    async fn only_large_bodies_are_compressed() {
        let half = COMPRESS_ABOVE_BYTES / 2;
        let small = encode(
            Box::new(Zeros {
                left: 2,
                size: half,
            }),
            true,
        )
        .unwrap();
        assert!(!small.gzip);
        let exact = http_body::Body::size_hint(&small.body).exact();
        assert_eq!(exact, Some(COMPRESS_ABOVE_BYTES as u64));
        assert_eq!(collect(small).await.len(), COMPRESS_ABOVE_BYTES);

        let large = encode(
            Box::new(Zeros {
                left: 5,
                size: half,
            }),
            true,
        )
        .unwrap();
        assert!(large.gzip);
        let bytes = collect(large).await;
        let mut plain = Vec::new();
        flate2::read::GzDecoder::new(&bytes[..])
            .read_to_end(&mut plain)
            .unwrap();
        assert_eq!(plain, "0,".repeat(5 * half / 2).into_bytes());

        let unasked = encode(
            Box::new(Zeros {
                left: 5,
                size: half,
            }),
            false,
        )
        .unwrap();
        assert!(!unasked.gzip);
        assert_eq!(collect(unasked).await.len(), 5 * half);
    }

    #[tokio::test]
    async fn a_failing_source_aborts_the_body() {
        struct Fails(usize);
        impl ChunkSource for Fails {
            fn next_chunk(&mut self) -> Option<Result<Bytes, ChunkError>> {
                self.0 += 1;
                if self.0 < 4 {
                    return Some(Ok(vec![b'0'; COMPRESS_ABOVE_BYTES].into()));
                }
                Some(Err(std::io::Error::other("broken").into()))
            }
        }
        let encoded = encode(Box::new(Fails(0)), false).unwrap();
        assert!(encoded.body.collect().await.is_err());
        assert!(encode(Box::new(Fails(3)), false).is_err());
    }

    #[test]
    fn an_indented_whitespace_chunk_is_skipped() {
        let mut pretty = Pretty::new(SingleChunk::new("  ".into()));
        assert!(pretty.next_chunk().is_none());
    }
}
