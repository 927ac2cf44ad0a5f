//! Programs that run together in less memory than they would have alone: how much slower each is for it.

use lowtide_model::PAGE;
use lowtide_model::stats;
use lowtide_model::units::integer;

use super::order::PlannedRun;
use super::outcome::RunOutcome;
use super::runner::RunSpec;
use super::suite::{Mix, ORIGINAL, Suite};
use super::tables::counting;
use lowtide_report::forest::Chapter;
use lowtide_report::text::Grid;
use lowtide_report::together::Line;

/// Whether a run is needed for the results. Where there are mixes, programs alone are only what those are compared with; and what a mix's
/// programs need is known from when they were warmed up, so it needs no warm-up of its own.
#[must_use]
pub fn is_needed(suite: &Suite, turn: &PlannedRun) -> bool {
    let alone = turn.program < suite.programs.len();
    suite.mixes.is_empty() || if alone { turn.config == 0 } else { turn.round > 0 }
}

/// What is run: programs by their place in the suite, then mixes.
///
/// # Errors
/// If what a mix's programs need is not known.
pub fn spec<'a>(suite: &'a Suite, index: usize, runs: &[RunOutcome]) -> Result<RunSpec<'a>, String> {
    if let Some(program) = suite.programs.get(index) {
        return Ok(RunSpec { name: &program.name, programs: vec![program], limit: None });
    }
    let mix = &suite.mixes[index - suite.programs.len()];
    let named = |name: &String| suite.programs.iter().find(|program| program.name == *name);
    Ok(RunSpec {
        name: &mix.name,
        programs: mix.programs.iter().filter_map(named).collect(),
        limit: Some(limit(mix, runs)?),
    })
}

/// Bytes that a mix's programs have together: so much less than the sum of what each had at most when it was warmed up alone.
fn limit(mix: &Mix, runs: &[RunOutcome]) -> Result<u64, String> {
    let peak = |name: &String| {
        let alone = runs.iter().find(|run| run.round == 0 && run.program == *name && run.failure.is_none());
        alone.and_then(|run| run.peak_bytes).ok_or_else(|| {
            format!("{}: what {name} needs is not known, as it did not run well alone; see its log", mix.name)
        })
    };
    let sum: f64 = mix.programs.iter().map(peak).sum::<Result<f64, String>>()?;
    Ok(integer((1.0 - mix.shortage.0) * sum) / PAGE * PAGE)
}

/// The tables of all mixes: each program's slowdown against running alone, its major faults, and the makespan.
#[must_use]
pub fn grids(suite: &Suite, runs: &[RunOutcome], configs: &[String]) -> Vec<Grid> {
    if suite.mixes.is_empty() {
        return Vec::new();
    }
    let head = |first: &[&str], unit: &str| {
        let mut head: Vec<String> = first.iter().map(ToString::to_string).collect();
        for config in configs {
            head.extend([format!("{config}{unit}"), String::new()]);
        }
        head
    };
    let grid = |title: &str, head| Grid { title: title.to_owned(), head, rows: Vec::new(), remarks: false };
    let mut slow =
        grid("Programs together: mean time, and compared with alone", head(&["mix", "program", "alone, s"], ", s"));
    let mut faults = grid("Major faults, mean and percent over orig", head(&["mix", "program", "alone"], ""));
    let mut span = grid(
        "Time until the last one ends, mean, and compared with one after the other",
        head(&["mix", "one after the other, s"], ", s"),
    );
    for mix in &suite.mixes {
        let alone = |name: &String, get: Get| mean(counting(runs, name, ORIGINAL), get);
        for (index, name) in mix.programs.iter().enumerate() {
            let of = |config: &String, get: Get| mean(parts(mix, index, runs, config).iter(), get);
            let bare = alone(name, time);
            let mut row = vec![mix.name.clone(), name.clone(), number(bare, 1)];
            for config in configs {
                let time = of(config, time);
                row.push(time.map_or_else(|| end(mix, index, runs, config), |time| number(Some(time), 1)));
                row.push(number(ratio(time, bare), 2));
            }
            slow.row(row);
            let mut row = vec![mix.name.clone(), name.clone(), number(alone(name, major), 0)];
            for config in configs {
                let (here, original) = (of(config, major), of(&ORIGINAL.to_owned(), major));
                let over = ratio(here, original).map(|ratio| 100.0 * (ratio - 1.0));
                row.push(number(here, 0));
                row.push(over.filter(|_| config != ORIGINAL).map_or_else(String::new, |over| format!("{over:+.1} %")));
            }
            faults.row(row);
        }
        let one_by_one: Option<f64> = mix.programs.iter().map(|name| alone(name, time)).sum();
        let mut row = vec![mix.name.clone(), number(one_by_one, 1)];
        for config in configs {
            let took = mean(counting(runs, &mix.name, config), time);
            row.extend([number(took, 1), number(ratio(took, one_by_one), 2)]);
        }
        span.row(row);
    }
    vec![slow, faults, span]
}

/// The tables, and what each program asked for and had over time, mix by mix, in the last round.
#[must_use]
pub fn chapters(suite: &Suite, runs: &[RunOutcome], configs: &[String]) -> Vec<Chapter> {
    let grids = grids(suite, runs, configs);
    if grids.is_empty() {
        return Vec::new();
    }
    let title = "Programs together".to_owned();
    let meaning = "Time of each program together with the others, compared with alone. Together they have less memory than they use alone.".to_owned();
    let mut chapters = vec![Chapter { title, meaning, grids, ..Chapter::default() }];
    for mix in &suite.mixes {
        for config in configs {
            let mut of = runs.iter().filter(|run| run.program == mix.name && run.config == *config);
            let Some(run) = of.next_back() else { continue };
            let line = |part: &RunOutcome| Line { name: part.program.clone(), points: part.over_time.clone() };
            let lines: Vec<Line> = run.parts.iter().map(line).collect();
            if lines.iter().any(|line| line.points.len() > 1) {
                chapters.push(Chapter {
                    title: format!("{}, {config}", mix.name),
                    meaning: "Thin lines: demand (resident or swapped out). Thick lines: resident memory.".to_owned(),
                    lines,
                    ..Chapter::default()
                });
            }
        }
    }
    chapters
}

type Get = fn(&RunOutcome) -> Option<f64>;

fn time(run: &RunOutcome) -> Option<f64> {
    Some(run.runtime_s)
}

fn major(run: &RunOutcome) -> Option<f64> {
    run.major_faults
}

fn mean<'a>(runs: impl Iterator<Item = &'a RunOutcome>, get: Get) -> Option<f64> {
    stats::mean(&runs.filter_map(get).collect::<Vec<f64>>())
}

fn ratio(a: Option<f64>, b: Option<f64>) -> Option<f64> {
    Some(a? / b.filter(|b| *b > 0.0)?)
}

fn number(value: Option<f64>, digits: usize) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{value:.digits$}"))
}

/// How one of a mix's programs ended in a configuration in which not all ended well.
fn end(mix: &Mix, index: usize, runs: &[RunOutcome], config: &str) -> String {
    let mut failed = runs.iter().filter(|run| run.program == mix.name && run.config == config && run.failure.is_some());
    let part = failed.next_back().and_then(|run| run.parts.get(index));
    part.map_or_else(
        || "-".to_owned(),
        |part| format!("{} after {:.1}", part.failure.as_deref().unwrap_or("ended well"), part.runtime_s),
    )
}

/// The runs of one of a mix's programs. Of a program that runs more than once, the first is the one that ended first:
/// the order has no meaning.
fn parts(mix: &Mix, index: usize, runs: &[RunOutcome], config: &str) -> Vec<RunOutcome> {
    let name = &mix.programs[index];
    let before = mix.programs[..index].iter().filter(|other| *other == name).count();
    let of = |run: &RunOutcome| {
        let mut same: Vec<RunOutcome> = run.parts.iter().filter(|part| part.program == *name).cloned().collect();
        same.sort_by(|a, b| a.runtime_s.total_cmp(&b.runtime_s));
        same.into_iter().nth(before)
    };
    counting(runs, &mix.name, config).filter_map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::suite::Program;
    use lowtide_model::units::Share;

    fn suite() -> Suite {
        let program = |name: &str| Program { name: name.into(), ..Program::default() };
        let mix = Mix { name: "both".into(), programs: vec!["a".into(), "a".into(), "b".into()], shortage: Share(0.5) };
        Suite { programs: vec![program("a"), program("b")], mixes: vec![mix], ..Suite::default() }
    }

    fn run(program: &str, round: u32, runtime_s: f64) -> RunOutcome {
        RunOutcome {
            program: program.into(),
            config: ORIGINAL.into(),
            round,
            runtime_s,
            peak_bytes: Some(100.0 * 4096.0),
            major_faults: Some(10.0),
            ..RunOutcome::default()
        }
    }

    #[test]
    fn the_limit_is_short_of_what_they_had_alone() {
        let suite = suite();
        let runs = [run("a", 0, 1.0), run("b", 0, 1.0), run("b", 1, 1.0)];
        assert_eq!(spec(&suite, 0, &[]).unwrap().limit, None);
        let both = spec(&suite, 2, &runs).unwrap();
        assert_eq!((both.limit, both.programs.len()), (Some(150 * 4096), 3));
        assert!(spec(&suite, 2, &runs[..1]).unwrap_err().contains("what b needs"));
        let turn = |program, config, round| PlannedRun { program, config, round };
        let needed = [turn(0, 0, 0), turn(0, 0, 1), turn(0, 1, 1), turn(2, 0, 0), turn(2, 1, 1)];
        assert_eq!(needed.map(|turn| is_needed(&suite, &turn)), [true, true, false, false, true]);
    }

    #[test]
    fn each_is_set_beside_itself_alone_and_all_beside_one_after_the_other() {
        let parts = vec![run("a", 1, 9.0), run("a", 1, 6.0), run("b", 1, 8.0)];
        let original = RunOutcome { parts: parts.clone(), ..run("both", 1, 9.5) };
        let guarded = RunOutcome {
            config: "guard".into(),
            parts: parts.into_iter().map(|part| RunOutcome { major_faults: Some(1.0), ..part }).collect(),
            ..run("both", 1, 6.0)
        };
        let killed = RunOutcome { failure: Some("ended with exit code 137".into()), ..run("a", 1, 5.0) };
        let lost = RunOutcome {
            config: "nothing".into(),
            failure: Some("a ended with exit code 137".into()),
            parts: vec![killed, run("a", 1, 6.0), run("b", 1, 7.0)],
            ..run("both", 1, 7.0)
        };
        let runs = [run("a", 1, 3.0), run("b", 1, 4.0), original, guarded, lost];
        let all = grids(&suite(), &runs, &[ORIGINAL.to_owned(), "nothing".to_owned()]);
        assert_eq!(all[0].rows[0][5], "ended with exit code 137 after 5.0");
        assert_eq!(all[0].rows[1][5], "ended well after 6.0");
        let mut drawn = runs.clone();
        drawn[4].parts[0].over_time = vec![[0.0, 1.0, 1.0], [1.0, 2.0, 1.0]];
        let chapters = chapters(&suite(), &drawn, &[ORIGINAL.to_owned(), "nothing".to_owned()]);
        assert_eq!(
            chapters.iter().map(|chapter| chapter.title.as_str()).collect::<Vec<_>>(),
            ["Programs together", "both, nothing"]
        );
        let grids = grids(&suite(), &runs, &[ORIGINAL.to_owned(), "guard".to_owned()]);
        assert_eq!(grids[0].rows[0], ["both", "a", "3.0", "6.0", "2.00", "6.0", "2.00"]);
        assert_eq!(grids[0].rows[1][3..5], ["9.0", "3.00"]);
        assert_eq!(grids[1].rows[2], ["both", "b", "10", "10", "", "1", "-90.0 %"]);
        assert_eq!(grids[2].rows, [["both", "10.0", "9.5", "0.95", "6.0", "0.60"]]);
    }
}
