//! Does the work of kdamonds on kernels that have page idle tracking but no DAMON: samples pages at the sampling interval, takes
//! the same configuration and answers with the same events.
//!
//! Tested on a simulated bitmap only: no kernel at hand is built with `CONFIG_IDLE_PAGE_TRACKING`.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::Duration;

use lowtide_model::PAGE;
use lowtide_model::adaptive::Adaptive;
use lowtide_model::region::bridge;
use lowtide_model::units::integer;

use super::damon::{COHORT, MAP};
use super::sampler::{Message, Request, Response};
use crate::damon::{KdamondSetup, Operations};
use crate::idle_bitmap::IdleBitmap;
use crate::pagemap::PageMap;
use crate::proc;
use crate::root::{Error, Kernel, Result};
use crate::sys::thread_cpu_s;
use crate::system::monotonic_ns;
use crate::trace::TraceEvent;

#[derive(Debug)]
enum Addresses {
    Physical,
    Of(u32, PageMap),
}

/// One address space.
#[derive(Debug)]
struct Space {
    addresses: Addresses,
    regions: Adaptive,
    /// Frames marked for the next sample, in the order of the regions; `None` where there was nothing to mark.
    marked: Vec<Option<u64>>,
}

/// Pages to sample.
#[derive(Debug)]
enum Watch {
    /// Single frames, ascending, and whether they could be marked.
    Frames(Vec<(u64, bool)>),
    /// Adaptive regions, and the number of samples in this aggregation so far.
    Regions(Vec<Space>, u32),
}

#[derive(Debug)]
struct Part {
    setup: KdamondSetup,
    due_ns: u64,
    update_ns: u64,
    watch: Watch,
}

/// Samples cohort and map.
#[derive(Debug)]
pub(super) struct BitmapSampler {
    kernel: Kernel,
    bitmap: IdleBitmap,
    parts: [Option<Part>; 2],
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

impl BitmapSampler {
    pub(super) fn open(kernel: &Kernel) -> Result<Self> {
        Ok(Self { kernel: kernel.clone(), bitmap: IdleBitmap::open(kernel)?, parts: [None, None] })
    }

    /// Samples until all senders of requests are gone.
    pub(super) fn run(&mut self, requests: &Receiver<Request>, messages: &Sender<Message>) {
        // The receiver lives as long as the sender of requests.
        let send = |message| drop(messages.send(message));
        let mut unreported_s = [0.0; 2];
        loop {
            let due_ns = self.parts.iter().flatten().map(|part| part.due_ns).min();
            let wait = due_ns.map_or(Duration::from_secs(3600), |due_ns| {
                Duration::from_nanos(due_ns.saturating_sub(monotonic_ns()))
            });
            match requests.recv_timeout(wait) {
                Ok(Request::Configure { part, setup }) => send(Message::Response(self.configure(part, setup))),
                // Only kdamonds have schemes.
                Ok(Request::Stats { .. }) | Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            for part in [COHORT, MAP] {
                let before = thread_cpu_s();
                let result = self.sample(part, monotonic_ns());
                unreported_s[part] += thread_cpu_s() - before;
                match result {
                    Ok(events) if events.is_empty() => {}
                    Ok(events) => {
                        let cpu_s = std::mem::take(&mut unreported_s[part]);
                        send(Message::Sampled { part, events, cpu_s });
                    }
                    // Reported as the failure of the last configuration.
                    Err(error) => {
                        self.parts[part] = None;
                        send(Message::Response(response(part, false, Err(error))));
                    }
                }
            }
        }
    }

    /// Takes over a configuration.
    fn configure(&mut self, at: usize, setup: KdamondSetup) -> Response {
        let now_ns = monotonic_ns();
        let before = self.parts[at].take();
        let start = before.is_none();
        let due_ns = before.as_ref().map_or(now_ns, |part| part.due_ns.min(now_ns + nanos(setup.sampling)));
        let known = before.map(|part| part.watch);
        let watch = match (at, setup.operations) {
            (COHORT, _) => Ok(Watch::Frames(frames(&setup, known))),
            (_, Operations::Vaddr) => spaces(&self.kernel, &setup, known).map(|spaces| Watch::Regions(spaces, 0)),
            (_, Operations::Paddr) => {
                let mut regions = Adaptive::new(setup.min_regions, setup.max_regions, now_ns);
                regions.set_ranges(&setup.ranges);
                Ok(Watch::Regions(vec![Space { addresses: Addresses::Physical, regions, marked: Vec::new() }], 0))
            }
        };
        let result = watch.map(|watch| self.parts[at] = Some(Part { setup, due_ns, update_ns: now_ns, watch }));
        response(at, start, result)
    }

    /// Samples a part if it is due; the events of what is complete.
    fn sample(&mut self, at: usize, now_ns: u64) -> Result<Vec<TraceEvent>> {
        let Some(part) = self.parts[at].as_mut().filter(|part| now_ns >= part.due_ns) else { return Ok(Vec::new()) };
        // A rhythm that cannot be kept slows down instead of piling up.
        part.due_ns = (part.due_ns + nanos(part.setup.sampling)).max(now_ns + nanos(part.setup.sampling) / 2);
        let event = |target: usize, nr_regions: usize, start, end| TraceEvent {
            time_ns: now_ns,
            kdamond: pid_of(at),
            target: u64::try_from(target).unwrap_or(u64::MAX),
            nr_regions: u32::try_from(nr_regions).unwrap_or(u32::MAX),
            start,
            end,
            nr_accesses: 0,
            age: 0,
        };
        match &mut part.watch {
            Watch::Frames(frames) => {
                let watched: Vec<u64> = frames.iter().filter(|(_, marked)| *marked).map(|(frame, _)| *frame).collect();
                let idle = self.bitmap.idle(&watched)?;
                let all: Vec<u64> = frames.iter().map(|(frame, _)| *frame).collect();
                for ((_, marked), now) in frames.iter_mut().zip(self.bitmap.mark(&all)?) {
                    *marked = now;
                }
                let sampled = |(frame, idle): (&u64, bool)| TraceEvent {
                    nr_accesses: u32::from(!idle),
                    ..event(0, watched.len(), frame * PAGE, (frame + 1) * PAGE)
                };
                Ok(watched.iter().zip(idle).map(sampled).collect())
            }
            Watch::Regions(spaces, samples) => {
                let limit = part.setup.max_regions / 2;
                let update = part.setup.operations == Operations::Vaddr && now_ns >= part.update_ns;
                if update {
                    part.update_ns = now_ns + nanos(part.setup.update);
                }
                for space in spaces.iter_mut() {
                    space.sample(&self.bitmap)?;
                    if update {
                        space.update(&self.kernel, limit);
                    }
                }
                *samples += 1;
                let samples_each = part.setup.aggregation.as_secs_f64() / part.setup.sampling.as_secs_f64();
                let mut events = Vec::new();
                if f64::from(*samples) >= samples_each.round() {
                    for (target, space) in spaces.iter_mut().enumerate() {
                        let regions = space.regions.aggregate(1.0);
                        let count = |number: f64| u32::try_from(integer(number.round())).unwrap_or(u32::MAX);
                        events.extend(regions.iter().map(|region| TraceEvent {
                            nr_accesses: count(region.access_rate * samples_each),
                            age: count(region.age_s),
                            ..event(target, regions.len(), region.start, region.end)
                        }));
                    }
                    *samples = 0;
                }
                for space in spaces {
                    space.mark(&self.bitmap)?;
                }
                Ok(events)
            }
        }
    }
}

impl Space {
    /// Finds out which of the marked frames were used.
    fn sample(&mut self, bitmap: &IdleBitmap) -> Result<()> {
        let frames = distinct(&self.marked);
        let idle = bitmap.idle(&frames)?;
        let used = |frame: &u64| frames.binary_search(frame).is_ok_and(|at| !idle[at]);
        let accessed: Vec<bool> = self.marked.iter().map(|frame| frame.as_ref().is_some_and(used)).collect();
        self.marked.clear();
        self.regions.sample(accessed);
        Ok(())
    }

    /// Marks a page of each region.
    fn mark(&mut self, bitmap: &IdleBitmap) -> Result<()> {
        let frame_of = |address: u64| match &self.addresses {
            Addresses::Physical => Some(address / PAGE),
            // A process that ended has no pages.
            Addresses::Of(_, pages) => {
                let entry = pages.entry(address / PAGE).ok()?;
                (entry.is_present() && entry.frame() != 0).then(|| entry.frame())
            }
        };
        let chosen: Vec<Option<u64>> = self.regions.choose().into_iter().map(frame_of).collect();
        let frames = distinct(&chosen);
        let marked = bitmap.mark(&frames)?;
        let is_marked = |frame: &u64| frames.binary_search(frame).is_ok_and(|at| marked[at]);
        self.marked = chosen.into_iter().map(|frame| frame.filter(is_marked)).collect();
        Ok(())
    }

    /// Follows the process' mappings.
    fn update(&mut self, kernel: &Kernel, limit: usize) {
        let Addresses::Of(pid, _) = &self.addresses else { return };
        // One that ended has none.
        let mappings = proc::mappings(kernel, *pid).unwrap_or_default();
        let ranges = mappings.iter().map(|mapping| (mapping.start, mapping.end)).collect();
        self.regions.set_ranges(&bridge(ranges, limit));
    }
}

fn distinct(frames: &[Option<u64>]) -> Vec<u64> {
    let mut frames: Vec<u64> = frames.iter().flatten().copied().collect();
    frames.sort_unstable();
    frames.dedup();
    frames
}

/// The frames to sample; marks of those that were sampled before stay.
fn frames(setup: &KdamondSetup, known: Option<Watch>) -> Vec<(u64, bool)> {
    let known = if let Some(Watch::Frames(frames)) = known { frames } else { Vec::new() };
    let marked = |frame: u64| known.binary_search_by_key(&frame, |(frame, _)| *frame).is_ok_and(|at| known[at].1);
    setup.ranges.iter().map(|(start, _)| (start / PAGE, marked(start / PAGE))).collect()
}

/// The processes to sample; those that were sampled before keep their regions. As with DAMON, none may have ended.
fn spaces(kernel: &Kernel, setup: &KdamondSetup, known: Option<Watch>) -> Result<Vec<Space>> {
    let mut known = if let Some(Watch::Regions(spaces, _)) = known { spaces } else { Vec::new() };
    let most = setup.max_regions / setup.pids.len().max(1);
    let space = |pid: &u32| {
        let is_it = |space: &Space| matches!(space.addresses, Addresses::Of(of, _) if of == *pid);
        if let Some(at) = known.iter().position(is_it) {
            return Ok(known.swap_remove(at));
        }
        let ended = |_| Error::os("watch", format!("process {pid}"), libc::EINVAL);
        let pages = PageMap::open(kernel, *pid).map_err(ended)?;
        let regions = Adaptive::new(setup.min_regions, most, u64::from(*pid));
        Ok(Space { addresses: Addresses::Of(*pid, pages), regions, marked: Vec::new() })
    };
    setup.pids.iter().map(space).collect()
}

/// Stands for the kdamond's pid in events: one thread samples both parts.
fn pid_of(part: usize) -> u32 {
    u32::try_from(part + 1).unwrap_or(u32::MAX)
}

fn response(part: usize, started: bool, result: Result<()>) -> Response {
    let (pid, at_ns) = (Some(pid_of(part)), monotonic_ns());
    Response { part, started, pid, at_ns, cost_s: 0.0, result: result.map(|()| None) }
}

#[cfg(test)]
mod tests {
    use super::super::sampler::Sampler;
    use super::*;
    use std::os::unix::fs::FileExt;

    const FRAMES: u64 = 256;
    const BASE: u64 = 0x1000_0000;

    /// A process of 256 pages on frames 0 to 255, the first 64 of which are used between any two samples.
    struct Machine {
        dir: tempfile::TempDir,
        sampler: BitmapSampler,
    }

    impl Machine {
        fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            let put = |path: &str, bytes: &[u8]| {
                let path = dir.path().join(path);
                std::fs::create_dir_all(path.parent().unwrap()).unwrap();
                std::fs::write(path, bytes).unwrap();
            };
            put("sys/kernel/mm/page_idle/bitmap", &[0; 32]);
            let end = BASE + FRAMES * PAGE;
            put("proc/7/maps", format!("{BASE:x}-{end:x} rw-p 00000000 00:00 0 \n").as_bytes());
            let map = std::fs::File::create(dir.path().join("proc/7/pagemap")).unwrap();
            for frame in 0..FRAMES {
                // Frame 0 means that frames are hidden, so the process begins at frame 1.
                let entry = (1u64 << 63) | (frame + 1).min(FRAMES - 1);
                map.write_at(&entry.to_ne_bytes(), (BASE / PAGE + frame) * 8).unwrap();
            }
            let kernel = Kernel::at(dir.path());
            Self { dir, sampler: BitmapSampler::open(&kernel).unwrap() }
        }

        /// The program uses its first 64 pages: the kernel clears their bits.
        fn run(&self) {
            let file =
                std::fs::OpenOptions::new().write(true).open(self.dir.path().join("sys/kernel/mm/page_idle/bitmap"));
            file.unwrap().write_at(&[0; 8], 0).unwrap();
        }
    }

    fn setup(operations: Operations, ranges: Vec<(u64, u64)>, samples: u32) -> KdamondSetup {
        let sampling = Duration::from_millis(10);
        KdamondSetup {
            operations,
            sampling,
            aggregation: sampling * samples,
            update: sampling,
            min_regions: 4,
            max_regions: 60,
            pids: if operations == Operations::Vaddr { vec![7] } else { Vec::new() },
            ranges,
            goal: None,
            schemes: Vec::new(),
        }
    }

    #[test]
    fn single_frames_are_used_or_not() {
        let mut machine = Machine::new();
        let page = |frame: u64| (frame * PAGE, (frame + 1) * PAGE);
        let response = machine.sampler.configure(COHORT, setup(Operations::Paddr, vec![page(3), page(200)], 1));
        assert!(response.started && response.result.is_ok());
        let second = 1_000_000_000;
        let now = monotonic_ns();
        assert_eq!(machine.sampler.sample(COHORT, now + second).unwrap(), [], "nothing was marked before");
        machine.run();
        let accesses =
            |events: Vec<TraceEvent>| events.iter().map(|e| (e.start / PAGE, e.nr_accesses)).collect::<Vec<_>>();
        assert_eq!(accesses(machine.sampler.sample(COHORT, now + 2 * second).unwrap()), [(3, 1), (200, 0)]);
        let response = machine.sampler.configure(COHORT, setup(Operations::Paddr, vec![page(3), page(4)], 1));
        assert!(!response.started);
        assert_eq!(
            accesses(machine.sampler.sample(COHORT, now + 3 * second).unwrap()),
            [(3, 0)],
            "the new one is not known yet"
        );
        machine.run();
        assert_eq!(accesses(machine.sampler.sample(COHORT, now + 4 * second).unwrap()), [(3, 1), (4, 1)]);
    }

    #[test]
    fn regions_of_a_process_find_its_hot_pages() {
        let mut machine = Machine::new();
        assert!(machine.sampler.configure(MAP, setup(Operations::Vaddr, Vec::new(), 5)).result.is_ok());
        let mut now = monotonic_ns();
        let mut last = Vec::new();
        for _ in 0..400 {
            now += 1_000_000_000;
            let events = machine.sampler.sample(MAP, now).unwrap();
            machine.run();
            if !events.is_empty() {
                last = events;
            }
        }
        let pages = |hot: bool| -> u64 {
            last.iter().filter(|e| (e.nr_accesses > 2) == hot).map(|e| (e.end - e.start) / PAGE).sum()
        };
        assert_eq!(pages(true) + pages(false), FRAMES);
        assert!((58..=70).contains(&pages(true)), "{} pages found hot of 63", pages(true));
        assert!(last.iter().all(|e| e.nr_regions as usize == last.len() && e.target == 0));
        std::fs::remove_dir_all(machine.dir.path().join("proc/7")).unwrap();
        assert!(machine.sampler.sample(MAP, now + 1_000_000_000).is_ok(), "a process that ended is no failure");
        let gone = machine.sampler.configure(COHORT, setup(Operations::Paddr, Vec::new(), 1));
        assert!(gone.result.is_ok());
        let mut other = setup(Operations::Vaddr, Vec::new(), 5);
        other.pids = vec![8];
        assert!(machine.sampler.configure(MAP, other).result.unwrap_err().is_invalid());
    }

    #[test]
    fn the_thread_samples_at_its_interval_and_ends() {
        let machine = Machine::new();
        let mut sampler = Sampler::bitmap(&Kernel::at(machine.dir.path()), None).unwrap();
        sampler.send(Request::Configure { part: MAP, setup: setup(Operations::Vaddr, Vec::new(), 2) });
        let mut responses = 0;
        let mut events = Vec::new();
        for _ in 0..500 {
            std::thread::sleep(Duration::from_millis(10));
            responses += sampler.receive(&mut events).unwrap().len();
            if !events.is_empty() {
                break;
            }
        }
        assert!(!events.is_empty());
        assert_eq!(responses, 1);
        assert!(sampler.own_cpu_s(MAP).unwrap() > 0.0);
        drop(sampler);
    }
}
