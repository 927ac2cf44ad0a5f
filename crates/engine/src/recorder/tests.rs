//! The recorder on a kernel that is a tree of files with a script for DAMON and trace instances, by a clock that the test moves.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use lowtide_kernel::account::Scope;
use lowtide_kernel::cgroup::Cgroup;
use lowtide_kernel::clock::TestClock;
use lowtide_kernel::proc::ProcessId;
use lowtide_kernel::root::FileChange;
use lowtide_kernel::undo;
use lowtide_model::meta::SCHEMA;
use lowtide_record::Record;
use rustix::io::Errno;

use super::*;

const MIB: u64 = 1 << 20;
const KDAMONDS: &str = "sys/kernel/mm/damon/admin/kdamonds";
/// What the kernel says of the tracepoint, as far as it is read.
const FORMAT: &str = "name: damon_aggregated\nID: 301\nformat:\n\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n\tfield:unsigned long target_id;\toffset:8;\tsize:8;\tsigned:0;\n\tfield:unsigned int nr_regions;\toffset:16;\tsize:4;\tsigned:0;\n\tfield:unsigned long start;\toffset:24;\tsize:8;\tsigned:0;\n\tfield:unsigned long end;\toffset:32;\tsize:8;\tsigned:0;\n\tfield:unsigned int nr_accesses;\toffset:40;\tsize:4;\tsigned:0;\n\tfield:unsigned int age;\toffset:44;\tsize:4;\tsigned:0;\n";

/// A machine with one cgroup, `/job`, of one process, and with DAMON.
struct Machine {
    dir: tempfile::TempDir,
    clock: TestClock,
    /// Changes begun and ended so far, and how many there may be: what follows fails, as if the process were dead.
    changes: Arc<[AtomicU64; 2]>,
    most: u64,
}

/// Writes a file of the tree.
fn put(path: &Path, text: &str) -> io::Result<()> {
    fs::create_dir_all(path.parent().unwrap())?;
    fs::write(path, text)
}

impl Machine {
    fn new() -> Self {
        let (clock, changes) = (TestClock::default(), Arc::default());
        let machine = Self { dir: tempfile::tempdir().unwrap(), clock, changes, most: u64::MAX };
        for (path, text) in [
            ("proc/self/mountinfo", "30 29 0:26 / /cg rw - cgroup2 cgroup2 rw\n"),
            ("proc/meminfo", "MemTotal: 4000000 kB\nMemFree: 1000000 kB\nMemAvailable: 1500000 kB\n"),
            ("proc/stat", "cpu  100 0 100 1000 0 0 0 0 0 0\n"),
            ("proc/iomem", "00001000-0009ffff : System RAM\n"),
            ("proc/kpageflags", ""),
            ("proc/kpagecount", ""),
            ("proc/7/stat", "7 (job) S 1 7 7 0 -1 0 10 0 2 0 3 4 0 0 20 0 1 0 5 0 0\n"),
            ("proc/7/pagemap", ""),
            ("proc/7/maps", ""),
            ("cg/cgroup.controllers", "memory\n"),
            ("cg/job/cgroup.procs", "7\n"),
            ("cg/job/cgroup.events", "populated 1\n"),
            ("sys/kernel/mm/damon/admin/kdamonds/nr_kdamonds", "0\n"),
            ("sys/module/damon_stat/parameters/enabled", "Y\n"),
            ("sys/kernel/tracing/events/damon/damon_aggregated/format", FORMAT),
            ("sys/kernel/tracing/instances/others/trace_clock", "local\n"),
        ] {
            machine.put(path, text);
        }
        machine.holds(100 * MIB);
        machine
    }

    fn root(&self) -> PathBuf {
        self.dir.path().join("root")
    }

    fn put(&self, path: &str, text: &str) {
        put(&self.root().join(path), text).unwrap();
    }

    fn holds(&self, bytes: u64) {
        let kib = bytes / 1024;
        let status = format!("Name:\tjob\nVmHWM:\t{kib} kB\nVmRSS:\t{kib} kB\nRssAnon:\t{kib} kB\nThreads:\t1\n");
        self.put("proc/7/status", &status);
        self.put("cg/job/memory.current", &format!("{bytes}\n"));
        self.put(
            "cg/job/memory.stat",
            &format!("anon {bytes}\nfile 0\nfile_mapped 0\nshmem 0\npgfault 10\npgmajfault 2\n"),
        );
    }

    /// The kernel, after that many more changes dead.
    fn kernel(&self) -> Kernel {
        let (root, changes, most) = (self.root(), self.changes.clone(), self.most);
        let script = move |path: &Path, change: FileChange<'_>| {
            let is_dead = changes[0].fetch_add(1, Ordering::SeqCst) >= most;
            let path = root.join(path.strip_prefix("/").unwrap());
            let done = match change {
                _ if is_dead => Err(Errno::IO.into()),
                FileChange::Write(value) => write(&path, value),
                FileChange::MakeDir => make_instance(&path),
                FileChange::RemoveDir => fs::remove_dir_all(&path),
            };
            changes[1].fetch_add(1, Ordering::SeqCst);
            Some(done)
        };
        Kernel::at(self.root()).with_clock(&self.clock).with_script(script)
    }

    /// All files below `sys`, with their contents.
    fn tree(&self) -> BTreeMap<PathBuf, String> {
        let mut all = BTreeMap::new();
        let mut folders = vec![self.root().join("sys")];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
                if entry.is_dir() {
                    folders.push(entry);
                } else {
                    all.insert(entry.clone(), fs::read_to_string(&entry).unwrap());
                }
            }
        }
        all
    }

    fn recorder(&self, choice: &str) -> Recorder {
        self.recorder_into(choice, Some(self.dir.path().join("record")))
    }

    fn recorder_into(&self, choice: &str, out: Option<PathBuf>) -> Recorder {
        let kernel = self.kernel();
        let cgroup = Cgroup::named(&kernel, "/job").unwrap();
        self.recorder_of(choice, out, Accountant::new(&kernel, Scope::Cgroups, vec![cgroup]))
    }

    fn recorder_of(&self, choice: &str, out: Option<PathBuf>, accountant: Accountant) -> Recorder {
        let kernel = self.kernel();
        let journal = Journal::open(kernel.clone(), &self.dir.path().join("run")).unwrap();
        let options = RecordOptions {
            out,
            source: SourceSettings { choice: choice.parse().unwrap(), attached: true, ..SourceSettings::default() },
            interval_s: 1.0,
            // Work in seconds of a clock that stands still has no price.
            max_overhead: 1000.0,
            plan: None,
        };
        let meta = Meta { schema: SCHEMA, interval_s: 1.0, attached: true, ..Meta::default() };
        Recorder::open(&kernel, &journal, options, RecordSubject { accountant, meta }).unwrap()
    }

    /// Records for so many seconds; rows, and whether the target was there to the end.
    fn run(&self, recorder: &mut Recorder, seconds: f64) -> (Vec<Usage>, bool) {
        let (end_s, mut rows) = (recorder.now_s() + seconds, Vec::new());
        while recorder.now_s() < end_s {
            let wait_s = recorder.next_due_s() - recorder.now_s();
            self.kernel().wait(&mut [], wait_s).unwrap();
            match recorder.turn().unwrap() {
                Tick::Row(usage) => rows.push(*usage),
                Tick::NotDue => {}
                Tick::Gone => return (rows, false),
            }
        }
        (rows, true)
    }

    /// Waits until the threads of the source can make no more changes, or have made none for a second; how many they tried.
    fn settle(&self) -> u64 {
        let changes = || [0, 1].map(|at: usize| self.changes[at].load(Ordering::SeqCst));
        let (mut last, mut since) = (changes(), Instant::now());
        loop {
            std::thread::sleep(Duration::from_millis(1));
            let [begun, ended] = changes();
            if last != [begun, ended] {
                (last, since) = ([begun, ended], Instant::now());
            }
            let is_dead = begun > self.most;
            if begun == ended && (is_dead || since.elapsed() > Duration::from_secs(1)) {
                return begun;
            }
        }
    }

    fn record(&self) -> Record {
        Record::open(&self.dir.path().join("record")).unwrap()
    }
}

/// What DAMON's and tracefs' files do when they are written.
fn write(path: &Path, value: &str) -> io::Result<()> {
    put(path, &format!("{}\n", value.trim_end()))?;
    let count = value.trim().parse::<usize>().unwrap_or(0);
    let folder = path.parent().unwrap();
    let files: &[(&str, &str)] = match path.file_name().and_then(|name| name.to_str()).unwrap() {
        "nr_kdamonds" => &[("state", "off\n"), ("pid", "-1\n"), ("contexts/nr_contexts", "0\n")],
        "nr_contexts" => {
            &[("avail_operations", "vaddr\npaddr\n"), ("schemes/nr_schemes", "0\n"), ("targets/nr_targets", "0\n")]
        }
        "nr_targets" => &[("pid_target", "\n"), ("regions/nr_regions", "0\n")],
        "nr_regions" if folder.ends_with("regions") => &[("start", "0\n"), ("end", "0\n")],
        "state" => return put(&folder.join("pid"), if value.trim() == "off" { "-1\n" } else { "4242\n" }),
        _ => return Ok(()),
    };
    for entry in fs::read_dir(folder)?.map(|entry| entry.unwrap().path()) {
        if entry.is_dir() {
            fs::remove_dir_all(entry)?;
        }
    }
    let all = (0..count).flat_map(|index| files.iter().map(move |(name, text)| (index, name, text)));
    all.into_iter().try_for_each(|(index, name, text)| put(&folder.join(index.to_string()).join(name), text))
}

/// A trace instance, with files of its own.
fn make_instance(path: &Path) -> io::Result<()> {
    fs::create_dir(path)?;
    for (name, text) in [
        ("trace_clock", "local\n"),
        ("buffer_size_kb", "7\n"),
        ("per_cpu/cpu0/trace_pipe_raw", ""),
        ("events/damon/damon_aggregated/format", FORMAT),
        ("events/damon/damon_aggregated/enable", "0\n"),
    ] {
        put(&path.join(name), text)?;
    }
    Ok(())
}

#[test]
fn a_record_starts_follows_a_target_that_grows_and_ends_with_it() {
    let machine = Machine::new();
    let mut recorder = machine.recorder("none");
    let (rows, there) = machine.run(&mut recorder, 10.0);
    assert!(there && rows.len() >= 10, "{}", rows.len());
    machine.holds(700 * MIB);
    let (grown, _) = machine.run(&mut recorder, 5.0);
    assert_eq!(rows.last().unwrap().rss_bytes, Some((100 * MIB) as f64));
    assert_eq!(grown.last().unwrap().rss_bytes, Some((700 * MIB) as f64));
    fs::remove_dir_all(machine.root().join("proc/7")).unwrap();
    fs::remove_dir_all(machine.root().join("cg/job")).unwrap();
    assert!(!machine.run(&mut recorder, 5.0).1, "the target is gone");
    recorder.close(End::default()).unwrap();
    let usage = machine.record().usage();
    assert!(usage.windows(2).all(|pair| pair[0].t_s <= pair[1].t_s));
    assert_eq!(usage.iter().filter_map(|row| row.rss_bytes).fold(0.0, f64::max), (700 * MIB) as f64);
}

/// Counts the rows that it takes.
struct Counter(std::rc::Rc<std::cell::Cell<usize>>);

impl Sink for Counter {
    fn take(&mut self, _: f64, event: &Event<'_>) {
        self.0.set(self.0.get() + usize::from(matches!(event, Event::Usage(..))));
    }
}

#[test]
fn without_a_folder_sinks_take_what_is_read_and_nothing_is_written() {
    let machine = Machine::new();
    let files = || fs::read_dir(machine.dir.path()).unwrap().count();
    let mut recorder = machine.recorder_into("none", None);
    let (before, count) = (files(), std::rc::Rc::default());
    recorder.add_sink(Box::new(Counter(std::rc::Rc::clone(&count))));
    let (rows, there) = machine.run(&mut recorder, 20.0);
    assert!(there && rows.len() >= 20);
    assert_eq!((count.get(), files()), (rows.len(), before));
    assert_eq!(recorder.close(End::default()).unwrap(), None);
    assert_eq!(files(), before);
}

#[test]
fn damon_starts_and_leaves_nothing_behind() {
    let machine = Machine::new();
    let before = machine.tree();
    let mut recorder = machine.recorder("damon");
    let (rows, there) = machine.run(&mut recorder, 10.0);
    assert!(there && rows.len() >= 10);
    assert_eq!(recorder.meta.monitor.backend, "damon-vaddr", "{:?}", recorder.meta.notes);
    assert_ne!(machine.tree(), before, "{:?}", recorder.meta.notes);
    recorder.close(End::default()).unwrap();
    assert_eq!(machine.tree(), before);
}

#[test]
fn damon_that_is_held_is_refused_with_the_reason_and_untouched() {
    let machine = Machine::new();
    machine.put(&format!("{KDAMONDS}/nr_kdamonds"), "1\n");
    machine.put(&format!("{KDAMONDS}/0/pid"), "99\n");
    let before = machine.tree();
    let mut recorder = machine.recorder("auto");
    let (rows, there) = machine.run(&mut recorder, 5.0);
    assert!(there && rows.len() >= 5);
    let refused = &recorder.meta.monitor.refused;
    assert!(refused[0].backend == "damon" && refused[0].why.contains("kdamond 99"), "{refused:?}");
    recorder.close(End::default()).unwrap();
    assert_eq!(machine.tree(), before);
}

/// The source fails after each number of changes, as if the recorder had been killed there; what the next lowtide finds in the
/// journal restores the tree.
#[test]
fn a_kill_at_every_change_is_taken_back_exactly() {
    let mut steps = 0;
    loop {
        let mut machine = Machine::new();
        let before = machine.tree();
        machine.most = steps;
        let mut recorder = machine.recorder("damon");
        machine.run(&mut recorder, 3.0);
        let done = machine.settle();
        // A dead process holds no lock: what it held by its files is not there in a copy.
        let left = machine.dir.path().join("left");
        fs::create_dir(&left).unwrap();
        for entry in fs::read_dir(machine.dir.path().join("run")).unwrap().map(|entry| entry.unwrap().path()) {
            fs::copy(&entry, left.join(entry.file_name().unwrap())).unwrap();
        }
        machine.most = u64::MAX;
        let recovered = undo::recover(&machine.kernel(), &left).unwrap();
        for (undo, result) in recovered.recovered.iter().flat_map(|of| &of.undone) {
            assert!(result.is_ok(), "after {steps} changes: {undo}: {result:?}");
        }
        assert_eq!(machine.tree(), before, "after {steps} changes");
        assert!(fs::read_dir(&left).unwrap().next().is_none(), "the journal is done with");
        // It lives on in this test; it must not write any more.
        drop(fs::rename(machine.root(), machine.dir.path().join("over")));
        std::mem::forget(recorder);
        if done < steps {
            break;
        }
        steps += 1;
    }
    assert!(steps > 8, "DAMON and the trace instance take more than {steps} changes");
}

#[test]
fn a_full_disk_loses_rows_and_says_so() {
    let machine = Machine::new();
    let mut recorder = machine.recorder("none");
    machine.run(&mut recorder, 6.0);
    // Every file of the record that is written from now on is on a full disk.
    let record = machine.dir.path().join("record");
    fs::remove_dir_all(&record).unwrap();
    std::os::unix::fs::symlink("/dev/full", &record).unwrap();
    let (rows, there) = machine.run(&mut recorder, 12.0);
    assert!(there && rows.len() >= 12, "it goes on");
    assert!(recorder.meta.notes.iter().any(|note| note.contains("rows were lost from")), "{:?}", recorder.meta.notes);
    assert!(recorder.close(End::default()).is_err());
}

#[test]
fn accounts_that_cannot_be_read_for_a_while_end_nothing() {
    let machine = Machine::new();
    let mut recorder = machine.recorder("none");
    machine.run(&mut recorder, 3.0);
    let stat = machine.root().join("cg/job/memory.stat");
    fs::remove_file(&stat).unwrap();
    // Reading it fails with EIO.
    std::os::unix::fs::symlink("/proc/self/mem", &stat).unwrap();
    let (_, there) = machine.run(&mut recorder, 3.0);
    assert!(there);
    fs::remove_file(&stat).unwrap();
    machine.holds(300 * MIB);
    let (rows, _) = machine.run(&mut recorder, 3.0);
    assert_eq!(rows.last().unwrap().rss_bytes, Some((300 * MIB) as f64));
}

#[test]
fn a_suspend_leaves_a_gap_and_no_rush_of_ticks() {
    let machine = Machine::new();
    let mut recorder = machine.recorder("damon");
    machine.run(&mut recorder, 5.0);
    machine.clock.advance(Duration::from_secs(8 * 3600));
    let (rows, there) = machine.run(&mut recorder, 5.0);
    assert!(there && (4..=7).contains(&rows.len()), "{}", rows.len());
    let times: Vec<f64> = rows.iter().filter_map(|row| row.t_s).collect();
    assert!(times[0] > 8.0 * 3600.0 && times.windows(2).all(|pair| pair[1] - pair[0] > 0.5), "{times:?}");
}

#[test]
fn over_the_price_cap_processes_are_read_less_often() {
    let machine = Machine::new();
    let mut recorder = machine.recorder("none");
    recorder.price = Price::new(1e-9);
    let (rows, _) = machine.run(&mut recorder, 60.0);
    assert!(rows.len() >= 59);
    recorder.close(End::default()).unwrap();
    let notes = machine.record().meta().notes.clone();
    assert!(notes.iter().any(|note| note.contains("left out in")), "{notes:?}");
}

#[test]
fn processes_without_a_cgroup_of_their_own_too_and_their_end_is_found_at_the_next_tick() {
    let machine = Machine::new();
    let root = ProcessId { pid: 7, start_ticks: 5 };
    let scope = Scope::Tree { roots: vec![root], own_children: false };
    let accountant = Accountant::new(&machine.kernel(), scope, Vec::new());
    let mut recorder = machine.recorder_of("none", None, accountant);
    recorder.price = Price::new(1e-9);
    let (rows, there) = machine.run(&mut recorder, 60.0);
    let read = rows.iter().filter(|row| row.rss_bytes.is_some()).count();
    assert!(there && rows.len() >= 59 && (1..10).contains(&read), "{read} of {}", rows.len());
    fs::remove_dir_all(machine.root().join("proc/7")).unwrap();
    let (rows, there) = machine.run(&mut recorder, 5.0);
    assert!(!there && rows.len() <= 1, "{}", rows.len());
}
