//! Sizes, times and shares as people write them: `64K 512M 1.5G 4KiB`, `5ms 2s 1m 1h`, `5%`.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Why a unit did not parse; the message says what would be right.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{given}' {}; write for example {example}", if self.is_bare { "has no unit".to_owned() } else { format!("is not a {what}") })]
pub struct UnitError {
    given: String,
    what: &'static str,
    example: &'static str,
    /// It is a number and nothing else. `1` as a share may mean 1 % as well as all of it, so only 0 goes without a unit.
    is_bare: bool,
}

/// A number of bytes. Suffixes are powers of 1024 with or without `iB` or `B`: `K`, `KB`, `Ki` and `KiB` are all 1024, and
/// `B` is a byte. In files, a bare number is bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Size(pub u64);

/// A length of time. Suffixes: `us ms s m h d`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span(pub Duration);

/// A share of something, `0.05` for `5%`. Always finite and not negative.
#[derive(Debug, Clone, Copy, Default, PartialEq, PartialOrd)]
pub struct Share(pub f64);

/// Splits `1.5GiB` into its number and its suffix. The number is decimal digits with at most one point.
fn split(text: &str) -> Option<(&str, String)> {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    (end > 0).then(|| (&text[..end], text[end..].trim().to_ascii_lowercase()))
}

/// Rounds a non-negative product to an integer, refusing what does not fit.
fn nearest(value: f64) -> Option<u64> {
    (value.is_finite() && (0.0..18_446_744_073_709_549_568.0).contains(&value)).then(|| rounded(value))
}

/// Integers that may be calculated with as `f64`: counts, bytes, microseconds. Exact below 2^53, which is 8 PiB.
pub trait Integer: Copy {
    /// The nearest `f64`.
    fn to_f64(self) -> f64;
}

macro_rules! integers {
    ($($kind:ty),*) => {$(
        impl Integer for $kind {
            #[expect(clippy::cast_precision_loss, reason = "exact below 2^53")]
            fn to_f64(self) -> f64 {
                self as f64
            }
        }
    )*};
}
integers!(u64, u128, usize, i64, i128);

/// A count or a number of bytes for arithmetic. Exact below 2^53, which is 8 PiB.
#[must_use]
pub fn float(count: impl Integer) -> f64 {
    count.to_f64()
}

/// A number of things in memory as an integer of fixed size.
#[must_use]
pub fn count(things: usize) -> u64 {
    u64::try_from(things).unwrap_or(u64::MAX)
}

/// A result of arithmetic as a count or a number of bytes: rounded down, 0 where it is negative or none.
#[must_use]
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the cast saturates")]
pub fn integer(value: f64) -> u64 {
    value as u64
}

/// A result of arithmetic as a number of things in memory, or as the place of one: as [`integer`].
#[must_use]
#[expect(clippy::cast_possible_truncation, reason = "lowtide is built for 64 bits; the cast saturates nowhere there")]
pub fn index(value: f64) -> usize {
    integer(value) as usize
}

/// A result of arithmetic as a number of bytes: the nearest, 0 where it is negative or none.
#[must_use]
pub fn rounded(value: f64) -> u64 {
    integer(value.round())
}

/// The same where it may be negative.
#[must_use]
#[expect(clippy::cast_possible_truncation, reason = "the cast saturates")]
pub fn signed(value: f64) -> i64 {
    value.round() as i64
}

/// The nearest value of single precision, for columns that need no more.
#[must_use]
#[expect(clippy::cast_possible_truncation, reason = "that is what it is for")]
pub fn single(value: f64) -> f32 {
    value as f32
}

/// The value of a number with a unit by `value`, which knows the units. Zero needs none.
fn parse<T>(
    text: &str,
    (what, example): (&'static str, &'static str),
    value: impl Fn(&str, &str) -> Option<T>,
) -> Result<T, UnitError> {
    let parts = split(text);
    let is_bare = parts
        .as_ref()
        .is_some_and(|(number, suffix)| suffix.is_empty() && number.parse::<f64>().is_ok_and(|number| number > 0.0));
    let parsed = parts.filter(|_| !is_bare).and_then(|(number, suffix)| value(number, &suffix));
    parsed.ok_or_else(|| UnitError { given: text.into(), what, example, is_bare })
}

impl FromStr for Size {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        parse(text, ("size", "64K, 512M, 1.5G or 4KiB"), |number, suffix| {
            let letter = suffix.strip_suffix("ib").or(suffix.strip_suffix(['b', 'i'])).unwrap_or(suffix);
            let power = ["", "k", "m", "g", "t"].iter().position(|known| *known == letter)?;
            scale(number, 1 << (10 * power)).map(Self)
        })
    }
}

impl Size {
    /// A size as files have it: those that programs write have numbers of bytes.
    ///
    /// # Errors
    /// If it is neither a number nor a size.
    pub fn in_file(text: &str) -> Result<Self, UnitError> {
        text.parse().map(Self).or_else(|_| text.parse())
    }
}

impl FromStr for Span {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        parse(text, ("time", "5ms, 2s, 1m or 1h"), |number, suffix| {
            let nanos: u32 = match suffix {
                "us" => 1_000,
                "ms" => 1_000_000,
                "" | "s" => 1_000_000_000,
                "m" | "min" => return minutes(number, 1),
                "h" => return minutes(number, 60),
                "d" => return minutes(number, 1440),
                _ => return None,
            };
            scale(number, u64::from(nanos))
        })
        .map(|ns| Self(Duration::from_nanos(ns)))
    }
}

fn minutes(number: &str, minutes: u64) -> Option<u64> {
    scale(number, minutes * 60_000_000_000)
}

/// `number` times `unit`: exact where the number is an integer, which `f64` is not beyond 2^53.
fn scale(number: &str, unit: u64) -> Option<u64> {
    if let Ok(exact) = number.parse::<u64>() {
        return exact.checked_mul(unit);
    }
    nearest(number.parse::<f64>().ok()? * float(unit))
}

impl FromStr for Share {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        parse(text, ("share", "5% or 0.5%"), |number, suffix| {
            if !matches!(suffix, "%" | "") {
                return None;
            }
            // Moved by two digits, not divided: the nearest of what is written, so that every share has a percentage.
            format!("{number}e-2").parse::<f64>().ok().filter(|share| share.is_finite()).map(Self)
        })
    }
}

impl fmt::Display for Size {
    /// Shortest exact form: `512M`, `1536M`, `4097B`; parses back to the same bytes.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (suffix, shift) in [("T", 40), ("G", 30), ("M", 20), ("K", 10)] {
            if self.0 != 0 && self.0.trailing_zeros() >= shift {
                return write!(f, "{}{suffix}", self.0 >> shift);
            }
        }
        write!(f, "{}B", self.0)
    }
}

impl fmt::Display for Span {
    /// Largest unit that divides the time exactly; parses back to the same time (to the microsecond).
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let us = self.0.as_micros();
        for (suffix, unit) in [("h", 3_600_000_000), ("m", 60_000_000), ("s", 1_000_000), ("ms", 1000)] {
            if us != 0 && us.is_multiple_of(unit) {
                return write!(f, "{}{suffix}", us / unit);
            }
        }
        write!(f, "{us}us")
    }
}

impl fmt::Display for Share {
    /// Percent with as many digits as it takes to parse back to the same share.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = format!("{:e}", self.0);
        let (mantissa, exponent) = digits.split_once('e').unwrap_or((&digits, "0"));
        let (integer, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let digits = format!("{integer}{fraction}");
        // Where the point is after `digits`, in percent.
        let point = exponent.parse::<i64>().unwrap_or(0) + 3;
        match usize::try_from(point) {
            _ if digits == "0" => f.write_str("0%"),
            Ok(point) if point > 0 && point < digits.len() => {
                write!(f, "{}.{}%", &digits[..point], &digits[point..])
            }
            Ok(point) if point > 0 => write!(f, "{digits:0<point$}%"),
            _ => write!(f, "0.{}{digits}%", "0".repeat(usize::try_from(-point).unwrap_or(0))),
        }
    }
}

macro_rules! serde_as_text {
    ($($kind:ty: $parse:expr),*) => {$(
        impl Serialize for $kind {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }
        impl<'de> Deserialize<'de> for $kind {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                $parse(&String::deserialize(deserializer)?).map_err(serde::de::Error::custom)
            }
        }
    )*};
}
serde_as_text!(Size: Size::in_file, Span: str::parse, Share: str::parse);

/// Bytes for people: three significant digits and a binary unit, `1.46 GiB`, `64.0 MiB`, `812 B`.
#[must_use]
pub fn human_bytes(bytes: f64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let mut value = bytes.abs();
    let mut unit = 0;
    while value >= 999.5 && unit + 1 < units.len() {
        value /= 1024.0;
        unit += 1;
    }
    let digits = if unit == 0 || value >= 99.95 {
        0
    } else if value >= 9.995 {
        1
    } else {
        2
    };
    let sign = if bytes < 0.0 { "-" } else { "" };
    format!("{sign}{value:.digits$} {}", units[unit])
}

/// Seconds for people: `850 ms`, `12.4 s`, `3m 20s`, `2h 05m`.
#[must_use]
pub fn human_seconds(seconds: f64) -> String {
    let rounded_s = nearest(seconds.max(0.0)).unwrap_or(0);
    if seconds < 1.0 {
        format!("{:.0} ms", seconds * 1e3)
    } else if seconds < 120.0 {
        format!("{seconds:.1} s")
    } else if rounded_s < 7200 {
        format!("{}m {:02}s", rounded_s / 60, rounded_s % 60)
    } else {
        format!("{}h {:02}m", rounded_s / 3600, rounded_s % 3600 / 60)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn sizes_of_the_contract() {
        for (text, bytes) in [
            ("64K", 65536),
            ("512M", 512 << 20),
            ("1.5G", 3 << 29),
            ("4KiB", 4096),
            ("4Ki", 4096),
            ("7B", 7),
            ("0", 0),
            ("1 GB", 1 << 30),
        ] {
            assert_eq!(text.parse::<Size>().unwrap().0, bytes, "{text}");
        }
        for text in ["", "7", "K", "-1", "1.5X", "1e400", "99999999T", "1..2K", "nan"] {
            assert!(text.parse::<Size>().is_err(), "{text}");
        }
    }

    #[test]
    fn times_and_shares_of_the_contract() {
        assert_eq!("5ms".parse::<Span>().unwrap().0, Duration::from_millis(5));
        assert_eq!("1m".parse::<Span>().unwrap().0, Duration::from_secs(60));
        assert_eq!("1.5h".parse::<Span>().unwrap().0, Duration::from_secs(5400));
        assert!((("5%".parse::<Share>().unwrap().0) - 0.05).abs() < 1e-12);
        assert!("5 percent".parse::<Share>().is_err());
        assert_eq!("1".parse::<Share>().unwrap_err().to_string(), "'1' has no unit; write for example 5% or 0.5%");
        assert!("5".parse::<Span>().is_err());
        assert_eq!(Size::in_file("4096").unwrap(), Size(4096));
        for (share, text) in
            [(0.0, "0%"), (0.05, "5%"), (1.0, "100%"), (12.0, "1200%"), (0.123_456, "12.3456%"), (1e-5, "0.001%")]
        {
            assert_eq!(Share(share).to_string(), text);
        }
        assert!("1 fortnight".parse::<Span>().is_err());
    }

    #[test]
    fn people_read_three_digits() {
        assert_eq!(human_bytes(1_567_000_000.0), "1.46 GiB");
        assert_eq!(human_bytes(64.0 * 1048576.0), "64.0 MiB");
        assert_eq!(human_bytes(0.0), "0 B");
        assert_eq!(human_seconds(200.0), "3m 20s");
    }

    proptest! {
        #[test]
        fn print_then_parse_is_identity(bytes in any::<u64>(), us in 0u64..(1 << 50), share in 0.0..10.0) {
            prop_assert_eq!(Share(share).to_string().parse::<Share>().unwrap(), Share(share));
            prop_assert_eq!(Size(bytes).to_string().parse::<Size>().unwrap(), Size(bytes));
            let span = Span(Duration::from_micros(us));
            prop_assert_eq!(span.to_string().parse::<Span>().unwrap().0.as_micros(), span.0.as_micros());
        }

        #[test]
        fn any_text_is_survived(text in "\\PC*") {
            let _ = (text.parse::<Size>(), text.parse::<Span>(), text.parse::<Share>());
        }
    }
}
