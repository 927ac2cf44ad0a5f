//! The part of kdamonds on kernels that have page idle tracking but no DAMON: a thread that looks at pages in its rhythm,
//! is told what DAMON would be told, and answers with the same events.
//!
//! Tested on a simulated bitmap only: no kernel at hand is built with `CONFIG_IDLE_PAGE_TRACKING`.

use std::fs::File;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use lowtide_model::PAGE;
use lowtide_model::adaptive::Adaptive;
use lowtide_model::region::bridge;

use super::damon::{COHORT, MAP};
use super::teller::Told;
use crate::damon::{KdamondSetup, Operations};
use crate::idle_bitmap::IdleBitmap;
use crate::pagemap::PageMap;
use crate::proc;
use crate::root::{Error, Kernel, Result};
use crate::sys::thread_cpu_s;
use crate::system::monotonic_ns;
use crate::trace::TraceEvent;

/// What the thread gives back.
#[derive(Debug, Default)]
struct Given {
    told: Vec<Told>,
    events: Vec<TraceEvent>,
}

/// The thread.
#[derive(Debug)]
pub struct BitmapLooker {
    jobs: Option<Sender<(usize, KdamondSetup)>>,
    given: Arc<Mutex<Given>>,
    /// CPU nanoseconds of cohort and map so far.
    spent: Arc<[AtomicU64; 2]>,
    thread: Option<JoinHandle<()>>,
    /// Two that mark the same pages would see each other's marks.
    _lock: Option<File>,
}

impl BitmapLooker {
    /// Starts the thread. `lock`: what keeps other lowtides from the bitmap.
    pub fn open(kernel: &Kernel, lock: Option<File>) -> Result<Self> {
        let (jobs, inbox) = channel();
        let (given, spent) = (Arc::default(), Arc::default());
        let mut looker = Looker { kernel: kernel.clone(), bitmap: IdleBitmap::open(kernel)?, parts: [None, None] };
        let thread = {
            let (given, spent) = (Arc::clone(&given), Arc::clone(&spent));
            std::thread::spawn(move || looker.work(&inbox, &given, &spent))
        };
        Ok(Self { jobs: Some(jobs), given, spent, thread: Some(thread), _lock: lock })
    }

    /// Hands over what shall be looked at.
    pub fn tell(&self, part: usize, setup: KdamondSetup) {
        if let Some(jobs) = &self.jobs {
            // The thread only ends when this does.
            let _ = jobs.send((part, setup));
        }
    }

    /// What was taken over since the last call.
    pub fn told(&self) -> Vec<Told> {
        std::mem::take(&mut self.given.lock().unwrap_or_else(PoisonError::into_inner).told)
    }

    /// Appends what was seen since the last call.
    pub fn read(&self, out: &mut Vec<TraceEvent>) {
        out.append(&mut self.given.lock().unwrap_or_else(PoisonError::into_inner).events);
    }

    /// CPU seconds that looking has taken so far, for cohort and map.
    pub fn spent_s(&self) -> [f64; 2] {
        [COHORT, MAP].map(|part| Duration::from_nanos(self.spent[part].load(Ordering::Relaxed)).as_secs_f64())
    }
}

impl Drop for BitmapLooker {
    fn drop(&mut self) {
        drop(self.jobs.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Whose addresses.
#[derive(Debug)]
enum Addresses {
    Physical,
    Of(u32, PageMap),
}

/// One space of addresses.
#[derive(Debug)]
struct Space {
    addresses: Addresses,
    regions: Adaptive,
    /// Frames marked for the next sample, in the order of the regions; `None` where there was nothing to mark.
    marked: Vec<Option<u64>>,
}

/// What is looked at.
#[derive(Debug)]
enum Watch {
    /// Single frames, ascending, and whether they could be marked.
    Frames(Vec<(u64, bool)>),
    /// Adaptive regions, and samples of this aggregation.
    Regions(Vec<Space>, u32),
}

#[derive(Debug)]
struct Part {
    setup: KdamondSetup,
    due_ns: u64,
    update_ns: u64,
    watch: Watch,
}

#[derive(Debug)]
struct Looker {
    kernel: Kernel,
    bitmap: IdleBitmap,
    parts: [Option<Part>; 2],
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

impl Looker {
    fn work(&mut self, inbox: &Receiver<(usize, KdamondSetup)>, given: &Mutex<Given>, spent: &[AtomicU64; 2]) {
        let give = |told: Option<Told>, events: Vec<TraceEvent>| {
            let mut given = given.lock().unwrap_or_else(PoisonError::into_inner);
            given.told.extend(told);
            given.events.extend(events);
        };
        loop {
            let due = self.parts.iter().flatten().map(|part| part.due_ns).min();
            let wait =
                due.map_or(Duration::from_secs(3600), |due| Duration::from_nanos(due.saturating_sub(monotonic_ns())));
            match inbox.recv_timeout(wait) {
                Ok((part, setup)) => give(Some(self.take(part, setup)), Vec::new()),
                Err(RecvTimeoutError::Disconnected) => return,
                Err(RecvTimeoutError::Timeout) => {}
            }
            for at in [COHORT, MAP] {
                let before = thread_cpu_s();
                match self.look(at, monotonic_ns()) {
                    Ok(events) => give(None, events),
                    // Told as the failure of what it was told last.
                    Err(error) => {
                        self.parts[at] = None;
                        give(Some(told(at, false, Err(error))), Vec::new());
                    }
                }
                let ns = Duration::from_secs_f64((thread_cpu_s() - before).max(0.0)).as_nanos();
                spent[at].fetch_add(u64::try_from(ns).unwrap_or(0), Ordering::Relaxed);
            }
        }
    }

    /// Takes over what shall be looked at.
    fn take(&mut self, at: usize, setup: KdamondSetup) -> Told {
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
        told(at, start, result)
    }

    /// Looks at a part if it is time; the events of what is complete.
    fn look(&mut self, at: usize, now_ns: u64) -> Result<Vec<TraceEvent>> {
        let Some(part) = self.parts[at].as_mut().filter(|part| now_ns >= part.due_ns) else { return Ok(Vec::new()) };
        // A rhythm that cannot be kept slows down instead of piling up.
        part.due_ns = (part.due_ns + nanos(part.setup.sampling)).max(now_ns + nanos(part.setup.sampling) / 2);
        let event = |target: usize, nr_regions: usize, start, end| TraceEvent {
            time_ns: now_ns,
            kdamond: thread_of(at),
            target: target as u64,
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
                let seen = |(frame, idle): (&u64, bool)| TraceEvent {
                    nr_accesses: u32::from(!idle),
                    ..event(0, watched.len(), frame * PAGE, (frame + 1) * PAGE)
                };
                Ok(watched.iter().zip(idle).map(seen).collect())
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
                let whole = part.setup.aggregation.as_secs_f64() / part.setup.sampling.as_secs_f64();
                let mut events = Vec::new();
                if f64::from(*samples) >= whole.round() {
                    for (target, space) in spaces.iter_mut().enumerate() {
                        let regions = space.regions.aggregate(1.0);
                        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "small counts")]
                        let count = |number: f64| number.round() as u32;
                        events.extend(regions.iter().map(|region| TraceEvent {
                            nr_accesses: count(region.access_rate * whole),
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
    /// Sees which of the marked frames were used.
    fn sample(&mut self, bitmap: &IdleBitmap) -> Result<()> {
        let mut frames: Vec<u64> = self.marked.iter().flatten().copied().collect();
        frames.sort_unstable();
        frames.dedup();
        let idle = bitmap.idle(&frames)?;
        let used = |frame: &u64| frames.binary_search(frame).is_ok_and(|at| !idle[at]);
        let seen: Vec<bool> = self.marked.iter().map(|frame| frame.as_ref().is_some_and(used)).collect();
        self.marked.clear();
        self.regions.sample(seen);
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
        let mut frames: Vec<u64> = chosen.iter().flatten().copied().collect();
        frames.sort_unstable();
        frames.dedup();
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

/// The frames to look at; what is known of those that were looked at before stays.
fn frames(setup: &KdamondSetup, known: Option<Watch>) -> Vec<(u64, bool)> {
    let known = if let Some(Watch::Frames(frames)) = known { frames } else { Vec::new() };
    let marked = |frame: u64| known.binary_search_by_key(&frame, |(frame, _)| *frame).is_ok_and(|at| known[at].1);
    setup.ranges.iter().map(|(start, _)| (start / PAGE, marked(start / PAGE))).collect()
}

/// The processes to look at; those that were looked at before keep their regions. As with DAMON, none may have ended.
fn spaces(kernel: &Kernel, setup: &KdamondSetup, known: Option<Watch>) -> Result<Vec<Space>> {
    let mut known = if let Some(Watch::Regions(spaces, _)) = known { spaces } else { Vec::new() };
    let most = setup.max_regions / setup.pids.len().max(1);
    let space = |pid: &u32| {
        let is_it = |space: &Space| matches!(space.addresses, Addresses::Of(of, _) if of == *pid);
        if let Some(at) = known.iter().position(is_it) {
            return Ok(known.swap_remove(at));
        }
        let ended = |_| Error::new("watch", format!("process {pid}"), std::io::Error::from_raw_os_error(libc::EINVAL));
        let pages = PageMap::open(kernel, *pid).map_err(ended)?;
        let regions = Adaptive::new(setup.min_regions, most, u64::from(*pid));
        Ok(Space { addresses: Addresses::Of(*pid, pages), regions, marked: Vec::new() })
    };
    setup.pids.iter().map(space).collect()
}

/// What stands for the thread's number in events; there is only one thread for both parts.
fn thread_of(part: usize) -> u32 {
    u32::try_from(part + 1).unwrap_or(u32::MAX)
}

fn told(part: usize, start: bool, result: Result<()>) -> Told {
    Told {
        kdamond: part,
        start,
        pid: Some(thread_of(part)),
        at_ns: monotonic_ns(),
        cost_s: 0.0,
        result: result.map(|()| None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;

    const FRAMES: u64 = 256;
    const BASE: u64 = 0x1000_0000;

    /// A process of 256 pages on frames 0 to 255, the first 64 of which are used between any two looks.
    struct Machine {
        dir: tempfile::TempDir,
        looker: Looker,
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
            let bitmap = IdleBitmap::open(&kernel).unwrap();
            Self { dir, looker: Looker { kernel, bitmap, parts: [None, None] } }
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
        let told = machine.looker.take(COHORT, setup(Operations::Paddr, vec![page(3), page(200)], 1));
        assert!(told.start && told.result.is_ok());
        let second = 1_000_000_000;
        let now = monotonic_ns();
        assert_eq!(machine.looker.look(COHORT, now + second).unwrap(), [], "nothing was marked before");
        machine.run();
        let seen = |events: Vec<TraceEvent>| events.iter().map(|e| (e.start / PAGE, e.nr_accesses)).collect::<Vec<_>>();
        assert_eq!(seen(machine.looker.look(COHORT, now + 2 * second).unwrap()), [(3, 1), (200, 0)]);
        let told = machine.looker.take(COHORT, setup(Operations::Paddr, vec![page(3), page(4)], 1));
        assert!(!told.start);
        assert_eq!(
            seen(machine.looker.look(COHORT, now + 3 * second).unwrap()),
            [(3, 0)],
            "the new one is not known yet"
        );
        machine.run();
        assert_eq!(seen(machine.looker.look(COHORT, now + 4 * second).unwrap()), [(3, 1), (4, 1)]);
    }

    #[test]
    fn regions_of_a_process_find_its_hot_pages() {
        let mut machine = Machine::new();
        assert!(machine.looker.take(MAP, setup(Operations::Vaddr, Vec::new(), 5)).result.is_ok());
        let mut now = monotonic_ns();
        let mut last = Vec::new();
        for _ in 0..400 {
            now += 1_000_000_000;
            let events = machine.looker.look(MAP, now).unwrap();
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
        assert!(machine.looker.look(MAP, now + 1_000_000_000).is_ok(), "a process that ended is no failure");
        let gone = machine.looker.take(COHORT, setup(Operations::Paddr, Vec::new(), 1));
        assert!(gone.result.is_ok());
        let mut other = setup(Operations::Vaddr, Vec::new(), 5);
        other.pids = vec![8];
        assert!(machine.looker.take(MAP, other).result.unwrap_err().is_invalid());
    }

    #[test]
    fn the_thread_looks_in_its_rhythm_and_ends() {
        let machine = Machine::new();
        let looker = BitmapLooker::open(&Kernel::at(machine.dir.path()), None).unwrap();
        looker.tell(MAP, setup(Operations::Vaddr, Vec::new(), 2));
        let mut events = Vec::new();
        for _ in 0..500 {
            std::thread::sleep(Duration::from_millis(10));
            looker.read(&mut events);
            if !events.is_empty() {
                break;
            }
        }
        assert!(!events.is_empty());
        assert_eq!(looker.told().len(), 1);
        drop(looker);
    }
}
