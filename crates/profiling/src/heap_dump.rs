//! Parses the text that jemalloc writes for `prof.dump` (format `heap_v2`).
//!
//! ```text
//! heap_v2/524288
//!   t*: 3: 1052672 [0: 0]
//! @ 0x55e0d14 0x55e0c3f
//!   t*: 2: 1048576 [0: 0]
//!   t7: 2: 1048576 [0: 0]
//!
//! MAPPED_LIBRARIES:
//! ```

/// The sampled allocations of a stack that were not freed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SampledStack {
    /// Return addresses, the innermost first.
    pub addresses: Vec<usize>,
    /// The number of allocations.
    pub objects: u64,
    /// The sum of their sizes in bytes.
    pub bytes: u64,
}

/// Parses a dump.
///
/// # Errors
/// The text is not in the format `heap_v2`; the error contains the first invalid line.
pub(crate) fn parse(text: &str) -> Result<Vec<SampledStack>, String> {
    if !text.starts_with("heap_v2/") {
        let first = text.lines().next().unwrap_or_default();
        return Err(format!("unknown format of jemalloc's dump: {first:?}"));
    }
    let mut stacks = Vec::new();
    let mut addresses: Option<Vec<usize>> = None;
    for line in text.lines() {
        let invalid = || format!("unknown line in jemalloc's dump: {line:?}");
        if line.starts_with("MAPPED_LIBRARIES") {
            break;
        }
        if let Some(stack) = line.strip_prefix('@') {
            let parsed = stack.split_whitespace().map(address);
            let parsed: Option<Vec<usize>> = parsed.collect();
            addresses = Some(parsed.ok_or_else(invalid)?);
        } else if let Some(counts) = line.trim_start().strip_prefix("t*:")
            && let Some(addresses) = addresses.take()
        {
            let (objects, bytes) = objects_and_bytes(counts).ok_or_else(invalid)?;
            stacks.push(SampledStack {
                addresses,
                objects,
                bytes,
            });
        }
    }
    stacks.retain(|stack| stack.objects > 0);
    Ok(stacks)
}

fn address(text: &str) -> Option<usize> {
    usize::from_str_radix(text.strip_prefix("0x")?, 16).ok()
}

/// Parses ` 2: 1048576 [0: 0]`.
fn objects_and_bytes(counts: &str) -> Option<(u64, u64)> {
    let (objects, rest) = counts.split_once(':')?;
    let bytes = rest.split_whitespace().next()?;
    Some((objects.trim().parse().ok()?, bytes.parse().ok()?))
}

/// Estimates the number and the bytes of all allocations of `stack`, sampled or not, with the formula of `jeprof`. `sample_interval` is
/// the mean number of allocated bytes between two samples, so a small allocation is sampled less often than a large one.
#[allow(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    reason = "it is an estimate"
)]
pub(crate) fn estimate(stack: &SampledStack, sample_interval: u32) -> [i64; 2] {
    let (objects, bytes) = (stack.objects as f64, stack.bytes as f64);
    let mean = bytes / objects;
    let probability = 1.0 - (-mean / f64::from(sample_interval)).exp();
    [(objects / probability) as i64, (bytes / probability) as i64]
}

#[cfg(test)]
mod tests {
    use super::*;

    const DUMP: &str = "heap_v2/524288\n  t*: 3: 1052672 [0: 0]\n  t7: 3: 1052672 [0: 0]\n\
        @ 0x10 0x2f\n  t*: 2: 1048576 [0: 0]\n  t7: 2: 1048576 [0: 0]\n\
        @ 0x30\n  t*: 0: 0 [0: 0]\n  t8: 0: 0 [0: 0]\n\
        @ 0x30 0x2f\n  t*: 1: 4096 [0: 0]\n  t8: 1: 4096 [0: 0]\n\n\
        MAPPED_LIBRARIES:\n00400000-00500000 r-xp 00000000 00:00 0 /watchet\n";

    #[test]
    fn stacks_that_still_have_allocations_are_read() {
        let stack = |addresses: &[usize], objects, bytes| SampledStack {
            addresses: addresses.to_vec(),
            objects,
            bytes,
        };
        let expected = vec![
            stack(&[0x10, 0x2f], 2, 1_048_576),
            stack(&[0x30, 0x2f], 1, 4096),
        ];
        assert_eq!(parse(DUMP), Ok(expected));
    }

    #[test]
    fn another_format_is_an_error_with_the_line() {
        let error = parse("heap profile: 1: 2 [3: 4]\n").unwrap_err();
        assert!(error.contains("heap profile: 1"), "{error}");
        let error = parse("heap_v2/524288\n@ 0x10 zero\n").unwrap_err();
        assert!(error.contains("@ 0x10 zero"), "{error}");
        let error = parse("heap_v2/524288\n@ 0x10\n  t*: two\n").unwrap_err();
        assert!(error.contains("t*: two"), "{error}");
    }

    /// The probability that an allocation of 512 KiB is sampled is 63 %; for 4 KiB it is 0.8 %.
    #[test]
    fn rarely_sampled_allocations_count_more() {
        let stack = |objects, bytes| SampledStack {
            addresses: Vec::new(),
            objects,
            bytes,
        };
        assert_eq!(estimate(&stack(63, 63 << 19), 1 << 19)[0], 99);
        assert_eq!(estimate(&stack(1, 4096), 1 << 19), [128, 526_338]);
    }
}
