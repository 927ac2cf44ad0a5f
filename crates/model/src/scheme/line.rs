//! The one-line form of a scheme: `min-size max-size min-access max-access min-age max-age action`, as the evaluation of
//! DAMON v6 wrote it (linux-mm, 9 March 2020). `null` is no bound, accesses are percent of all samples, `#` begins a comment.

use super::{Action, Bounds, Scheme};
use crate::units::{Share, Size, Span};

/// What is wrong with a text, where, and what would be right.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}, column {column}: {message}")]
pub struct SyntaxError {
    /// Line, from 1.
    pub line: usize,
    /// Column, in characters from 1.
    pub column: usize,
    /// What is wrong, and what would be right.
    pub message: String,
}

impl SyntaxError {
    /// A mistake in a TOML text.
    #[must_use]
    pub fn in_toml(text: &str, error: &toml::de::Error) -> Self {
        let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
        let line = before.rsplit('\n').next().unwrap_or_default();
        let message = error.message().replace('\n', ", ");
        Self { line: before.matches('\n').count() + 1, column: line.chars().count() + 1, message }
    }
}

const FIELDS: [&str; 7] = ["min-size", "max-size", "min-access", "max-access", "min-age", "max-age", "action"];

/// All schemes of a text, one a line.
///
/// # Errors
/// At the first mistake.
pub fn parse(text: &str) -> Result<Vec<Scheme>, SyntaxError> {
    let lines = text.lines().enumerate().map(|(index, line)| parse_line(index + 1, line));
    lines.filter_map(Result::transpose).collect()
}

/// One word with its column.
#[derive(Clone, Copy)]
struct Word<'a> {
    text: &'a str,
    column: usize,
}

fn words(line: &str) -> Vec<Word<'_>> {
    let line = line.split('#').next().unwrap_or_default();
    line.split_whitespace()
        .map(|text| {
            let offset = text.as_ptr().addr() - line.as_ptr().addr();
            Word { text, column: line[..offset].chars().count() + 1 }
        })
        .collect()
}

/// The scheme of a line; `None` if there is nothing but a comment.
fn parse_line(line: usize, text: &str) -> Result<Option<Scheme>, SyntaxError> {
    let words = words(text);
    if words.is_empty() {
        return Ok(None);
    }
    let fail = |column: usize, message: String| SyntaxError { line, column, message };
    let Ok([size, max_size, access, max_access, age, max_age, action]) = <[Word<'_>; 7]>::try_from(words.as_slice())
    else {
        let (column, what) = match words.get(7) {
            Some(extra) => (extra.column, format!("'{}' is one word too many", extra.text)),
            None => (text.trim_end().chars().count() + 1, format!("{} is missing", FIELDS[words.len()])),
        };
        return Err(fail(column, format!("{what}; a scheme is 7 words: {}", FIELDS.join(" "))));
    };
    let size = pair(line, (size, max_size, 0), "a size like 4K, 2M or null", Size::in_file)?;
    let access = pair(line, (access, max_access, 2), "a percentage from 0 to 100, or null", percent)?;
    let age = pair(line, (age, max_age, 4), "a time like 100ms, 5s, 2m or null", time)?;
    let Some(known) = Action::named(&action.text.to_ascii_lowercase()) else {
        let names = Action::ALL.map(Action::name).join(", ");
        return Err(fail(action.column, format!("'{}' is no action; there are {names}", action.text)));
    };
    let scheme = Scheme { size, access, age, ..Scheme::new(known) };
    match scheme.check() {
        Ok(()) => Ok(Some(scheme)),
        Err(message) => Err(fail(action.column, format!("{message} (in a TOML file; a line has no room for it)"))),
    }
}

/// A lower and an upper bound.
fn pair<T: PartialOrd + std::fmt::Display, E>(
    line: usize,
    (least, most, field): (Word<'_>, Word<'_>, usize),
    wanted: &str,
    parse: impl Fn(&str) -> Result<T, E>,
) -> Result<Bounds<T>, SyntaxError> {
    let one = |word: Word<'_>, field: usize, open: &str| match word.text.to_ascii_lowercase().as_str() {
        "null" => Ok(None),
        text if text == open => Ok(None),
        _ => parse(word.text).map(Some).map_err(|_| SyntaxError {
            line,
            column: word.column,
            message: format!("{} '{}' is not {wanted}", FIELDS[field], word.text),
        }),
    };
    let (min, max) = (one(least, field, "min")?, one(most, field + 1, "max")?);
    Bounds::try_from(super::AnyBounds { min, max }).map_err(|message| SyntaxError {
        line,
        column: least.column,
        message,
    })
}

fn percent(text: &str) -> Result<Share, ()> {
    let number: f64 = text.strip_suffix('%').unwrap_or(text).parse().map_err(|_| ())?;
    if (0.0..=100.0).contains(&number) { Ok(Share(number / 100.0)) } else { Err(()) }
}

/// Times need a unit here: the first users of this form counted in aggregation intervals, later ones in seconds.
fn time(text: &str) -> Result<Span, ()> {
    if text != "0" && text.ends_with(|last: char| last.is_ascii_digit()) {
        return Err(());
    }
    text.parse().map_err(|_| ())
}

/// The scheme as one line.
///
/// # Errors
/// What of it has no place in a line.
pub fn print(scheme: &Scheme) -> Result<String, &'static str> {
    let word = |bound: Option<String>| bound.unwrap_or_else(|| "null".to_owned());
    let percent = |share: Share| share.to_string().trim_end_matches('%').to_owned();
    let fields = [
        word(scheme.size.min.map(|size| size.to_string())),
        word(scheme.size.max.map(|size| size.to_string())),
        word(scheme.access.min.map(percent)),
        word(scheme.access.max.map(percent)),
        word(scheme.age.min.map(|age| age.to_string())),
        word(scheme.age.max.map(|age| age.to_string())),
        scheme.action.name().to_owned(),
    ];
    let line = fields.join(" ");
    let bare = Scheme { name: None, ..scheme.clone() };
    match parse(&line) {
        Ok(back) if back == [bare.clone()] => Ok(line),
        _ if bare.quota.limits() => Err("its quota"),
        _ if bare.watermarks.is_some() => Err("its watermarks"),
        _ if !bare.filters.is_empty() => Err("its filters"),
        _ if bare.apply_interval.is_some() => Err("its apply_interval"),
        _ if bare.action.migrates() => Err("its target_node"),
        _ => Err("its quota's interval or weights, or a share that is no decimal percentage"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn published_schemes_are_read_as_meant() {
        let schemes =
            parse("# ethp\n2M null 5 null null null hugepage\n\n4K  null null 5 5s null pageout # prcl\n").unwrap();
        assert_eq!(schemes.len(), 2);
        assert_eq!((schemes[0].size.min, schemes[0].access.min), (Some(Size(2 << 20)), Some(Share(0.05))));
        assert_eq!(print(&schemes[1]).unwrap(), "4K null null 5 5s null pageout");
        assert_eq!(parse("min max MIN Max 100us 1d stat").unwrap()[0].age.max.unwrap().to_string(), "24h");
    }

    #[test]
    fn mistakes_are_named_with_their_place() {
        for (text, place, part) in [
            ("4K null null 5 5s null pagout", (1, 24), "there are willneed, cold"),
            ("\n  4X null null 5 5s null pageout", (2, 3), "min-size '4X' is not a size like"),
            ("4K null null 500 5s null pageout", (1, 14), "percentage from 0 to 100"),
            ("4K null null 5 5 null pageout", (1, 16), "min-age '5' is not a time like"),
            ("4K null null 5 5s null", (1, 23), "action is missing"),
            ("4K null null 5 5s null pageout now", (1, 32), "one word too many"),
            ("4M 4K null 5 5s null pageout", (1, 1), "min 4M is above max 4K"),
            ("4K null null 5 5s null migrate_cold", (1, 24), "target_node"),
        ] {
            let error = parse(text).unwrap_err();
            assert_eq!((error.line, error.column), place, "{text}");
            assert!(error.message.contains(part), "{text}: {error}");
        }
    }
}
