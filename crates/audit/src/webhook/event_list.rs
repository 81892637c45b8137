//! Encodes an `EventList` from encoded events.

use bytes::Bytes;

use crate::event::TYPE;

const HEAD: &[u8] =
    br#"{"kind":"EventList","apiVersion":"audit.k8s.io/v1","metadata":{},"items":["#;
const END: &[u8] = b"]}";

/// Returns the list of `events`, which are lines of [`Event::line`](crate::Event). As upstream, items have no kind.
pub(super) fn encode(events: &[Bytes]) -> Bytes {
    let size: usize = events.iter().map(Bytes::len).sum();
    let mut list = Vec::with_capacity(HEAD.len() + size + END.len());
    list.extend_from_slice(HEAD);
    for (index, event) in events.iter().enumerate() {
        if index > 0 {
            list.push(b',');
        }
        let event = event.strip_suffix(b"\n").unwrap_or(event);
        match event.strip_prefix(TYPE) {
            Some(members) => {
                list.push(b'{');
                list.extend_from_slice(members);
            }
            None => list.extend_from_slice(event),
        }
    }
    list.extend_from_slice(END);
    list.into()
}
