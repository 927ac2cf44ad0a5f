use lowtide_model::scheme::{builtin, file};
use proptest::prelude::*;

use super::*;
use crate::machine::{BlockDone, Done};

/// A process of one mapping, of which some blocks are used between any two samples.
struct Process {
    block: u64,
    resident: Vec<u32>,
    hot: Vec<bool>,
    faults: u64,
}

const PAGES: u32 = 32;
const BASE: u64 = 0x7000_0000_0000;

impl Process {
    fn new(hot: Vec<bool>) -> Self {
        Self { block: 128 << 10, resident: vec![PAGES; hot.len()], hot, faults: 0 }
    }

    fn index(&self, at: u64) -> usize {
        usize::try_from((at - BASE) / self.block).unwrap()
    }

    fn bytes(&self, of: impl Fn(usize) -> bool) -> f64 {
        (0..self.hot.len()).filter(|at| of(*at)).map(|at| f64::from(self.resident[at]) * 4096.0).sum()
    }

    /// The mapping as it is observed: how much of it is idle, not where.
    fn candidate(&self, age_s: f64) -> Candidate {
        let (resident, idle) = (self.bytes(|_| true), self.bytes(|at| !self.hot[at]));
        let access_rate = if resident > 0.0 { 1.0 - idle / resident } else { 0.0 };
        Candidate {
            pid: 1,
            start: BASE,
            end: BASE + self.hot.len() as u64 * self.block,
            access_rate,
            age_s,
            resident,
            idle,
            huge: 0.0,
        }
    }

    fn obey(&mut self, orders: &[Order]) -> Vec<Done> {
        let mut all = Vec::new();
        for order in orders {
            let mut blocks = Vec::new();
            for (start, _) in &order.ranges {
                let at = self.index(*start);
                let evicted = std::mem::take(&mut self.resident[at]);
                blocks.push(BlockDone { pid: order.pid, start: *start, evicted, left: 0 });
            }
            all.push(Done { scheme: order.scheme, cpu_s: 1e-3, blocks, skipped: Vec::new() });
        }
        all
    }

    fn live(&mut self) {
        for at in 0..self.hot.len() {
            if self.hot[at] && self.resident[at] < PAGES {
                self.faults += u64::from(PAGES - self.resident[at]);
                self.resident[at] = PAGES;
            }
        }
    }

    fn back(&self, operator: &Operator) -> Vec<(u32, u64, u32)> {
        operator.watched().into_iter().map(|(pid, (at, _))| (pid, at, self.resident[self.index(at)])).collect()
    }
}

/// Lets an operator work on a process for so many seconds; the orders' bytes of each second.
fn run(
    process: &mut Process,
    operator: &mut Operator,
    seconds: u32,
    change: impl Fn(&mut RegionObservation),
) -> Vec<u64> {
    let mut done = Vec::new();
    let mut bytes = Vec::new();
    for second in 1..=seconds {
        process.live();
        let back = process.back(operator);
        let candidates = vec![process.candidate(3.0)];
        let mut frame =
            RegionObservation { now_s: f64::from(second), candidates, back, done, ..RegionObservation::default() };
        change(&mut frame);
        let orders = operator.orders(&frame);
        bytes.push(orders.iter().flat_map(|order| &order.ranges).map(|(start, end)| end - start).sum());
        done = process.obey(&orders);
    }
    process.live();
    bytes
}

fn prcl() -> Vec<Scheme> {
    builtin::named("prcl-tuned").unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn what_is_idle_goes_and_what_is_used_hardly_moves(
        hot in proptest::collection::vec(proptest::bool::weighted(0.2), 64..1000),
        seed in any::<u64>(),
    ) {
        let mut process = Process::new(hot);
        let mut operator = Operator::new(&prcl(), SchemeLimits::default(), seed);
        run(&mut process, &mut operator, 200, |_| {});
        let (cold, hot) = (process.bytes(|at| !process.hot[at]), process.bytes(|at| process.hot[at]));
        prop_assert!(cold <= WORTH / (1.0 - WORTH) * hot + 512.0 * 1024.0, "{cold} of idle memory is left, {hot} in use");
        let blocks = process.hot.iter().filter(|hot| **hot).count() as u64;
        prop_assert!(process.faults <= 6 * blocks * u64::from(PAGES), "{} faults of {blocks} blocks", process.faults);
    }

    #[test]
    fn quotas_hold_in_every_interval(hot in proptest::collection::vec(any::<bool>(), 64..1000), mib in 1u64..20) {
        let text = format!("[[scheme]]\naction='pageout'\nage={{min='2s'}}\nquota={{size='{mib}M',every='3s'}}");
        let mut process = Process::new(hot);
        let mut operator = Operator::new(&file::parse(&text).unwrap(), SchemeLimits::default(), 1);
        let bytes = run(&mut process, &mut operator, 30, |_| {});
        // Intervals begin with the second at which they are checked.
        for interval in bytes.chunks(3) {
            prop_assert!(interval.iter().sum::<u64>() <= mib << 20, "{interval:?}");
        }
    }

    #[test]
    fn nothing_is_taken_under_pressure_or_without_swap(pressed: bool, seed in any::<u64>()) {
        let mut process = Process::new(vec![false; 500]);
        let mut operator = Operator::new(&prcl(), SchemeLimits::default(), seed);
        let bytes = run(&mut process, &mut operator, 20, |frame| {
            if pressed { frame.pressure = Some(0.2) } else { frame.swap_free = Some(1 << 20) }
        });
        prop_assert_eq!(bytes.iter().sum::<u64>(), 0);
    }
}

#[test]
fn a_process_that_uses_all_of_its_memory_is_left_alone() {
    let mut process = Process::new(vec![true; 1000]);
    let mut operator = Operator::new(&prcl(), SchemeLimits::default(), 1);
    run(&mut process, &mut operator, 60, |_| {});
    assert_eq!(process.faults, 0);
}

/// The monitor says idle, and all of it comes back: a scheme that would page out everything.
#[test]
fn a_mistaken_monitor_costs_little() {
    let mut process = Process::new(vec![true; 4000]);
    let mut operator = Operator::new(&prcl(), SchemeLimits::default(), 1);
    let lie = |frame: &mut RegionObservation| {
        for candidate in &mut frame.candidates {
            (candidate.idle, candidate.access_rate) = (candidate.resident, 0.0);
        }
    };
    run(&mut process, &mut operator, 60, lie);
    let lost_s = process.faults as f64 * SchemeLimits::default().refault_s;
    assert!(lost_s < 0.03 * 60.0, "{lost_s} s lost in 60");
}

#[test]
fn watermarks_begin_below_mid_and_end_above_high() {
    let text = "[[scheme]]\naction='pageout'\nwatermarks={every='1s',high='50%',mid='30%',low='5%'}";
    let mut operator = Operator::new(&file::parse(text).unwrap(), SchemeLimits::default(), 1);
    let mut active = |now_s: f64, free: f64| {
        let process = Process::new(vec![false; 4000]);
        let frame = RegionObservation {
            now_s,
            candidates: vec![process.candidate(3.0)],
            free: Some(free),
            ..RegionObservation::default()
        };
        !operator.orders(&frame).is_empty()
    };
    assert_eq!(
        [active(1.0, 0.4), active(2.0, 0.2), active(3.0, 0.4), active(4.0, 0.6), active(5.0, 0.4)],
        [false, true, true, false, false]
    );
    assert!(!active(6.0, 0.04) && active(7.0, 0.1));
}

#[test]
fn colder_and_older_regions_go_first() {
    let text = "[[scheme]]\naction='pageout'\naccess={max='10%'}\nquota={size='1M'}";
    let mut operator = Operator::new(&file::parse(text).unwrap(), SchemeLimits::default(), 1);
    let region = |at: u64, access_rate: f64, age_s: f64| Candidate {
        pid: 1,
        start: at << 30,
        end: (at << 30) + (1 << 20),
        access_rate,
        age_s,
        resident: 1048576.0,
        idle: 1048576.0,
        huge: 0.0,
    };
    let candidates = vec![region(1, 0.1, 5.0), region(2, 0.0, 50.0), region(3, 0.0, 5.0)];
    let orders = operator.orders(&RegionObservation { now_s: 1.0, candidates, ..RegionObservation::default() });
    let first: Vec<u64> = orders.iter().flat_map(|order| &order.ranges).map(|range| range.0 >> 30).collect();
    assert_eq!(first, [2, 3, 1]);
}

#[test]
fn huge_pages_are_made_once_of_what_is_in_use_and_is_not_in_some() {
    let mut operator = Operator::new(&builtin::named("ethp-tuned").unwrap(), SchemeLimits::default(), 1);
    let mut made = 0;
    for second in 1..=8 {
        let region = |access_rate: f64, start: u64, huge: f64| Candidate {
            pid: 1,
            start,
            end: start + (64 << 20),
            access_rate,
            age_s: 2.0,
            resident: 67_108_864.0,
            idle: (1.0 - access_rate) * 67_108_864.0,
            huge,
        };
        let candidates = vec![region(0.9, 1 << 30, 0.0), region(0.1, 1 << 31, 0.0), region(0.9, 3 << 30, 66_060_288.0)];
        let frame = RegionObservation { now_s: f64::from(second), candidates, ..RegionObservation::default() };
        for order in operator.orders(&frame) {
            assert!(order.action == Action::Collapse && order.ranges.iter().all(|range| range.0 < 1 << 31));
            made += order.ranges.len();
        }
    }
    assert_eq!(made, 32, "each of the blocks in use, once");
}
