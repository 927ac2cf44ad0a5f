//! Turns the keys of a `hot = { .. }` table into a [`HotShape`] that fits its area.

use lowtide_model::units::integer;

use crate::config::RawHot;
use crate::hot::{Grown, HotSet, HotShape};
use crate::units::{ByteSize, PAGE, nanoseconds, show_size};

/// The kinds of hot set: the key each is known by, and the other keys it takes.
const KINDS: [(&str, &[&str]); 5] = [
    ("step", &["every", "bounce", "size"]),
    ("grow_per_second", &["only_new", "window"]),
    ("random_share", &["seed"]),
    ("pieces", &["piece_size"]),
    ("size", &["offset"]),
];

/// The hot set that the keys `hot` ask for in an area of `area` bytes.
pub fn shape_of(hot: &toml::Table, area: usize) -> Result<HotShape, String> {
    let raw: RawHot = hot.clone().try_into().map_err(|error| format!("hot: {error}"))?;
    if hot.is_empty() {
        return Ok(HotShape::Fixed(HotSet::range(0, area)));
    }
    let keys: Vec<&str> = hot.keys().map(String::as_str).collect();
    let Some((kind, others)) = KINDS.iter().find(|(kind, _)| keys.contains(kind)) else {
        return Err(format!(
            "hot: `{}` alone does not say what is hot; write one of {{ offset, size }}, \
             {{ pieces, piece_size }}, {{ random_share, seed }}, {{ grow_per_second }} or {{ step, every }}",
            keys.join("`, `")
        ));
    };
    if let Some(stray) = keys.iter().find(|k| *k != kind && !others.contains(k)) {
        return Err(format!("hot: `{stray}` does not go with `{kind}`, which takes only `{}`", others.join("`, `")));
    }
    match *kind {
        "step" => window(&raw, area),
        "grow_per_second" => grow(&raw, area),
        "random_share" => random(&raw, area),
        "pieces" => pieces(&raw, area),
        _ => range(&raw, area),
    }
}

/// A size that must be given, in complete pages and not 0.
fn pages(key: &str, size: Option<ByteSize>) -> Result<usize, String> {
    let Some(ByteSize(bytes)) = size else {
        return Err(format!("hot: `{key}` is missing; add {key} = \"64M\" or the like"));
    };
    if bytes == 0 || !bytes.is_multiple_of(PAGE) {
        return Err(format!(
            "hot: {key} = {} must be a multiple of 4K and not 0; {} would do",
            show_size(bytes),
            show_size(bytes.next_multiple_of(PAGE).max(PAGE))
        ));
    }
    Ok(bytes)
}

fn range(hot: &RawHot, area: usize) -> Result<HotShape, String> {
    let len = pages("size", hot.size)?;
    let start = match hot.offset {
        None | Some(ByteSize(0)) => 0,
        offset => pages("offset", offset)?,
    };
    if start.checked_add(len).is_none_or(|end| end > area) {
        return Err(format!(
            "hot: offset {} + size {} is beyond the area's {}",
            show_size(start),
            show_size(len),
            show_size(area)
        ));
    }
    Ok(HotShape::Fixed(HotSet::range(start, len)))
}

fn pieces(hot: &RawHot, area: usize) -> Result<HotShape, String> {
    let len = pages("piece_size", hot.piece_size)?;
    let count = hot.pieces.unwrap_or(0);
    if count == 0 {
        return Err("hot: pieces must be 1 or more".into());
    }
    let spacing = area / count / PAGE * PAGE;
    if spacing < len {
        return Err(format!(
            "hot: {count} pieces of {} do not fit into the area's {}; at most {} do",
            show_size(len),
            show_size(area),
            area / len
        ));
    }
    Ok(HotShape::Fixed(HotSet::Pieces { start: 0, count, spacing, len }))
}

fn random(hot: &RawHot, area: usize) -> Result<HotShape, String> {
    let share = hot.random_share.unwrap_or(0.0);
    let pages = u32::try_from(area / PAGE).map_err(|_| "hot: the area is too large".to_string())?;
    let wanted = integer((share * f64::from(pages)).round());
    let Some(wanted) = u32::try_from(wanted).ok().filter(|wanted| (0.0..=1.0).contains(&share) && *wanted > 0) else {
        return Err(format!(
            "hot: random_share = {share} must be at most 1 and enough for one of the area's {pages} pages, \
             like 0.125"
        ));
    };
    Ok(HotShape::random(pages, wanted, hot.seed.unwrap_or(1)))
}

fn grow(hot: &RawHot, area: usize) -> Result<HotShape, String> {
    // Any rate is allowed: the prefix is rounded to pages, not the rate.
    let per_second = hot.grow_per_second.map_or(0, |size| size.0);
    if per_second == 0 {
        return Err("hot: grow_per_second must be more than 0, like \"8M\"".into());
    }
    let part = match (hot.window, hot.only_new) {
        (None, false) => Grown::All,
        (None, true) => Grown::New,
        (window, false) => Grown::Last(pages("window", window)?),
        (Some(_), true) => {
            return Err("hot: `window` and `only_new = true` exclude each other; keep one".into());
        }
    };
    Ok(HotShape::Grow { per_second, limit: area, part })
}

fn window(hot: &RawHot, area: usize) -> Result<HotShape, String> {
    let step = pages("step", hot.step)?;
    let len = match hot.size {
        None => step,
        size => pages("size", size)?,
    };
    let every_ns = hot.every.map_or(0, nanoseconds);
    if every_ns == 0 {
        return Err("hot: `step` needs `every` greater than 0, like every = \"2s\"".into());
    }
    if len > area {
        return Err(format!("hot: a window of {} is larger than the area's {}", show_size(len), show_size(area)));
    }
    Ok(HotShape::Window { step, len, positions: (area - len) / step + 1, every_ns, bounce: hot.bounce })
}

#[cfg(test)]
mod tests {
    use super::*;

    const M: usize = 1 << 20;

    fn shape(text: &str) -> Result<HotShape, String> {
        let hot: toml::Table = toml::from_str(text).map_err(|e| e.to_string())?;
        shape_of(&hot, 64 * M)
    }

    #[test]
    fn every_kind_is_recognised() {
        assert_eq!(shape("size = '8M'\noffset = '4M'"), Ok(HotShape::Fixed(HotSet::range(4 * M, 8 * M))));
        assert_eq!(
            shape("pieces = 16\npiece_size = '1M'"),
            Ok(HotShape::Fixed(HotSet::Pieces { start: 0, count: 16, spacing: 4 * M, len: M }))
        );
        let Ok(HotShape::Fixed(HotSet::Pages(pages))) = shape("random_share = 0.125") else { panic!("not pages") };
        assert_eq!(pages.len(), 2048);
        assert_eq!(
            shape("grow_per_second = '1000'\nwindow = '1M'"),
            Ok(HotShape::Grow { per_second: 1000, limit: 64 * M, part: Grown::Last(M) })
        );
        assert_eq!(
            shape("step = '16M'\nevery = '2s'\nbounce = true"),
            Ok(HotShape::Window { step: 16 * M, len: 16 * M, positions: 4, every_ns: 2_000_000_000, bounce: true })
        );
        let Ok(HotShape::Window { positions, .. }) = shape("step='16M'\nevery='1s'\nsize='32M'") else {
            panic!("not a window")
        };
        assert_eq!(positions, 3);
    }

    #[test]
    fn mistakes_are_named() {
        for (text, words) in [
            ("offset = '4M'", "does not say what is hot"),
            ("size = '8M'\nbounce = true", "`bounce` does not go with `size`"),
            ("pieces = 2\nsize = '8M'", "`size` does not go with `pieces`"),
            ("size = '5000'", "8K would do"),
            ("size = '64M'\noffset = '4K'", "beyond the area's 64M"),
            ("pieces = 100\npiece_size = '1M'", "at most 64 do"),
            ("pieces = 0\npiece_size = '1M'", "1 or more"),
            ("pieces = 4", "`piece_size` is missing"),
            ("random_share = 1.5", "at most 1"),
            ("random_share = 0.0", "enough for one"),
            ("random_share = nan", "at most 1"),
            ("grow_per_second = '0'", "more than 0"),
            ("grow_per_second = '1M'\nwindow = '1M'\nonly_new = true", "keep one"),
            ("step = '1M'", "needs `every`"),
            ("step = '1M'\nevery = '1s'\nsize = '1G'", "larger than"),
            ("hop = '1M'", "unknown field `hop`"),
        ] {
            let error = shape(text).unwrap_err();
            assert!(error.contains(words), "{text}: {error}");
        }
    }

    #[test]
    fn nothing_said_is_everything_hot() {
        assert_eq!(shape_of(&toml::Table::new(), M), Ok(HotShape::Fixed(HotSet::range(0, M))));
    }
}
