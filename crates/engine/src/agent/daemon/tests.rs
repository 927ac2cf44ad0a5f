//! The loop on a kernel that is a tree of files, by a clock that the test moves.

use std::fs;
use std::path::Path;
use std::time::Duration;

use lowtide_kernel::clock::TestClock;

use super::*;

const MIB: u64 = 1 << 20;

/// A machine with one cgroup, `/job`, of so many resident bytes.
struct Machine {
    dir: tempfile::TempDir,
    clock: TestClock,
}

impl Machine {
    fn new() -> Self {
        let machine = Self { dir: tempfile::tempdir().unwrap(), clock: TestClock::default() };
        machine.put("proc/self/mountinfo", "30 29 0:26 / /cg rw - cgroup2 cgroup2 rw\n");
        machine.put("proc/swaps", "Filename\tType\tSize\tUsed\tPriority\n/dev/zram0 partition 1000000 100 5\n");
        machine.put("proc/meminfo", "MemTotal: 4000000 kB\nMemFree: 1000000 kB\nMemAvailable: 1500000 kB\n");
        machine.put("proc/pressure/memory", &pressure(0));
        machine.put("cg/cgroup.controllers", "memory\n");
        machine.put("cg/job/cgroup.procs", "7\n");
        for (file, text) in
            [("high", "max\n"), ("max", "max\n"), ("min", "0\n"), ("low", "0\n"), ("swap.current", "0\n")]
        {
            machine.put(&format!("cg/job/memory.{file}"), text);
        }
        machine.holds(400 * MIB, 0);
        machine
    }

    fn put(&self, path: &str, text: &str) {
        let path = self.dir.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// The cgroup holds so much, and has waited for memory for so many microseconds in all.
    fn holds(&self, bytes: u64, waited_us: u64) {
        self.put("cg/job/memory.current", &format!("{bytes}\n"));
        self.put(
            "cg/job/memory.stat",
            &format!("anon {bytes}\nfile 0\nfile_mapped 0\nshmem 0\ninactive_anon {bytes}\n"),
        );
        self.put("cg/job/memory.pressure", &pressure(waited_us));
        self.put("cg/job/memory.reclaim", "");
    }

    fn agent(&self, more: &str) -> Agent {
        let file = self.dir.path().join("agent.toml");
        let text = "every = \"5s\"\nstate_file = \"\"\nstop_file = \"/nonexistent/stop\"\n[[workload]]\ncgroup = \"/*\"\n\
                    policy = \"pressure\"\n";
        fs::write(&file, format!("{more}{text}")).unwrap();
        Agent::new(&Kernel::at(self.dir.path()).with_clock(&self.clock), &file, false).unwrap()
    }

    /// Steps until so many seconds are over; what was asked of the cgroup meanwhile, each time.
    fn run(&self, agent: &mut Agent, signals: &Signals, seconds: u64) -> Vec<String> {
        let end_ns = self.clock.now_ns() + seconds * 1_000_000_000;
        let reclaim = self.dir.path().join("cg/job/memory.reclaim");
        let mut asked = Vec::new();
        while self.clock.now_ns() < end_ns {
            assert!(scheduler::step(&agent.kernel.clone(), signals, agent).unwrap().is_none());
            let text = fs::read_to_string(&reclaim).unwrap_or_default();
            if !text.is_empty() {
                asked.push(text);
                let _ = fs::write(&reclaim, "");
            }
        }
        asked
    }
}

fn pressure(total_us: u64) -> String {
    let line = |kind| format!("{kind} avg10=0.00 avg60=0.00 avg300=0.00 total={total_us}\n");
    line("some") + &line("full")
}

fn signals() -> Signals {
    Signals::block(&[Signal::HUP.as_raw()]).unwrap()
}

#[test]
fn an_hour_of_turns_takes_no_time_and_takes_a_little_each() {
    let (machine, signals, began) = (Machine::new(), signals(), std::time::Instant::now());
    let mut agent = machine.agent("");
    let asked = machine.run(&mut agent, &signals, 3600);
    // The policy takes something every ten seconds.
    assert!((340..=361).contains(&asked.len()), "{}", asked.len());
    let bytes: u64 = asked[0].split_whitespace().next().unwrap().parse().unwrap();
    assert!((1..20 * MIB).contains(&bytes), "{}", asked[0]);
    assert!(began.elapsed() < Duration::from_secs(600));
}

#[test]
fn who_waits_for_memory_is_left_alone() {
    let (machine, signals) = (Machine::new(), signals());
    let mut agent = machine.agent("");
    machine.run(&mut agent, &signals, 20);
    let mut asked = 0;
    for turn in 1..20 {
        // Three of five seconds.
        machine.holds(400 * MIB, turn * 3_000_000);
        asked += machine.run(&mut agent, &signals, 5).len();
    }
    assert!(asked <= 1, "{asked} of 19 turns took something");
}

#[test]
fn a_workload_that_goes_and_comes_again_is_followed() {
    let (machine, signals) = (Machine::new(), signals());
    let mut agent = machine.agent("");
    assert!(!machine.run(&mut agent, &signals, 60).is_empty());
    fs::remove_dir_all(machine.dir.path().join("cg/job")).unwrap();
    assert!(machine.run(&mut agent, &signals, 60).is_empty());
    assert!(!machine.dir.path().join("cg/job").exists(), "nothing is written where it was");
    machine.put("cg/job/cgroup.procs", "9\n");
    machine.holds(300 * MIB, 0);
    assert!(!machine.run(&mut agent, &signals, 120).is_empty());
}

#[test]
fn a_stop_file_and_a_suspend_are_survived() {
    let (machine, signals) = (Machine::new(), signals());
    let stop = machine.dir.path().join("stop");
    let mut agent = machine.agent("");
    agent.reclaim = CgroupReclaim::new(&agent.kernel, stop.clone(), false);
    assert!(!machine.run(&mut agent, &signals, 60).is_empty());
    fs::write(&stop, "").unwrap();
    assert!(machine.run(&mut agent, &signals, 60).is_empty());
    fs::remove_file(&stop).unwrap();
    machine.clock.advance(Duration::from_secs(8 * 3600));
    assert!(!machine.run(&mut agent, &signals, 60).is_empty());
}

#[test]
fn what_the_kernel_refuses_is_no_end() {
    let (machine, signals) = (Machine::new(), signals());
    let mut agent = machine.agent("");
    let reclaim = machine.dir.path().join("cg/job/memory.reclaim");
    fs::remove_file(&reclaim).unwrap();
    assert!(machine.run(&mut agent, &signals, 60).is_empty());
    assert!(!Path::new(&reclaim).exists());
    machine.holds(400 * MIB, 0);
    assert!(!machine.run(&mut agent, &signals, 120).is_empty(), "it goes on once it can");
}

#[test]
fn a_write_that_fails_with_eio_is_no_end() {
    let (machine, signals) = (Machine::new(), signals());
    let mut agent = machine.agent("");
    let reclaim = machine.dir.path().join("cg/job/memory.reclaim");
    fs::remove_file(&reclaim).unwrap();
    // Nothing is mapped at address 0: writing there fails with EIO.
    std::os::unix::fs::symlink("/proc/self/mem", &reclaim).unwrap();
    let end_ns = machine.clock.now_ns() + 60_000_000_000;
    while machine.clock.now_ns() < end_ns {
        assert!(scheduler::step(&agent.kernel.clone(), &signals, &mut agent).unwrap().is_none());
    }
    let tried = agent.workloads.all.values().next().unwrap().totals;
    assert!(
        tried.requests.0 > 0.0 && tried.requests.1 == tried.requests.0 && tried.reclaimed.total() == 0.0,
        "{tried:?}"
    );
    fs::remove_file(&reclaim).unwrap();
    machine.holds(400 * MIB, 0);
    assert!(!machine.run(&mut agent, &signals, 120).is_empty(), "it goes on once it can");
}

#[test]
fn a_workload_that_grows_is_asked_for_more() {
    let (machine, signals) = (Machine::new(), signals());
    let mut agent = machine.agent("");
    let bytes = |asked: &[String]| asked.last().unwrap().split_whitespace().next().unwrap().parse::<u64>().unwrap();
    let small = bytes(&machine.run(&mut agent, &signals, 60));
    machine.holds(1600 * MIB, 0);
    let large = bytes(&machine.run(&mut agent, &signals, 60));
    assert!(large > 2 * small, "{small} of 400 MiB, {large} of 1600 MiB");
}

#[test]
fn a_thousand_workloads_are_held() {
    let (machine, signals) = (Machine::new(), signals());
    machine.put("proc/swaps", "Filename\tType\tSize\tUsed\tPriority\n/dev/zram0 partition 1000000000 100 5\n");
    for number in 0..1000 {
        for entry in fs::read_dir(machine.dir.path().join("cg/job")).unwrap().flatten().filter(|e| e.path().is_file()) {
            let text = fs::read_to_string(entry.path()).unwrap();
            machine.put(&format!("cg/job-{number}/{}", entry.file_name().display()), &text);
        }
        machine.put(&format!("cg/job-{number}/cgroup.procs"), &format!("{}\n", 100 + number));
    }
    machine.run(&mut machine.agent(""), &signals, 40);
    let asked =
        |number: i32| fs::read_to_string(machine.dir.path().join(format!("cg/job-{number}/memory.reclaim"))).unwrap();
    assert_eq!((0..1000).filter(|number| asked(*number).is_empty()).count(), 0);
}
