//! The bottom line in words, as the terminal, the page and `lowtide budget` show it first.

use lowtide_model::bottom_line::{BottomLine, PhaseUse, Use};
use lowtide_model::phase::PhaseKind;
use lowtide_model::units::{float, human_bytes, human_seconds};

use super::summary::Bar;
use super::text::{Grid, capital, whole_bytes};

const MIB: u64 = 1 << 20;
/// Readings are alike where they differ by less than one in so many.
const ALIKE: u64 = 8;
/// Phases whose use differs by more than this factor are named one by one.
const DIFFERS: f64 = 1.5;

/// A limit to paste: in MiB, rounded up.
#[must_use]
pub fn limit(bytes: u64) -> String {
    format!("{} MiB", bytes.div_ceil(MIB))
}

/// What was used, with its interval, or else from how many readings.
fn used(of: &Use) -> Option<String> {
    let (bytes, window_s) = of.used_bytes.zip(of.window_s)?;
    let half = of.used_high_bytes.map(|high| high.saturating_sub(bytes));
    let within = format!("in any {window_s} s");
    let (figure, readings) = match half {
        Some(half) => (plus_minus(bytes, half), String::new()),
        None if of.readings == 1 => (whole_bytes(Some(bytes)), ", one reading".to_owned()),
        None => (range(of), format!(", {} readings", of.readings)),
    };
    Some(format!("{figure} ({within}{readings})"))
}

/// A few readings: their mean, or where they differ, from which to which. What lies between was not measured.
fn range(of: &Use) -> String {
    match of.used_min_bytes.zip(of.used_max_bytes) {
        Some((min, max)) if max - max.min(min) > max / ALIKE => {
            format!("{} to {}", whole_bytes(Some(min)), whole_bytes(Some(max)))
        }
        _ => whole_bytes(of.used_bytes),
    }
}

/// A size with its half-width in the same unit.
fn plus_minus(bytes: u64, half: u64) -> String {
    let text = whole_bytes(Some(bytes));
    let (figure, unit) = text.split_once(' ').unwrap_or((&text, ""));
    let in_unit = figure.parse::<f64>().ok().filter(|figure| *figure > 0.0 && bytes > 0);
    let Some(in_unit) = in_unit else { return format!("{text} ± {}", whole_bytes(Some(half))) };
    let half = float(half) * in_unit / float(bytes);
    let digits = if half < 0.1 { 2 } else { usize::from(half < 10.0) };
    format!("{figure} ± {half:.digits$} {unit}")
}

fn give(of: &BottomLine) -> String {
    let Some(no_swap) = of.no_swap_bytes else { return "How much memory to give it is unknown.".to_owned() };
    let no_swap = limit(no_swap);
    let swap = of.with_swap_bytes.zip(of.swap_bytes).map(|(bytes, swap)| {
        let price = of.with_swap_slowdown_percent.map_or_else(String::new, |percent| format!(", +{percent:.1} % time"));
        format!("{} (with {} of swap{price})", limit(bytes), limit(swap))
    });
    match swap {
        Some(swap) => format!("Give it {no_swap} (no swap) or {swap}."),
        None if of.basis.as_deref() == Some("peak") => format!("Give it {no_swap}: the peak of this run."),
        None => format!("Give it {no_swap}."),
    }
}

/// What was used in steady state, of how much that was resident; `None` where no reading lies in one.
#[must_use]
pub fn in_use(of: &BottomLine) -> Option<String> {
    let resident = of.steady.resident_bytes.map(|bytes| format!(" of {} resident", whole_bytes(Some(bytes))));
    Some(used(&of.steady.used)? + &resident.unwrap_or_default())
}

fn use_of(of: &BottomLine) -> Option<String> {
    let steady = &of.steady;
    let start = of.start_up.touched_bytes.zip(of.start_up.seconds);
    let start = start
        .map(|(bytes, seconds)| format!("start-up touches {} in {}", whole_bytes(Some(bytes)), human_seconds(seconds)));
    let Some(used) = in_use(of) else {
        if steady.seconds <= 0.0 {
            return None;
        }
        return Some(format!("{}.", capital(&start?)));
    };
    let start = start.map_or_else(String::new, |start| format!("; {start}"));
    Some(format!("Steady state uses {used}{start}."))
}

/// Phases of steady use that differ, each from when on.
fn changes(of: &BottomLine) -> Option<String> {
    let known = |of: &&PhaseUse| of.phase.kind == PhaseKind::Steady && of.used.used_bytes.is_some();
    // Longer windows hold more: only what was read by the same one compares.
    let window_s = of.phases.iter().filter(known).filter_map(|of| of.used.window_s).min();
    let phases: Vec<&PhaseUse> = of.phases.iter().filter(known).filter(|of| of.used.window_s == window_s).collect();
    let sizes: Vec<f64> = phases.iter().filter_map(|of| of.used.used_bytes).map(float).collect();
    let (most, least) =
        (sizes.iter().copied().fold(0.0, f64::max), sizes.iter().copied().fold(f64::INFINITY, f64::min));
    if sizes.len() < 2 || most <= DIFFERS * least {
        return None;
    }
    let each = phases
        .iter()
        .zip(&sizes)
        .map(|(of, bytes)| format!("{} from {} on", human_bytes(*bytes), human_seconds(of.phase.from_s)));
    Some(format!("Its use changed: {}.", each.collect::<Vec<_>>().join(", ")))
}

/// The bottom line, one paragraph.
#[must_use]
pub fn sentences(of: &BottomLine) -> String {
    let doubts = of.doubts.iter().map(|doubt| format!("{}.", capital(doubt)));
    let lines = [Some(give(of)), use_of(of), changes(of)].into_iter().flatten();
    lines.chain(doubts).collect::<Vec<_>>().join(" ")
}

/// Its figures as bars of a page in one scale, without those that are not known.
pub(super) fn bars(of: &BottomLine) -> Vec<Bar> {
    let used = &of.steady.used;
    let basis = match of.basis.as_deref() {
        Some("peak") => "the peak of this run",
        Some("pages") => "from sampled pages",
        Some(_) => "from working sets",
        None => "",
    };
    let swap = of.swap_bytes.map_or_else(String::new, |swap| format!("and {} of swap", limit(swap)));
    let (figure, sure) = match used.used_high_bytes.zip(used.used_bytes) {
        Some((high, bytes)) => {
            (whole_bytes(used.used_bytes), format!("± {}", whole_bytes(Some(high.saturating_sub(bytes)))))
        }
        None if used.readings == 1 => (range(used), "one reading".to_owned()),
        None => (range(used), format!("{} readings", used.readings)),
    };
    let window = used.window_s.map_or_else(String::new, |window_s| format!(" in any {window_s} s"));
    let size = |bytes: Option<u64>| whole_bytes(bytes);
    let row = |bytes: Option<u64>, value: String, kind, name: &str, under: String| {
        bytes.map(|bytes| (bytes, Bar { value, kind, name: name.to_owned(), under, percent: String::new() }))
    };
    let resident = of.steady.resident_bytes;
    let all = [
        row(used.used_bytes, figure, "used", &format!("Used{window}"), sure),
        row(resident, size(resident), "resident", "Resident in steady state", String::new()),
        row(of.peak_bytes, size(of.peak_bytes), "peak", "Peak of all memory", String::new()),
        row(
            of.no_swap_bytes,
            of.no_swap_bytes.map(limit).unwrap_or_default(),
            "give",
            "Give it, without swap",
            basis.to_owned(),
        ),
        row(of.with_swap_bytes, of.with_swap_bytes.map(limit).unwrap_or_default(), "give", "Give it, with swap", swap),
    ];
    let known: Vec<(u64, Bar)> = all.into_iter().flatten().collect();
    let most = float(known.iter().map(|(bytes, _)| *bytes).max().unwrap_or(1).max(1));
    known
        .into_iter()
        .map(|(bytes, bar)| Bar { percent: format!("{:.1}", 100.0 * float(bytes) / most), ..bar })
        .collect()
}

/// The phases of the run.
#[must_use]
pub fn phases(of: &BottomLine) -> Grid {
    let head = ["", "from", "to", "resident", "first touched", "used", "in any", "±", "readings"];
    let mut grid = Grid::new("Phases", &head);
    for of in &of.phases {
        let name = match of.phase.kind {
            PhaseKind::StartUp => "start-up",
            PhaseKind::Growth => "growth",
            PhaseKind::Steady => "steady",
        };
        let times = [of.phase.from_s, of.phase.to_s].map(human_seconds);
        let half = of.used.used_high_bytes.zip(of.used.used_bytes).map(|(high, used)| high.saturating_sub(used));
        let window = of.used.window_s.map_or_else(|| "-".to_owned(), |window_s| format!("{window_s} s"));
        let sizes = [of.resident_bytes, of.first_touched_bytes, of.used.used_bytes].map(whole_bytes);
        let readings = if of.used.readings > 0 { of.used.readings.to_string() } else { "-".to_owned() };
        let cells = [name.to_owned()].into_iter().chain(times).chain(sizes);
        grid.row(cells.chain([window, whole_bytes(half), readings]));
    }
    grid
}

#[cfg(test)]
mod tests {
    use super::*;
    use lowtide_model::bottom_line::{StartUp, Steady};
    use lowtide_model::phase::Phase;

    fn line() -> BottomLine {
        let used = Use {
            used_bytes: Some(50 * MIB),
            used_low_bytes: Some(46 * MIB),
            used_high_bytes: Some(54 * MIB),
            used_min_bytes: Some(48 * MIB),
            used_max_bytes: Some(53 * MIB),
            window_s: Some(10),
            readings: 3,
        };
        BottomLine {
            no_swap_bytes: Some(1509 * MIB),
            with_swap_bytes: Some(96 * MIB),
            swap_bytes: Some(1413 * MIB),
            with_swap_slowdown_percent: Some(0.4),
            basis: Some("histograms".to_owned()),
            steady: Steady { seconds: 60.0, resident_bytes: Some(507 * MIB), used },
            start_up: StartUp { recorded: true, seconds: Some(3.0), touched_bytes: Some(507 * MIB) },
            ..BottomLine::default()
        }
    }

    #[test]
    fn the_bottom_line_says_what_to_give_and_what_is_used() {
        assert_eq!(
            sentences(&line()),
            "Give it 1509 MiB (no swap) or 96 MiB (with 1413 MiB of swap, +0.4 % time). Steady state uses 50.0 ± 4.0 MiB (in any 10 s) of 507 MiB resident; start-up touches 507 MiB in 3.0 s."
        );
        let bars = bars(&line());
        assert_eq!((bars[0].value.as_str(), bars[0].percent.as_str()), ("50.0 MiB", "3.3"));
        assert_eq!((bars[2].value.as_str(), bars[2].percent.as_str()), ("1509 MiB", "100.0"));
    }

    #[test]
    fn what_is_not_known_is_said() {
        let mut of = line();
        (of.with_swap_bytes, of.basis) = (None, Some("peak".to_owned()));
        of.steady = Steady { seconds: 9.0, ..Steady::default() };
        of.doubts = vec!["no monitor sampled its accesses".to_owned()];
        assert_eq!(
            sentences(&of),
            "Give it 1509 MiB: the peak of this run. Start-up touches 507 MiB in 3.0 s. No monitor sampled its accesses."
        );
        assert_eq!(sentences(&BottomLine::default()), "How much memory to give it is unknown.");
    }

    #[test]
    fn a_few_readings_say_how_many_they_are() {
        let mut of = line();
        (of.steady.used.used_low_bytes, of.steady.used.used_high_bytes, of.steady.used.readings) = (None, None, 1);
        assert!(sentences(&of).contains("uses 50.0 MiB (in any 10 s, one reading) of"), "{}", sentences(&of));
        (of.steady.used.used_min_bytes, of.steady.used.readings) = (Some(20 * MIB), 2);
        assert!(
            sentences(&of).contains("uses 20.0 MiB to 53.0 MiB (in any 10 s, 2 readings) of"),
            "{}",
            sentences(&of)
        );
        let phase = |from_s: f64, mib: u64| PhaseUse {
            phase: Phase { kind: PhaseKind::Steady, from_s, to_s: from_s + 9.0 },
            resident_bytes: None,
            first_touched_bytes: None,
            used: Use { used_bytes: Some(mib * MIB), window_s: Some(1), readings: 2, ..Use::default() },
        };
        of.phases = vec![phase(3.0, 50), phase(60.0, 120)];
        assert!(
            sentences(&of).contains("Its use changed: 50.0 MiB from 3.0 s on, 120 MiB from 60.0 s on."),
            "{}",
            sentences(&of)
        );
        assert_eq!(phases(&of).rows.len(), 2);
    }
}
