//! A checked pattern: what [`crate::config`] reads, once it makes sense.

use crate::config::{AreaSpec, Backing, Mode, RawAccess, RawPattern, RawPhase, TouchOrder};
use crate::hot::HotShape;
use crate::shape::shape_of;
use crate::units::{HUGE_PAGE, PAGE, Rate, seconds_to_ns, show_size};

/// 1 TiB: page numbers are kept in 32 bits, and touches are drawn with 32.
const MAX_AREA: usize = 1 << 40;

/// A pattern that can be run.
#[derive(Debug)]
pub struct Pattern {
    pub name: String,
    pub description: String,
    pub areas: Vec<AreaSpec>,
    /// Never empty.
    pub phases: Vec<PatternPhase>,
}

#[derive(Debug)]
pub struct PatternPhase {
    /// How long it lasts, in nanoseconds.
    pub length_ns: u64,
    pub accesses: Vec<Access>,
}

#[derive(Debug)]
pub struct Access {
    /// Index of the area.
    pub area: usize,
    pub shape: HotShape,
    pub order: TouchOrder,
    /// Bytes from one touch to the next.
    pub stride: usize,
    pub mode: Mode,
    pub rate: Rate,
}

/// Reads and checks a pattern file's text.
pub fn parse(text: &str) -> Result<Pattern, String> {
    check(toml::from_str(text).map_err(|error| error.to_string())?)
}

/// Whether a name can stand in file names and in `/proc/PID/maps`.
fn check_name(what: &str, name: &str) -> Result<(), String> {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'_';
    if name.is_empty() || name.len() > 40 || !name.bytes().all(plain) {
        return Err(format!("{what} name {name:?}: use 1 to 40 letters, digits, `-` or `_`"));
    }
    Ok(())
}

fn check(raw: RawPattern) -> Result<Pattern, String> {
    check_name("pattern", &raw.name)?;
    if raw.area.is_empty() {
        return Err("there is no area; add [[area]] with name and size".into());
    }
    for (n, area) in raw.area.iter().enumerate() {
        if raw.area[..n].iter().any(|a| a.name == area.name) {
            return Err(format!("two areas are called {:?}; names must differ", area.name));
        }
        check_area(area)?;
    }
    // The log gives a read area's bytes as file offsets, which are unambiguous for one file only.
    if raw.area.iter().filter(|a| a.backing == Backing::Read).count() > 1 {
        return Err("at most one area may have backing = \"read\"; merge them into one".into());
    }
    if raw.phase.is_empty() {
        return Err("there is no phase; add [[phase]] with seconds".into());
    }
    let phases = raw.phase.into_iter().enumerate().map(|(n, phase)| check_phase(n, phase, &raw.area));
    let phases = phases.collect::<Result<_, _>>()?;
    Ok(Pattern { name: raw.name, description: raw.description, areas: raw.area, phases })
}

fn check_phase(n: usize, raw: RawPhase, areas: &[AreaSpec]) -> Result<PatternPhase, String> {
    let length_ns = seconds_to_ns(raw.seconds)
        .filter(|&ns| ns > 0)
        .ok_or_else(|| format!("phase {n}: seconds = {} must be greater than 0", raw.seconds))?;
    let mut accesses = Vec::new();
    for (m, access) in raw.access.into_iter().enumerate() {
        let place = format!("phase {n}, access {m} to area {:?}", access.area);
        accesses.push(check_access(access, areas).map_err(|e| format!("{place}: {e}"))?);
    }
    Ok(PatternPhase { length_ns, accesses })
}

fn check_area(area: &AreaSpec) -> Result<(), String> {
    check_name("area", &area.name)?;
    let size = area.size.0;
    let huge = area.backing == Backing::Huge;
    let unit = if huge { HUGE_PAGE } else { PAGE };
    let problem = if size == 0 || !size.is_multiple_of(unit) {
        let backing = if huge { " with backing = \"huge\"" } else { "" };
        let right = show_size(size.next_multiple_of(unit).max(unit));
        format!("size {} must be a multiple of {}{backing}, such as {right}", show_size(size), show_size(unit))
    } else if size > MAX_AREA {
        format!("size {} is more than {}", show_size(size), show_size(MAX_AREA))
    } else if huge && !area.populate {
        // Whether the kernel gave huge pages is known only once they are populated, and is in the log's first line.
        "backing = \"huge\" needs populate = true (the default)".into()
    } else {
        return Ok(());
    };
    Err(format!("area {:?}: {problem}", area.name))
}

fn check_access(raw: RawAccess, areas: &[AreaSpec]) -> Result<Access, String> {
    let area = areas.iter().position(|a| a.name == raw.area).ok_or_else(|| {
        let names: Vec<_> = areas.iter().map(|a| a.name.as_str()).collect();
        format!("no area has this name; there are: {}", names.join(", "))
    })?;
    let stride = raw.stride.map_or(PAGE, |stride| stride.0);
    // A touch is eight bytes and must stay within the page that it is counted for.
    if stride == 0 || !stride.is_multiple_of(8) || stride > MAX_AREA {
        return Err(format!("stride {stride} must be a multiple of 8 bytes and not 0; 4K touches every page once"));
    }
    let shape = shape_of(&raw.hot, areas[area].size.0)?;
    Ok(Access { area, shape, order: raw.order, stride, mode: raw.mode, rate: raw.passes_per_second })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hot::HotSet;

    const HEAD: &str = "name = \"t\"\n[[area]]\nname = \"heap\"\nsize = \"64M\"\n";

    fn error(text: &str) -> String {
        parse(text).unwrap_err()
    }

    fn with_access(lines: &str) -> String {
        format!("{HEAD}[[phase]]\nseconds = 1\n[[phase.access]]\narea = \"heap\"\n{lines}\n")
    }

    #[test]
    fn defaults_are_filled_in() {
        let pattern = parse(&with_access("passes_per_second = 20")).unwrap();
        let area = &pattern.areas[0];
        assert_eq!((area.backing, area.populate, area.size.0), (Backing::Anon, true, 64 << 20));
        let access = &pattern.phases[0].accesses[0];
        assert_eq!(access.rate, Rate::Every(50_000_000));
        assert_eq!((access.stride, access.mode, access.order), (PAGE, Mode::Read, TouchOrder::Sequential));
        assert_eq!(access.shape, HotShape::Fixed(HotSet::range(0, 64 << 20)));
    }

    #[test]
    fn a_phase_may_touch_nothing() {
        let pattern = parse(&format!("{HEAD}[[phase]]\nseconds = 0.5\n")).unwrap();
        assert_eq!(pattern.phases[0].length_ns, 500_000_000);
        assert!(pattern.phases[0].accesses.is_empty());
    }

    #[test]
    fn mistakes_are_named_with_what_would_be_right() {
        for (text, words) in [
            ("name = \"t\"", vec!["no area"]),
            (HEAD, vec!["no phase", "[[phase]]"]),
            ("name = \"a b\"", vec!["letters"]),
            (&with_access("pases_per_second = 1"), vec!["pases_per_second", "passes_per_second"]),
            (&with_access("passes_per_second = \"fast\""), vec!["fast", "max"]),
            (&with_access("passes_per_second = -3"), vec!["-3", "20 or 0.5"]),
            (&with_access("passes_per_second = 1\nstride = \"10\""), vec!["phase 0, access 0", "multiple of 8"]),
            (&with_access("passes_per_second = 1\nmode = \"touch\""), vec!["touch", "read", "write"]),
            (
                &with_access("").replace("area = \"heap\"", "area = \"hep\"\npasses_per_second = 1"),
                vec!["\"hep\"", "there are: heap"],
            ),
            (&HEAD.replace("64M", "64X"), vec!["64X", "512M"]),
            (&HEAD.replace("64M", "5000"), vec!["5000", "4K", "8K"]),
            (&HEAD.replace("64M\"", "3M\"\nbacking = \"huge\""), vec!["3M", "2M", "4M"]),
            (&HEAD.replace("64M\"", "4M\"\nbacking = \"huge\"\npopulate = false"), vec!["populate = true"]),
            (
                &with_access("passes_per_second = 1").replace("seconds = 1\n", "seconds = -1\n"),
                vec!["-1", "greater than 0"],
            ),
        ] {
            let error = error(text);
            for word in words {
                assert!(error.contains(word), "{word} is not in: {error}");
            }
        }
    }

    #[test]
    fn names_must_differ_and_read_areas_be_single() {
        let phase = "[[phase]]\nseconds = 1\n";
        let twice = format!("{HEAD}[[area]]\nname = \"heap\"\nsize = \"4K\"\n{phase}");
        assert!(error(&twice).contains("must differ"));
        let read = |n| format!("[[area]]\nname = \"r{n}\"\nsize = \"4K\"\nbacking = \"read\"\n");
        let two = format!("name = \"t\"\n{}{}{phase}", read(1), read(2));
        assert!(error(&two).contains("at most one"));
    }

    #[test]
    fn the_patterns_of_this_directory_are_all_good() {
        let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/../patterns");
        let mut found = 0;
        for entry in std::fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            let text = std::fs::read_to_string(&path).unwrap();
            let pattern = parse(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
            assert_eq!(path.file_stem().unwrap().to_str(), Some(&*pattern.name));
            assert!(!pattern.description.is_empty(), "{}", path.display());
            let bytes: usize = pattern.areas.iter().map(|a| a.size.0).sum();
            assert!(bytes <= 3 << 30, "{}", path.display());
            found += 1;
        }
        assert!(found >= 13);
    }
}
