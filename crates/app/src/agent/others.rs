//! Others at work on the same workloads (Senpai, koordlet, an operator's script): noticed by what they do, and left alone.

/// A limit that was changed so often is somebody's means, and not a setting.
const CHANGES: usize = 2;
/// Seconds for which a change counts.
const COUNTS_S: f64 = 600.0;

/// What others did to one workload.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Others {
    /// The last `memory.high`, once it was looked at.
    high: Option<u64>,
    /// When it was changed.
    changed_s: Vec<f64>,
}

impl Others {
    /// Takes in a look at `memory.high` (`u64::MAX` = none); lowtide never sets it.
    pub fn see(&mut self, high: Option<u64>, now_s: f64) {
        // A clock that was set back must not keep what was.
        self.changed_s.retain(|at_s| (0.0..COUNTS_S).contains(&(now_s - at_s)));
        let Some(high) = high else { return };
        if self.high.replace(high).is_some_and(|before| before != high) {
            // The last ones are enough.
            self.changed_s.push(now_s);
            let old = self.changed_s.len().saturating_sub(CHANGES);
            self.changed_s.drain(..old);
        }
    }

    /// Whether somebody else makes this workload smaller: both at once would each take the other's doing for its own.
    #[must_use]
    pub fn are_at_work(&self) -> bool {
        self.changed_s.len() >= CHANGES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_change_is_a_setting_and_two_are_an_agent_until_it_rests() {
        let mut others = Others::default();
        for (now_s, high, at_work) in [
            (0.0, Some(u64::MAX), false),
            (5.0, Some(100), false),
            (10.0, Some(100), false),
            (15.0, None, false),
            (20.0, Some(90), true),
            (25.0, Some(80), true),
            (619.0, Some(80), true),
            (626.0, Some(80), false),
        ] {
            others.see(high, now_s);
            assert_eq!(others.are_at_work(), at_work, "{now_s}");
        }
    }
}
