//! Splits a stream of events into snapshots.

use crate::trace::TraceEvent;

/// The first complete snapshot of one kdamond's events, and what follows it. A target's regions are traced in one go,
/// ascending, `nr_regions` events each; all targets of one aggregation follow each other at once, though a kdamond may be
/// made to wait in between: for less than `gap_ns`. `None` while a target's regions are still to come. Where events were
/// lost, the next aggregation ends the snapshot.
pub(super) fn split_snapshot(events: &[TraceEvent], gap_ns: u64) -> Option<(&[TraceEvent], &[TraceEvent])> {
    let mut end = 0;
    while let Some(first) = events.get(end) {
        let apart = |a: &TraceEvent, b: &TraceEvent| b.time_ns > a.time_ns + gap_ns;
        if end > 0 && (apart(&events[end - 1], first) || first.target == events[end - 1].target) {
            break;
        }
        let of_target = events[end..]
            .windows(2)
            .take_while(|pair| {
                pair[1].target == first.target && pair[1].start > pair[0].start && !apart(&pair[0], &pair[1])
            })
            .count()
            + 1;
        let regions = usize::try_from(first.nr_regions).unwrap_or(usize::MAX);
        end += of_target.min(regions.max(1));
        if end == events.len() && of_target < regions {
            return None;
        }
    }
    (end > 0).then(|| events.split_at(end))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(time_ns: u64, nr_regions: u32, start: u64) -> TraceEvent {
        TraceEvent { time_ns, kdamond: 1, target: 0, nr_regions, start, end: start + 4096, nr_accesses: 0, age: 0 }
    }

    #[test]
    fn snapshots_are_distinguished_and_incomplete_ones_wait() {
        let second = 1_000_000_000;
        let events = [
            event(1, 2, 0),
            event(2, 2, 4096),
            event(second, 1, 0),
            TraceEvent { target: 1, ..event(second + 5, 2, 0) },
        ];
        let (snapshot, rest) = split_snapshot(&events, 1000).unwrap();
        assert_eq!((snapshot.len(), rest.len()), (2, 2));
        assert!(split_snapshot(rest, 1000).is_none(), "a second target has begun and is not complete");
        assert!(split_snapshot(&[], 1000).is_none());
        // One of three events was lost; the next aggregation shows that it will not come.
        let lost = [event(1, 3, 0), event(2, 3, 8192), event(second, 1, 0)];
        assert_eq!(split_snapshot(&lost, 1000).unwrap().0.len(), 2);
    }
}
