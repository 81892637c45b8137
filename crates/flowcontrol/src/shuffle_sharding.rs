//! Shuffle sharding: each flow gets a few of the queues, its hand, so that two flows rarely have all queues in common
//! (KEP-1040).

/// The maximum number of queues of a hand.
pub(crate) const HAND_MAX: usize = 32;

/// The maximum number of bits of a hash that a hand may need: with more, some hands would be more frequent than others.
const HASH_BITS_MAX: f64 = 60.0;

/// Deals the hand of a flow from the queues.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Dealer {
    queues: usize,
    hand_size: usize,
}

/// The queues of a flow.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Hand {
    queues: [usize; HAND_MAX],
    size: usize,
}

impl Hand {
    pub(crate) fn queues(&self) -> &[usize] {
        &self.queues[..self.size]
    }
}

impl Dealer {
    /// Returns a dealer of hands of `hand_size` of `queues` queues; `None` if there are too few queues, or if the number
    /// of hands is too large for a hash.
    pub(crate) fn new(queues: usize, hand_size: usize) -> Option<Self> {
        let is_valid = (1..=HAND_MAX).contains(&hand_size)
            && hand_size <= queues
            && required_bits(queues, hand_size) <= HASH_BITS_MAX;
        is_valid.then_some(Self { queues, hand_size })
    }

    /// Returns the queues of the flow with this hash, without repetition.
    pub(crate) fn deal(&self, mut hash: u64) -> Hand {
        let mut hand = Hand {
            queues: [0; HAND_MAX],
            size: 0,
        };
        for dealt in 0..self.hand_size {
            let left = (self.queues - dealt) as u64;
            // The index among the queues that are not dealt yet.
            let mut queue = (hash % left) as usize;
            hash /= left;
            let mut sorted = hand.queues;
            let sorted = &mut sorted[..dealt];
            sorted.sort_unstable();
            for taken in sorted {
                if *taken <= queue {
                    queue += 1;
                }
            }
            hand.queues[dealt] = queue;
            hand.size = dealt + 1;
        }
        hand
    }
}

fn required_bits(queues: usize, hand_size: usize) -> f64 {
    (0..hand_size)
        .map(|dealt| ((queues - dealt) as f64).log2())
        .sum::<f64>()
        .ceil()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn each_hash_of_a_small_deck_deals_another_hand() {
        let dealer = Dealer::new(5, 3).unwrap();
        let mut hands = BTreeMap::new();
        for hash in 0..60 {
            let hand = dealer.deal(hash).queues().to_vec();
            let mut distinct = hand.clone();
            distinct.sort_unstable();
            distinct.dedup();
            assert_eq!(distinct.len(), 3, "{hand:?}");
            assert!(distinct.iter().all(|queue| *queue < 5));
            *hands.entry(hand).or_insert(0) += 1;
        }
        // 5 * 4 * 3 ordered hands.
        assert_eq!(hands.len(), 60);
    }

    #[test]
    fn hands_need_queues_and_bits() {
        assert!(Dealer::new(128, 6).is_some() && Dealer::new(1, 1).is_some());
        assert!(Dealer::new(3, 4).is_none() && Dealer::new(3, 0).is_none());
        assert!(Dealer::new(1 << 20, 3).is_some() && Dealer::new(1 << 20, 4).is_none());
    }
}
