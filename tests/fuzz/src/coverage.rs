//! Coverage: which edges of the instrumented crates an input has executed. `scripts/fuzz` instruments the crates of this
//! workspace by LLVM's pass SanitizerCoverage, which counts executions in sections of bytes and registers each section at
//! the start of the program. Without instrumentation there is no section, and no input is new.
#![allow(
    unsafe_code,
    reason = "the counters are memory that the instrumentation writes, and its callbacks have names in C"
)]

use parking_lot::Mutex;

/// The sections of counters: address and length.
static SECTIONS: Mutex<Vec<(usize, usize)>> = Mutex::new(Vec::new());

/// Registers the counters of one instrumented object file, which calls this before `main`.
#[cfg(feature = "coverage")]
#[unsafe(no_mangle)]
extern "C" fn __sanitizer_cov_8bit_counters_init(start: *mut u8, stop: *mut u8) {
    let section = (start as usize, stop as usize - start as usize);
    let mut sections = SECTIONS.lock();
    if section.1 > 0 && !sections.contains(&section) {
        sections.push(section);
    }
}

/// The edges that all inputs so far have executed, with the order of magnitude of the number of executions by one input.
#[derive(Debug)]
pub struct Coverage {
    sections: Vec<(usize, usize)>,
    /// By counter, one bit for each order of magnitude.
    seen: Vec<u8>,
    edges: usize,
}

impl Coverage {
    /// Returns the coverage of a program that has executed nothing.
    pub fn new() -> Self {
        let sections = SECTIONS.lock();
        Self {
            seen: vec![0; sections.iter().map(|(_, length)| length).sum()],
            sections: sections.clone(),
            edges: 0,
        }
    }

    /// Returns true if the program is instrumented.
    pub fn is_available(&self) -> bool {
        !self.sections.is_empty()
    }

    /// The number of edges that were executed.
    pub fn edges(&self) -> usize {
        self.edges
    }

    /// Sets the counters to zero, before an input is executed.
    pub fn reset(&self) {
        for &(address, length) in &self.sections {
            // Safety: the section exists as long as the program. The target runs on this thread; a helper thread that
            // counts meanwhile can only lose a count.
            unsafe { std::ptr::write_bytes(address as *mut u8, 0, length) };
        }
    }

    /// Adds what the last input has executed. Returns true if any of it is new.
    pub fn add(&mut self) -> bool {
        let mut is_new = false;
        let mut seen = self.seen.as_mut_slice();
        for &(address, length) in &self.sections {
            let (section, rest) = seen.split_at_mut(length);
            seen = rest;
            // Safety: as in `reset`.
            let counters = unsafe { std::slice::from_raw_parts(address as *const u8, length) };
            let words = counters.chunks(64).zip(section.chunks_mut(64));
            for (counters, seen) in words {
                // Nearly all counters are zero; this comparison is vectorized.
                if counters.iter().fold(0, |all, count| all | count) == 0 {
                    continue;
                }
                for (count, seen) in counters.iter().zip(seen) {
                    let bit = magnitude(*count);
                    if *seen & bit != bit {
                        self.edges += usize::from(*seen == 0);
                        *seen |= bit;
                        is_new = true;
                    }
                }
            }
        }
        is_new
    }
}

impl Default for Coverage {
    fn default() -> Self {
        Self::new()
    }
}

/// Returns the bit of an order of magnitude; no bit for zero.
const fn magnitude(count: u8) -> u8 {
    match count {
        0 => 0,
        1 => 1,
        2 => 2,
        3 => 4,
        4..=7 => 8,
        8..=15 => 16,
        16..=31 => 32,
        32..=127 => 64,
        128.. => 128,
    }
}
