//! A perfect hash of the member names of a message: a look-up computes one hash and compares one name.

/// Maps names to slots.
#[derive(Debug)]
pub(super) struct Names {
    /// A factor for which no two names have the same hash.
    factor: u64,
    /// How far a product is shifted to give a position in `table`.
    shift: u32,
    table: Table,
}

/// Each position is empty or holds a name and its slot.
type Table = Box<[Option<(Box<str>, usize)>]>;

/// How many factors are tried for each size of the table.
const TRIES: usize = 1_000;

impl Names {
    /// Builds the map.
    ///
    /// # Panics
    /// Panics if no factor separates the names: two of them have the same length, first and last eight bytes.
    pub(super) fn new(names: Vec<(String, usize)>) -> Self {
        // Any odd number is a start; the sequence is Knuth's generator of 64 bits.
        let mut factor = 0x9e37_79b9_7f4a_7c15_u64;
        for bits in (names.len() * 2).next_power_of_two().ilog2().max(1)..16 {
            for _ in 0..TRIES {
                factor = factor
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1)
                    | 1;
                if let Some(table) = place(&names, factor, u64::BITS - bits, 1 << bits) {
                    return Self {
                        factor,
                        shift: u64::BITS - bits,
                        table,
                    };
                }
            }
        }
        panic!("no perfect hash of {names:?}");
    }

    /// Returns the slot of a name.
    pub(super) fn find(&self, name: &str) -> Option<usize> {
        let at = position(name.as_bytes(), self.factor, self.shift);
        let (found, slot) = self.table[at].as_ref()?;
        (**found == *name).then_some(*slot)
    }
}

fn place(names: &[(String, usize)], factor: u64, shift: u32, size: usize) -> Option<Table> {
    let mut table = vec![None; size];
    for (name, slot) in names {
        let cell = &mut table[position(name.as_bytes(), factor, shift)];
        if cell.is_some() {
            return None;
        }
        *cell = Some((name.as_str().into(), *slot));
    }
    Some(table.into())
}

fn position(name: &[u8], factor: u64, shift: u32) -> usize {
    let head = match name.first_chunk() {
        Some(head) => u64::from_le_bytes(*head),
        None => name
            .iter()
            .fold(0, |word, byte| word << 8 | u64::from(*byte)),
    };
    let tail = name
        .last_chunk()
        .map_or(0, |tail| u64::from_le_bytes(*tail));
    let mixed = head ^ tail.rotate_left(29) ^ (name.len() as u64).rotate_left(51);
    (mixed.wrapping_mul(factor) >> shift) as usize
}
