//! Minimization: removes parts of an input as long as it fails in the same way.

use std::time::Duration;

use tokio::time::Instant;

use crate::mutate::without_values;

/// Returns the smallest input that was found within `time` for which `fails` is true, as it is for `input`.
pub fn minimize(input: &[u8], time: Duration, mut fails: impl FnMut(&[u8]) -> bool) -> Vec<u8> {
    let deadline = Instant::now() + time;
    let mut smallest = input.to_vec();
    loop {
        let before = smallest.len();
        remove_values(&mut smallest, deadline, &mut fails);
        remove_bytes(&mut smallest, deadline, &mut fails);
        if smallest.len() == before || Instant::now() >= deadline {
            return smallest;
        }
    }
}

/// Removes values of JSON, the largest first.
fn remove_values(smallest: &mut Vec<u8>, deadline: Instant, fails: &mut impl FnMut(&[u8]) -> bool) {
    'again: loop {
        let mut candidates = without_values(smallest);
        candidates.retain(|candidate| candidate.len() < smallest.len());
        candidates.sort_by_key(Vec::len);
        for candidate in candidates {
            if Instant::now() >= deadline {
                return;
            }
            if fails(&candidate) {
                *smallest = candidate;
                continue 'again;
            }
        }
        return;
    }
}

/// Removes ranges of bytes, first halves, then smaller ones.
fn remove_bytes(smallest: &mut Vec<u8>, deadline: Instant, fails: &mut impl FnMut(&[u8]) -> bool) {
    let mut length = smallest.len().div_ceil(2);
    while length > 0 {
        let mut at = 0;
        while at < smallest.len() {
            if Instant::now() >= deadline {
                return;
            }
            let end = (at + length).min(smallest.len());
            let candidate = [&smallest[..at], &smallest[end..]].concat();
            match fails(&candidate) {
                true => *smallest = candidate,
                false => at += length,
            }
        }
        length /= 2;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_fails_remains() {
        let input = b"some text {\"a\": [1, 2, \"bad\"]} and more";
        let has = |input: &[u8]| input.windows(3).any(|window| window == b"bad");
        assert_eq!(minimize(input, Duration::from_secs(60), has), b"bad");
    }

    #[test]
    fn values_are_removed_from_json() {
        let input = b"{\"kind\":\"Pod\",\"metadata\":{\"name\":\"a\",\"labels\":{\"x\":\"bad\",\"y\":\"z\"}}}";
        let fails = |input: &[u8]| {
            let value: serde_json::Value = serde_json::from_slice(input).unwrap_or_default();
            value["metadata"]["labels"]["x"].is_string()
        };
        let smallest = minimize(input, Duration::from_secs(60), fails);
        assert_eq!(
            String::from_utf8_lossy(&smallest),
            "{\"metadata\":{\"labels\":{\"x\":\"\"}}}"
        );
    }
}
