//! Tests of the fair queues: random operations against a plain model, and what one flow costs another.

use std::collections::BTreeMap;
use std::time::Duration;

use fastrand::Rng;
use tokio::time::Instant;
use watchet_test_util::seeds::seeds;

use super::*;

/// The same rules with lists that are searched each time, and without the path for requests that need not wait.
struct Model {
    limit: usize,
    length_max: usize,
    dealer: Dealer,
    progress: i128,
    computed: Instant,
    last: usize,
    arrivals: usize,
    next_dispatch: BTreeMap<usize, i128>,
    /// Queue, number, seats, work, progress at the arrival; in the order of arrival.
    waiting: Vec<(usize, usize, usize, i128, i128)>,
    /// Number, queue, seats, begin.
    executing: Vec<(usize, usize, usize, Instant)>,
}

impl Model {
    fn active(&self) -> Vec<usize> {
        let waiting = self.waiting.iter().map(|request| request.0);
        let mut queues: Vec<_> = waiting.chain(self.executing.iter().map(|r| r.1)).collect();
        queues.sort_unstable();
        queues.dedup();
        queues
    }

    fn in_use(&self) -> usize {
        self.executing.iter().map(|request| request.2).sum()
    }

    fn advance(&mut self, now: Instant) {
        let elapsed = now.duration_since(self.computed).as_nanos() as i128;
        self.computed = now;
        let seats: usize = self.in_use() + self.waiting.iter().map(|r| r.2).sum::<usize>();
        let active = self.active().len() as i128;
        if active > 0 {
            self.progress += elapsed * seats.min(self.limit) as i128 / active;
        }
    }

    fn bound(&mut self, queue: usize) {
        if let Some(oldest) = self.waiting.iter().find(|request| request.0 == queue) {
            let next = self.next_dispatch.entry(queue).or_default();
            *next = (*next).max(oldest.4);
        }
    }

    fn arrive(&mut self, now: Instant, hash: u64, work: Work, number: usize) -> bool {
        self.advance(now);
        self.arrivals += 1;
        let hand = self.dealer.deal(hash);
        let hand = hand.queues();
        let turned = (0..hand.len()).map(|at| hand[(self.arrivals + at) % hand.len()]);
        let load = |queue: &usize| {
            let of_queue = self.waiting.iter().filter(|request| request.0 == *queue);
            of_queue.map(|request| request.3).sum::<i128>()
        };
        let queue = turned.min_by_key(load).unwrap();
        let length = self.waiting.iter().filter(|r| r.0 == queue).count();
        if self.in_use() >= self.limit && length >= self.length_max {
            return false;
        }
        if !self.active().contains(&queue) {
            self.next_dispatch.insert(queue, self.progress);
        }
        let request_work = work_of(work);
        self.waiting
            .push((queue, number, work.seats, request_work, self.progress));
        self.bound(queue);
        self.dispatch(now);
        true
    }

    fn dispatch(&mut self, now: Instant) {
        while self.in_use() < self.limit {
            let queues = self.active();
            let after = queues.iter().filter(|queue| **queue > self.last);
            let turned = after.chain(queues.iter().filter(|queue| **queue <= self.last));
            let oldest = turned.filter_map(|queue| {
                let request = self.waiting.iter().find(|request| request.0 == *queue)?;
                let of_queue = self
                    .executing
                    .iter()
                    .filter(|executing| executing.1 == *queue);
                let excess = of_queue.map(|(_, _, seats, begin)| {
                    let ran = now.duration_since(*begin).as_nanos() as i128;
                    (ran - EXPECTED.as_nanos() as i128) * *seats as i128
                });
                let excess = excess.sum::<i128>().max(0);
                Some((self.next_dispatch[queue] + excess + request.3, *request))
            });
            let Some((_, request)) = oldest.min_by_key(|(finish, _)| *finish) else {
                return;
            };
            let (queue, number, seats, work, _) = request;
            let fits = match seats > self.limit {
                true => self.executing.is_empty(),
                false => self.in_use() + seats <= self.limit,
            };
            if !fits {
                return;
            }
            self.last = queue;
            self.waiting.retain(|request| request.1 != number);
            self.executing.push((number, queue, seats, now));
            *self.next_dispatch.get_mut(&queue).unwrap() += work;
            self.bound(queue);
        }
    }

    fn finish(&mut self, now: Instant, number: usize) {
        self.advance(now);
        let at = self.executing.iter().position(|r| r.0 == number).unwrap();
        let (_, queue, seats, begin) = self.executing.remove(at);
        let ran = now.duration_since(begin).as_nanos() as i128;
        let excess = (ran - EXPECTED.as_nanos() as i128) * seats as i128;
        *self.next_dispatch.get_mut(&queue).unwrap() += excess;
        self.bound(queue);
        self.dispatch(now);
    }

    fn cancel(&mut self, now: Instant, number: usize) {
        self.advance(now);
        let queue = self.waiting.iter().find(|r| r.1 == number).unwrap().0;
        self.waiting.retain(|request| request.1 != number);
        self.bound(queue);
        self.dispatch(now);
    }
}

/// The fair queues, and the requests of their owner.
struct Tested {
    queues: FairQueues<usize>,
    executing: BTreeMap<usize, Executing>,
    waiting: BTreeMap<usize, Place>,
}

impl Tested {
    fn new(now: Instant, dealer: Dealer, length_max: usize, limit: usize) -> Self {
        let response = LimitResponse::Queue { dealer, length_max };
        let mut queues = FairQueues::new(now, response);
        assert!(queues.configure(now, response, limit).is_empty());
        Self {
            queues,
            executing: BTreeMap::new(),
            waiting: BTreeMap::new(),
        }
    }

    fn start(&mut self, dispatched: Vec<Dispatched<usize>>) {
        for Dispatched { waiter, executing } in dispatched {
            self.waiting.remove(&waiter).expect("it waited");
            self.executing.insert(waiter, executing);
        }
    }

    fn arrive(&mut self, now: Instant, hash: u64, work: Work, number: usize) -> bool {
        let (arrival, dispatched) = self.queues.arrive(now, hash, work, || number);
        match arrival {
            Arrival::Execute(executing) => {
                self.executing.insert(number, executing);
            }
            Arrival::Wait(place) => {
                self.waiting.insert(number, place);
            }
            Arrival::QueueFull | Arrival::LimitReached => return false,
        }
        self.start(dispatched);
        true
    }

    fn finish(&mut self, now: Instant, number: usize) {
        let executing = self.executing.remove(&number).expect("it runs");
        let dispatched = self.queues.finish(now, &executing);
        self.start(dispatched);
    }

    fn cancel(&mut self, now: Instant, number: usize) {
        let place = self.waiting.remove(&number).expect("it waits");
        let (waiter, _, dispatched) = self.queues.cancel(now, place).expect("it waits");
        assert_eq!(waiter, number);
        self.start(dispatched);
    }
}

fn any_key<V>(rng: &mut Rng, map: &BTreeMap<usize, V>) -> Option<usize> {
    let at = rng.usize(..map.len().max(1));
    map.keys().nth(at).copied()
}

#[tokio::test(start_paused = true)]
async fn random_operations_have_the_effect_of_the_plain_model() {
    for seed in seeds(60) {
        let mut rng = Rng::with_seed(seed);
        let mut now = Instant::now();
        let dealer = Dealer::new(rng.usize(2..12), rng.usize(1..3)).unwrap();
        let (length_max, limit) = (rng.usize(0..6), rng.usize(0..12));
        let mut tested = Tested::new(now, dealer, length_max, limit);
        let mut model = Model {
            limit,
            length_max,
            dealer,
            progress: 0,
            computed: now,
            last: 0,
            arrivals: 0,
            next_dispatch: BTreeMap::new(),
            waiting: Vec::new(),
            executing: Vec::new(),
        };
        for number in 0..600 {
            now += Duration::from_micros(rng.u64(0..5_000));
            match rng.u32(0..20) {
                0 => {
                    model.advance(now);
                    model.limit = rng.usize(0..12);
                    model.dispatch(now);
                    let response = tested.queues.response;
                    let dispatched = tested.queues.configure(now, response, model.limit);
                    tested.start(dispatched);
                }
                1 | 2 => {
                    if let Some(waiting) = any_key(&mut rng, &tested.waiting) {
                        tested.cancel(now, waiting);
                        model.cancel(now, waiting);
                    }
                }
                3..10 => {
                    if let Some(executing) = any_key(&mut rng, &tested.executing) {
                        tested.finish(now, executing);
                        model.finish(now, executing);
                    }
                }
                _ => {
                    let work = Work {
                        seats: rng.usize(1..5),
                        subsequent: Duration::from_micros(rng.u64(0..3_000)),
                    };
                    let hash = rng.u64(0..20);
                    let is_accepted = tested.arrive(now, hash, work, number);
                    assert_eq!(is_accepted, model.arrive(now, hash, work, number));
                }
            }
            let mut executing: Vec<_> = model.executing.iter().map(|r| r.0).collect();
            executing.sort_unstable();
            let actual: Vec<_> = tested.executing.keys().copied().collect();
            assert_eq!(actual, executing);
            let waiting: Vec<_> = model.waiting.iter().map(|request| request.1).collect();
            let actual: Vec<_> = tested.waiting.keys().copied().collect();
            assert_eq!(actual, waiting);
            let sizes = Sizes {
                active_queues: model.active().len(),
                requests_waiting: waiting.len(),
                requests_executing: executing.len(),
                seats_in_use: model.in_use(),
                limit: model.limit,
            };
            assert_eq!(tested.queues.sizes(), sizes);
        }
    }
}

/// Two hashes whose hands have no queue in common.
fn disjoint(dealer: Dealer) -> (u64, u64) {
    let hand = |hash| dealer.deal(hash).queues().to_vec();
    let first = hand(0);
    // Small numbers differ only in the first queue.
    let mut hashes = (1..1_000_u64).map(|number| number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let other = hashes.find(|hash| hand(*hash).iter().all(|queue| !first.contains(queue)));
    (0, other.expect("a hand without common queues"))
}

#[tokio::test(start_paused = true)]
async fn a_flow_with_1000_waiting_requests_delays_another_by_a_turn_of_its_hand() {
    let dealer = Dealer::new(64, 6).unwrap();
    let (greedy, modest) = disjoint(dealer);
    let mut now = Instant::now();
    let mut tested = Tested::new(now, dealer, 1_000, 10);
    for number in 0..1_010 {
        assert!(tested.arrive(now, greedy, Work::SINGLE, number));
    }
    assert_eq!((tested.executing.len(), tested.waiting.len()), (10, 1_000));
    let mut number = 10_000;
    for _ in 0..50 {
        number += 1;
        assert!(tested.arrive(now, modest, Work::SINGLE, number));
        // Each of the six queues of the other flow may have a turn, and a seat must be free.
        let mut finished = 0;
        while !tested.executing.contains_key(&number) {
            now += Duration::from_millis(10);
            let running = *tested.executing.keys().next().expect("seats are in use");
            tested.finish(now, running);
            finished += 1;
            assert!(finished <= 7, "the request waits for {finished} others");
        }
        now += Duration::from_millis(10);
        tested.finish(now, number);
    }
}

#[tokio::test(start_paused = true)]
async fn busy_flows_get_equal_time() {
    for seed in seeds(10) {
        let mut rng = Rng::with_seed(seed);
        let dealer = Dealer::new(8, 1).unwrap();
        let (first, second) = disjoint(dealer);
        let mut now = Instant::now();
        let mut tested = Tested::new(now, dealer, 1_000, 4);
        // The requests of the first flow run five times as long.
        let lengths = [first, second].map(|flow| match flow == first {
            true => Duration::from_millis(50),
            false => Duration::from_millis(10),
        });
        let mut used = [Duration::ZERO; 2];
        let mut ends = BTreeMap::new();
        for number in 0..2_000 {
            let flow = [first, second][number % 2];
            assert!(tested.arrive(now, flow, Work::SINGLE, number));
        }
        // Until the shorter requests are used up.
        while used[1] < Duration::from_secs(9) {
            for (number, executing) in &tested.executing {
                let jitter = Duration::from_micros(rng.u64(0..1_000));
                let end = executing.started + lengths[number % 2] + jitter;
                ends.entry(*number).or_insert(end);
            }
            let (number, end) = ends.iter().min_by_key(|(_, end)| **end).unwrap();
            let number = *number;
            now = *end;
            ends.remove(&number);
            used[number % 2] += lengths[number % 2];
            tested.finish(now, number);
        }
        let ratio = used[0].as_secs_f64() / used[1].as_secs_f64();
        assert!((0.9..1.1).contains(&ratio), "{used:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn levels_without_queues_reject_and_unlimited_ones_do_not() {
    let now = Instant::now();
    let mut queues: FairQueues<()> = FairQueues::new(now, LimitResponse::Reject);
    assert!(queues.configure(now, LimitResponse::Reject, 2).is_empty());
    let arrive = |queues: &mut FairQueues<()>, work| queues.arrive(now, 0, work, || ()).0;
    let first = arrive(&mut queues, Work::SINGLE);
    assert!(matches!(first, Arrival::Execute(_)));
    let wide = Work::of_list(1_000);
    assert_eq!(arrive(&mut queues, wide), Arrival::LimitReached);
    assert!(matches!(
        arrive(&mut queues, Work::SINGLE),
        Arrival::Execute(_)
    ));
    assert_eq!(arrive(&mut queues, Work::SINGLE), Arrival::LimitReached);
    assert!(
        queues
            .configure(now, LimitResponse::Unlimited, 2)
            .is_empty()
    );
    assert!(matches!(arrive(&mut queues, wide), Arrival::Execute(_)));
    assert_eq!(queues.sizes().seats_in_use, 12);
}
