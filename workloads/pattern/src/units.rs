//! Sizes, times and rates as a pattern file gives them.

use lowtide_model::units::{Size, Span, count, float};
use serde::Deserialize;

/// The kernel's base page: memory is counted in it, except for huge pages.
pub const PAGE: usize = 4096;

/// The huge page of x86-64, and of arm64 with 4 KiB base pages.
pub const HUGE_PAGE: usize = 2 << 20;

/// The highest paced rate: with a shorter period, most of the time would be spent on reading the clock.
const MAX_PASSES_PER_SECOND: f64 = 100_000.0;

/// How often a hot set is swept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Written")]
pub enum Rate {
    /// As fast as the machine can.
    Max,
    /// One pass starts every so many nanoseconds.
    Every(u64),
}

/// A size in bytes: a number, or text such as `64K`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Written")]
pub struct ByteSize(pub usize);

#[derive(Deserialize)]
#[serde(untagged)]
enum Written {
    Integer(i64),
    Number(f64),
    Text(String),
}

impl TryFrom<Written> for ByteSize {
    type Error = String;

    fn try_from(written: Written) -> Result<Self, String> {
        match written {
            Written::Integer(bytes) => usize::try_from(bytes).map_err(|_| "a size cannot be negative".to_owned()),
            Written::Number(number) => parse_size(&number.to_string()),
            Written::Text(text) => parse_size(&text),
        }
        .map(Self)
    }
}

impl TryFrom<Written> for Rate {
    type Error = String;

    fn try_from(written: Written) -> Result<Self, String> {
        match written {
            Written::Integer(rate) => rate_of(float(rate)),
            Written::Number(rate) => rate_of(rate),
            Written::Text(text) if text == "max" => Ok(Self::Max),
            Written::Text(text) => {
                Err(format!("`{text}` is not a rate; write passes per second like 20 or 0.5, or \"max\""))
            }
        }
    }
}

/// `u64` to `usize`: the same width wherever this program runs.
pub fn usize_of(value: u64) -> usize {
    usize::try_from(value).unwrap_or(usize::MAX)
}

fn parse_size(text: &str) -> Result<usize, String> {
    Size::in_file(text).map(|size| usize_of(size.0)).map_err(|error| error.to_string())
}

pub fn nanoseconds(time: Span) -> u64 {
    u64::try_from(time.0.as_nanos()).unwrap_or(u64::MAX)
}

/// A number of seconds as nanoseconds; `None` when it is negative, not finite or beyond 500 years.
pub fn seconds_to_ns(seconds: f64) -> Option<u64> {
    let time = std::time::Duration::try_from_secs_f64(seconds).ok()?;
    u64::try_from(time.as_nanos()).ok()
}

/// A time given on the command line, as nanoseconds: a number without a unit is seconds.
pub fn parse_seconds(text: &str) -> Result<u64, String> {
    let seconds = text.parse().ok().and_then(seconds_to_ns);
    let with_unit =
        || text.parse().map(nanoseconds).map_err(|error: lowtide_model::units::UnitError| error.to_string());
    match seconds.map_or_else(with_unit, Ok)? {
        0 => Err("the time must be greater than 0".into()),
        time => Ok(time),
    }
}

/// A rate in passes per second, where 0 means as fast as possible.
fn rate_of(passes_per_second: f64) -> Result<Rate, String> {
    if passes_per_second == 0.0 {
        return Ok(Rate::Max);
    }
    if passes_per_second > MAX_PASSES_PER_SECOND {
        return Err(format!(
            "{passes_per_second} passes per second is too often to be paced; \
             write at most {MAX_PASSES_PER_SECOND}, or \"max\""
        ));
    }
    seconds_to_ns(1.0 / passes_per_second)
        .map(Rate::Every)
        .ok_or_else(|| format!("{passes_per_second} is not a rate; write passes per second like 20 or 0.5, or \"max\""))
}

/// A size with the largest unit that divides it.
pub fn show_size(bytes: usize) -> String {
    Size(count(bytes)).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_line_seconds() {
        assert_eq!(parse_seconds("1.5"), Ok(1_500_000_000));
        assert_eq!(parse_seconds("200ms"), Ok(200_000_000));
        for text in ["0", "-1", "nan", "inf", "x"] {
            assert!(parse_seconds(text).is_err(), "{text}");
        }
    }

    #[test]
    fn rates() {
        assert_eq!(rate_of(0.0), Ok(Rate::Max));
        assert_eq!(rate_of(20.0), Ok(Rate::Every(50_000_000)));
        assert_eq!(rate_of(0.5), Ok(Rate::Every(2_000_000_000)));
        assert!(rate_of(-1.0).is_err());
        assert!(rate_of(f64::NAN).is_err());
        assert!(rate_of(1e9).unwrap_err().contains("max"));
    }

    #[test]
    fn sizes_are_shown_as_written() {
        for text in ["64K", "512M", "1G", "17B"] {
            assert_eq!(show_size(parse_size(text).unwrap()), text);
        }
    }
}
