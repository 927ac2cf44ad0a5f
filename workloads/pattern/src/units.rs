//! Sizes, times and rates as people write them in a pattern file.

use std::fmt;
use std::time::Duration;

use serde::de::{Deserialize, Deserializer, Error as _, Visitor};

/// The kernel's base page, the unit in which everything but huge pages is counted.
pub const PAGE: usize = 4096;

/// The huge page of x86-64 (and of arm64 with 4 KiB base pages).
pub const HUGE_PAGE: usize = 2 << 20;

/// A size in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size(pub usize);

/// A length of time in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Time(pub u64);

/// How often a hot set is swept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rate {
    /// As fast as the machine can.
    Max,
    /// One pass starts every so many nanoseconds.
    Every(u64),
}

/// The fastest paced rate: a shorter period would be spent on reading the clock.
const MAX_PASSES_PER_SECOND: f64 = 100_000.0;

/// `u64` to `usize`; they are the same width wherever this program runs.
pub fn usize_of(value: u64) -> usize {
    usize::try_from(value).unwrap_or(usize::MAX)
}

/// `number` (digits with an optional fraction) times `unit`, rounded down, in exact arithmetic.
fn scaled(number: &str, unit: u64) -> Option<u64> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let digits = |s: &str| s.bytes().all(|b| b.is_ascii_digit());
    if whole.is_empty() || !digits(whole) || !digits(fraction) || fraction.len() > 9 {
        return None;
    }
    if number.ends_with('.') {
        return None;
    }
    let unit = u128::from(unit);
    let mut total = whole.parse::<u128>().ok()?.checked_mul(unit)?;
    if !fraction.is_empty() {
        let scale = 10u128.pow(u32::try_from(fraction.len()).ok()?);
        total = total.checked_add(fraction.parse::<u128>().ok()? * unit / scale)?;
    }
    u64::try_from(total).ok()
}

/// Splits `text` where its unit begins.
fn split_unit(text: &str) -> (&str, &str) {
    let at = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    (&text[..at], text[at..].trim_start())
}

/// Reads a size such as `64K`, `1.5G` or `4KiB`.
pub fn parse_size(text: &str) -> Result<Size, String> {
    let (number, unit) = split_unit(text.trim());
    let shift = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => Some(0),
        "k" | "kib" => Some(10),
        "m" | "mib" => Some(20),
        "g" | "gib" => Some(30),
        "t" | "tib" => Some(40),
        _ => None,
    };
    shift
        .and_then(|shift| scaled(number, 1 << shift))
        .and_then(|bytes| usize::try_from(bytes).ok())
        .map(Size)
        .ok_or_else(|| format!("`{text}` is not a size; write it like 64K, 512M, 1.5G or 4KiB (powers of 1024)"))
}

/// Reads a time such as `5ms`, `2s` or `1m`.
pub fn parse_time(text: &str) -> Result<Time, String> {
    let (number, unit) = split_unit(text.trim());
    let nanos = match unit {
        "us" => Some(1_000),
        "ms" => Some(1_000_000),
        "s" => Some(1_000_000_000),
        "m" => Some(60_000_000_000),
        _ => None,
    };
    nanos
        .and_then(|unit| scaled(number, unit))
        .map(Time)
        .ok_or_else(|| format!("`{text}` is not a time; write it like 5ms, 2s or 1m"))
}

/// A number of seconds as nanoseconds; `None` when it is negative, not finite or beyond 500 years.
pub fn seconds_to_ns(seconds: f64) -> Option<u64> {
    let time = Duration::try_from_secs_f64(seconds).ok()?;
    u64::try_from(time.as_nanos()).ok()
}

/// A time given on the command line: seconds without a unit, or with one.
pub fn parse_seconds(text: &str) -> Result<Time, String> {
    let time = match text.parse::<f64>() {
        Ok(seconds) => {
            seconds_to_ns(seconds).map(Time).ok_or_else(|| format!("`{text}` is not a usable number of seconds"))?
        }
        Err(_) => parse_time(text)?,
    };
    if time.0 == 0 {
        return Err("the time must be longer than nothing".into());
    }
    Ok(time)
}

/// A rate in passes per second, where 0 means as fast as possible.
pub fn rate_of(passes_per_second: f64) -> Result<Rate, String> {
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

/// Renders a size with the largest unit that divides it.
pub fn show_size(bytes: usize) -> String {
    for (shift, unit) in [(30, "G"), (20, "M"), (10, "K")] {
        if bytes != 0 && bytes.is_multiple_of(1 << shift) {
            return format!("{}{unit}", bytes >> shift);
        }
    }
    bytes.to_string()
}

struct SizeVisitor;

impl Visitor<'_> for SizeVisitor {
    type Value = Size;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a size like \"64K\", \"512M\", \"1.5G\" or \"4KiB\"")
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Size, E> {
        parse_size(text).map_err(E::custom)
    }

    fn visit_i64<E: serde::de::Error>(self, bytes: i64) -> Result<Size, E> {
        usize::try_from(bytes).map(Size).map_err(|_| E::custom("a size cannot be negative"))
    }
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(SizeVisitor)
    }
}

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        parse_time(&text).map_err(D::Error::custom)
    }
}

struct RateVisitor;

impl Visitor<'_> for RateVisitor {
    type Value = Rate;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("passes per second like 20 or 0.5, or \"max\"")
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Rate, E> {
        match text {
            "max" => Ok(Rate::Max),
            _ => Err(E::custom(format!("`{text}` is not a rate; write passes per second like 20 or 0.5, or \"max\""))),
        }
    }

    fn visit_f64<E: serde::de::Error>(self, rate: f64) -> Result<Rate, E> {
        rate_of(rate).map_err(E::custom)
    }

    fn visit_i64<E: serde::de::Error>(self, rate: i64) -> Result<Rate, E> {
        // Through 32 bits, which a double holds exactly; anything larger is refused all the same.
        let rate = i32::try_from(rate).unwrap_or(i32::MAX);
        self.visit_f64(f64::from(rate))
    }
}

impl<'de> Deserialize<'de> for Rate {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(RateVisitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        for (text, bytes) in [
            ("64K", 64 << 10),
            ("512M", 512 << 20),
            ("1.5G", 3 << 29),
            ("4KiB", 4096),
            ("4 kib", 4096),
            ("4096", 4096),
            ("0", 0),
        ] {
            assert_eq!(parse_size(text), Ok(Size(bytes)), "{text}");
        }
        for text in ["", "K", "4KB", "-1", "1.", ".5G", "1..5G", "9999999999T", "1e3"] {
            let error = parse_size(text).unwrap_err();
            assert!(error.contains("64K"), "{error}");
        }
    }

    #[test]
    fn times() {
        for (text, ns) in
            [("5ms", 5_000_000), ("2s", 2_000_000_000), ("0.5s", 500_000_000), ("1m", 60_000_000_000), ("20us", 20_000)]
        {
            assert_eq!(parse_time(text), Ok(Time(ns)), "{text}");
        }
        for text in ["", "5", "s", "2h", "2 parsecs"] {
            assert!(parse_time(text).is_err(), "{text}");
        }
    }

    #[test]
    fn command_line_seconds() {
        assert_eq!(parse_seconds("1.5"), Ok(Time(1_500_000_000)));
        assert_eq!(parse_seconds("200ms"), Ok(Time(200_000_000)));
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
        for text in ["64K", "512M", "1G", "17"] {
            assert_eq!(show_size(parse_size(text).unwrap().0), text);
        }
    }
}
