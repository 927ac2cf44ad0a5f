//! The fallback where there is no DAMON: `clear_refs` takes back all accessed bits of a process, `smaps` later tells
//! how much was referenced since. The kernel walks all pages for either, so it is done as seldom as the price demands.
//!
//! One round clears, then reads after 1, 5, 10, … seconds: the referenced bytes are the working sets of these windows.
//! A row of the record holds only the window that was read at its time.

use lowtide_model::WINDOWS_S;
use lowtide_model::cohort::{AgeBin, Estimate, Picture};

use super::Target;
use crate::root::{Kernel, Result, keyed};

/// Referenced bytes of one process, anonymous and file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Referenced {
    /// In anonymous mappings, heap and stacks.
    pub anon: u64,
    /// In mappings of files.
    pub file: u64,
}

/// Sums `Referenced` over the mappings of an smaps file. A line that starts with an address range opens a mapping; one
/// whose inode is not 0 is a file's.
#[must_use]
pub fn parse_referenced(text: &str) -> Referenced {
    let mut sum = Referenced::default();
    let mut of_file = false;
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("Referenced:") {
            let bytes = keyed(&format!("Referenced: {rest}")).next().map_or(0, |(_, bytes)| bytes);
            *(if of_file { &mut sum.file } else { &mut sum.anon }) += bytes;
        } else if line.as_bytes().first().is_some_and(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(b)) {
            of_file = line.split_whitespace().nth(4).is_some_and(|inode| inode != "0");
        }
    }
    sum
}

/// How many windows the rounds reach: mostly the shortest, now and then ten seconds, seldom two minutes.
const REACHES: [usize; 9] = [3, 1, 1, 1, 3, 1, 1, 1, WINDOWS_S.len()];

/// The monitor.
#[derive(Debug)]
pub struct SmapsMonitor {
    kernel: Kernel,
    cleared_s: Option<f64>,
    next: usize,
    rounds: usize,
    sets: [Option<Referenced>; WINDOWS_S.len()],
}

impl SmapsMonitor {
    /// A monitor; fails if a process of the target does not let itself be cleared.
    pub fn new(kernel: &Kernel, target: &Target) -> Result<Self> {
        for pid in &target.pids {
            match kernel.check_writable(format!("/proc/{pid}/clear_refs")) {
                Err(e) if !e.is_gone() => return Err(e),
                _ => {}
            }
        }
        Ok(Self { kernel: kernel.clone(), cleared_s: None, next: 0, rounds: 0, sets: [None; WINDOWS_S.len()] })
    }

    /// Whether there is something to do now: a round to begin, or a window that has passed.
    #[must_use]
    pub fn is_due(&self, now_s: f64) -> bool {
        // A tick comes a little early or late.
        self.cleared_s.is_none_or(|cleared| now_s - cleared >= f64::from(WINDOWS_S[self.next]) - 0.05)
    }

    /// Begins a round, or reads one window; then the picture of what was read in this round.
    pub fn step(&mut self, now_s: f64, target: &Target) -> Result<Option<Picture>> {
        if self.cleared_s.is_none() {
            for pid in &target.pids {
                match self.kernel.write(format!("/proc/{pid}/clear_refs"), "1") {
                    Err(e) if !e.is_gone() => return Err(e),
                    _ => {}
                }
            }
            (self.cleared_s, self.next) = (Some(now_s), 0);
            self.sets = [None; WINDOWS_S.len()];
            return Ok(None);
        }
        let mut sum = Referenced::default();
        for pid in &target.pids {
            let text = match self.kernel.read_text(format!("/proc/{pid}/smaps")) {
                Err(e) if e.is_gone() => continue,
                other => other?,
            };
            let referenced = parse_referenced(&text);
            (sum.anon, sum.file) = (sum.anon + referenced.anon, sum.file + referenced.file);
        }
        self.sets[self.next] = Some(sum);
        let picture = self.picture(target);
        self.next += 1;
        if self.next == REACHES[self.rounds % REACHES.len()] {
            self.rounds += 1;
            self.cleared_s = None;
        }
        Ok(Some(picture))
    }

    fn picture(&self, target: &Target) -> Picture {
        #[expect(clippy::cast_precision_loss, reason = "sizes of memory")]
        let sizes = |set: &Referenced| [set.anon as f64, set.file as f64];
        let mut picture = Picture::default();
        picture.working_set[self.next] =
            self.sets[self.next].as_ref().map(|set| Estimate { bytes: sizes(set).iter().sum(), ci95: 0.0 });
        for (anon, side) in [(true, 0), (false, 1)] {
            let total = if anon { target.totals[0] } else { target.totals[1] };
            let (mut reached, mut min_s) = (0.0, 0.0);
            for (window, set) in WINDOWS_S.iter().zip(&self.sets) {
                let Some(set) = set else { continue };
                let bytes = (sizes(set)[side] - reached).max(0.0);
                let max_s = f64::from(*window);
                picture.ages.push(AgeBin { anon, min_s, max_s: Some(max_s), size: Estimate { bytes, ci95: 0.0 } });
                (reached, min_s) = (reached + bytes, max_s);
            }
            let size = Estimate { bytes: (total - reached).max(0.0), ci95: 0.0 };
            picture.ages.push(AgeBin { anon, min_s, max_s: None, size });
        }
        picture
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn anonymous_and_file_mappings_are_told_apart() {
        let text = "7f00-7f10 rw-p 00000000 00:00 0 \nRss: 8 kB\nReferenced:            4 kB\n7f20-7f30 r--p 00000000 fe:00 77 /lib/x\nReferenced:  12 kB\nVmFlags: rd\nffff-fffff rw-p 00000000 00:00 0 [stack]\nReferenced: 8 kB\n";
        assert_eq!(parse_referenced(text), Referenced { anon: 12288, file: 12288 });
    }

    proptest! {
        #[test]
        fn any_text_is_survived(text in "(\\PC|\\n)*") {
            let _ = parse_referenced(&text);
        }
    }
}
