//! The bitmap of node ports that a kube-apiserver maintains in `/ranges/servicenodeports`: a `RangeAllocation` with one bit
//! for each port of the range. If it exists, this server sets and clears the bits of its own ports too, so that no port is
//! allocated twice. Without a kube-apiserver there is none, and this server creates none.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use watchet_api::StorageKey;
use watchet_registry::stored_form::encode;
use watchet_registry::{ApiError, Current};
use watchet_storage::{Expect, Outcome, Put, Storage};

const KEY: &str = "/ranges/servicenodeports";

/// The number of attempts of one change; each other attempt means that another server has changed the bitmap.
const TRIES_MAX: usize = 100;

/// A bitmap, as it is stored.
struct Bitmap {
    object: Value,
    /// The first port of the range, and the number of ports.
    first: u16,
    count: u16,
    /// A number in big-endian bytes, without leading zeros; bit 0 is the first port.
    bits: Vec<u8>,
}

impl Bitmap {
    /// Reads a `RangeAllocation`; `None` if it is of another range than of ports.
    fn read(object: Value) -> Option<Self> {
        let (first, last) = object["range"].as_str()?.split_once('-')?;
        let (first, last): (u16, u16) = (first.parse().ok()?, last.parse().ok()?);
        let bits = STANDARD.decode(object["data"].as_str().unwrap_or_default());
        Some(Self {
            first,
            count: last.checked_sub(first)?.saturating_add(1),
            bits: bits.ok()?,
            object,
        })
    }

    /// Returns the index of the byte of `port` from the end, and its bit; `None` if it is outside of the range.
    fn position(&self, port: u16) -> Option<(usize, u8)> {
        let offset = port.checked_sub(self.first)?;
        let bit = 1 << (offset % 8);
        (offset < self.count).then_some((usize::from(offset / 8), bit))
    }

    fn is_set(&self, port: u16) -> bool {
        let Some((from_end, bit)) = self.position(port) else {
            return false;
        };
        let byte = self.bits.iter().rev().nth(from_end);
        byte.is_some_and(|byte| byte & bit != 0)
    }

    /// Sets or clears the bit of `port`; returns false if that changes nothing.
    fn change(&mut self, port: u16, set: bool) -> bool {
        let Some((from_end, bit)) = self.position(port) else {
            return false;
        };
        if self.is_set(port) == set {
            return false;
        }
        let missing = (from_end + 1).saturating_sub(self.bits.len());
        self.bits.splice(0..0, std::iter::repeat_n(0, missing));
        let at = self.bits.len() - 1 - from_end;
        self.bits[at] ^= bit;
        let zeros = self.bits.iter().take_while(|byte| **byte == 0).count();
        self.bits.drain(..zeros);
        self.object["data"] = STANDARD.encode(&self.bits).into();
        true
    }
}

/// Returns true if a kube-apiserver has allocated `port`.
pub(super) async fn is_allocated(storage: &dyn Storage, port: u16) -> Result<bool, ApiError> {
    let (stored, _) = storage.get(&key()).await?;
    let object = stored.as_ref().map(Current::stored).transpose()?;
    let bitmap = object.and_then(|current| Bitmap::read(current.value));
    Ok(bitmap.is_some_and(|bitmap| bitmap.is_set(port)))
}

/// Sets the bit of `port`. Returns false if it is set.
pub(super) async fn allocate(storage: &dyn Storage, port: u16) -> Result<bool, ApiError> {
    change(storage, port, true).await
}

/// Clears the bit of `port`.
pub(super) async fn release(storage: &dyn Storage, port: u16) -> Result<(), ApiError> {
    change(storage, port, false).await.map(|_was_set| ())
}

/// Sets or clears the bit of `port`; returns false if it was so before.
async fn change(storage: &dyn Storage, port: u16, set: bool) -> Result<bool, ApiError> {
    for _ in 0..TRIES_MAX {
        let (Some(stored), _) = storage.get(&key()).await? else {
            return Ok(true);
        };
        let Some(mut bitmap) = Bitmap::read(Current::stored(&stored)?.value) else {
            return Ok(true);
        };
        if bitmap.position(port).is_none() {
            return Ok(true);
        }
        if !bitmap.change(port, set) {
            return Ok(false);
        }
        let put = Put {
            key: key(),
            value: encode(&bitmap.object),
            expect: Expect::At(stored.mod_revision),
            ttl: None,
        };
        if let Outcome::Done(_) = storage.put(put).await? {
            return Ok(true);
        }
    }
    Err(ApiError::Timeout(format!(
        "the bitmap of node ports in {KEY} was changed by others {TRIES_MAX} times: try again"
    )))
}

fn key() -> StorageKey {
    StorageKey::new(KEY).expect("the key is a path")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;
    use watchet_storage::memory::Memory;

    use super::*;

    /// A value of a kube-apiserver that has allocated 30053 and 30080.
    const STORED: &[u8] = b"\x01\0\0\0\x20\0\0\0\0\0\0";

    fn allocation(bits: &[u8]) -> Value {
        json!({
            "apiVersion": "v1", "kind": "RangeAllocation", "metadata": {"annotations": {"kept": "x"}},
            "range": "30000-32767", "data": STANDARD.encode(bits),
        })
    }

    #[test]
    fn bits_are_those_of_kube_apiserver() {
        let mut bitmap = Bitmap::read(allocation(STORED)).unwrap();
        let ports = (29_000..=33_000).filter(|port| bitmap.is_set(*port));
        assert_eq!(ports.collect::<Vec<_>>(), [30_053, 30_080]);
        assert!(!bitmap.change(30_080, true), "it is set");
        assert!(!bitmap.change(29_999, true), "it is outside of the range");
        assert!(bitmap.change(30_080, false));
        assert_eq!(bitmap.bits, b"\x20\0\0\0\0\0\0", "no leading zeros");
        assert!(bitmap.change(32_767, true) && bitmap.is_set(32_767));
        assert_eq!(bitmap.bits.len(), 2_768 / 8);
        assert!(bitmap.change(32_767, false) && bitmap.change(30_053, false));
        assert_eq!(bitmap.object, allocation(b""));
        assert!(bitmap.change(30_000, true));
        assert_eq!(bitmap.object, allocation(b"\x01"));
    }

    #[tokio::test]
    async fn bitmap_is_maintained_if_there_is_one() {
        let storage = Memory::new(Duration::from_secs(300)).unwrap();
        assert!(allocate(&*storage, 30_080).await.unwrap());
        assert!(
            storage.get(&key()).await.unwrap().0.is_none(),
            "no kube-apiserver"
        );
        let put = Put {
            key: key(),
            value: encode(&allocation(STORED)),
            expect: Expect::Absent,
            ttl: None,
        };
        storage.put(put).await.unwrap();
        assert!(is_allocated(&*storage, 30_080).await.unwrap());
        assert!(!allocate(&*storage, 30_080).await.unwrap());
        assert!(!is_allocated(&*storage, 30_081).await.unwrap());
        assert!(allocate(&*storage, 30_081).await.unwrap());
        assert!(is_allocated(&*storage, 30_081).await.unwrap());
        release(&*storage, 30_081).await.unwrap();
        let (stored, _) = storage.get(&key()).await.unwrap();
        let stored = Current::stored(&stored.unwrap()).unwrap();
        assert_eq!(stored.value, allocation(STORED));
    }
}
