//! The thread that works for a monitor: it configures DAMON's kdamonds, or samples the idle bitmap in their place.
//!
//! The kernel answers a commit when the current sampling interval is over, and until then refuses every other write to
//! DAMON's files with `EBUSY`: so all writes come from one thread, and the tick does not wait for it.

use std::fs::File;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use super::bitmap::BitmapSampler;
use crate::damon::{Damon, KdamondSetup, SchemeStats};
use crate::root::{Kernel, Result};
use crate::sys::thread_cpu_s;
use crate::system::monotonic_ns;
use crate::trace::{Trace, TraceEvent};

/// What the thread is to do for a part of the monitor, [`COHORT`](super::damon::COHORT) or [`MAP`](super::damon::MAP).
#[derive(Debug)]
pub(super) enum Request {
    Configure {
        part: usize,
        setup: KdamondSetup,
    },
    /// Read what this many schemes did.
    Stats {
        part: usize,
        schemes: usize,
    },
}

/// The result of a request.
#[derive(Debug)]
pub(super) struct Response {
    pub part: usize,
    /// Whether sampling began with it; otherwise it goes on.
    pub started: bool,
    /// The kdamond's pid, if it was switched on.
    pub pid: Option<u32>,
    /// When the configuration took effect, `CLOCK_MONOTONIC` nanoseconds.
    pub at_ns: u64,
    /// CPU seconds that the request took.
    pub cost_s: f64,
    /// What the schemes did, if that was requested.
    pub result: Result<Option<Vec<SchemeStats>>>,
}

#[derive(Debug)]
pub(super) enum Message {
    Response(Response),
    /// What the thread itself sampled, and the CPU seconds it took.
    Sampled {
        part: usize,
        events: Vec<TraceEvent>,
        cpu_s: f64,
    },
}

/// The thread, and what comes from it.
#[derive(Debug)]
pub(super) struct Sampler {
    requests: Option<Sender<Request>>,
    messages: Receiver<Message>,
    thread: Option<JoinHandle<()>>,
    /// The kdamonds' samples; `None` where the thread samples.
    trace: Option<Box<Trace>>,
    /// CPU seconds that the thread spent on sampling so far, by part.
    cpu_s: [f64; 2],
}

impl Sampler {
    /// Kdamonds sample. The thread keeps DAMON until this is dropped.
    pub(super) fn kdamonds(mut damon: Damon, trace: Trace) -> Self {
        let work = move |requests: Receiver<Request>, messages: Sender<Message>| {
            for request in requests {
                if messages.send(Message::Response(carry_out(&mut damon, &request))).is_err() {
                    break;
                }
            }
        };
        Self::spawn(Some(Box::new(trace)), work)
    }

    /// The thread samples the idle bitmap. `lock` keeps other instances from it: each would clear the marks of the other.
    pub(super) fn bitmap(kernel: &Kernel, lock: Option<File>) -> Result<Self> {
        let mut sampler = BitmapSampler::open(kernel)?;
        Ok(Self::spawn(None, move |requests, messages| {
            let _lock = lock;
            sampler.run(&requests, &messages);
        }))
    }

    fn spawn(
        trace: Option<Box<Trace>>,
        work: impl FnOnce(Receiver<Request>, Sender<Message>) + Send + 'static,
    ) -> Self {
        let (requests, inbox) = channel();
        let (outbox, messages) = channel();
        let thread = std::thread::spawn(move || work(inbox, outbox));
        Self { requests: Some(requests), messages, thread: Some(thread), trace, cpu_s: [0.0; 2] }
    }

    pub(super) fn send(&self, request: Request) {
        if let Some(requests) = &self.requests {
            // The thread ends only after this does.
            let _ = requests.send(request);
        }
    }

    /// Results of requests since the last call; what was sampled is appended to `events`.
    pub(super) fn receive(&mut self, events: &mut Vec<TraceEvent>) -> Result<Vec<Response>> {
        let mut responses = Vec::new();
        for message in self.messages.try_iter() {
            match message {
                Message::Response(response) => responses.push(response),
                Message::Sampled { part, events: sampled, cpu_s } => {
                    events.extend(sampled);
                    self.cpu_s[part] += cpu_s;
                }
            }
        }
        if let Some(trace) = &mut self.trace {
            trace.read(events)?;
        }
        Ok(responses)
    }

    /// CPU seconds that lowtide's own process spent on sampling a part so far; `None` where kernel threads sample.
    pub(super) fn own_cpu_s(&self, part: usize) -> Option<f64> {
        self.is_bitmap().then(|| self.cpu_s[part])
    }

    /// Trace events that were lost so far.
    pub(super) fn lost(&self) -> u64 {
        self.trace.as_ref().map_or(0, |trace| trace.lost)
    }

    pub(super) fn is_bitmap(&self) -> bool {
        self.trace.is_none()
    }
}

impl Drop for Sampler {
    /// Waits for the request that is being carried out: DAMON can only be given back after it.
    fn drop(&mut self) {
        drop(self.requests.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn carry_out(damon: &mut Damon, request: &Request) -> Response {
    let before = thread_cpu_s();
    let (part, started, result) = match request {
        Request::Configure { part, setup } => {
            // A kdamond that follows processes ends with the last of them.
            let start = damon.pid(*part).is_none();
            let done = if start { damon.start(*part, setup) } else { damon.commit(*part, setup) };
            (*part, start, done.map(|()| None))
        }
        Request::Stats { part, schemes } => {
            let stats = match damon.scheme_stats(*part, *schemes) {
                // It has ended with its targets, and its counts with it.
                Err(error) if error.is_invalid() => Ok(Some(Vec::new())),
                other => other.map(Some),
            };
            (*part, false, stats)
        }
    };
    let at_ns = monotonic_ns();
    let pid = if started { damon.pid(part) } else { None };
    Response { part, started, pid, at_ns, cost_s: thread_cpu_s() - before, result }
}
