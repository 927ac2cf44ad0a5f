//! Numbers as damo writes them.

use std::fmt;

use lowtide_model::units::{float, integer};
use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};

/// A number, however it is written: 7, 7.5, "7", "94,827,419,009,024", "5 ms", "4.000 KiB"; `{samples: 7}`,
/// `{aggr_intervals: "3"}`; or null. Times are in microseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Number {
    pub value: Option<f64>,
    /// Of an integer: addresses do not fit into the other.
    exact: Option<u64>,
}

impl Number {
    pub(super) fn text(text: &str) -> Self {
        let plain: String = text.trim().chars().filter(|c| *c != ',').collect();
        if let Ok(exact) = plain.parse::<u64>() {
            return Self::exact(exact);
        }
        let digits = plain.find(|c: char| !(c.is_ascii_digit() || ".-+eE".contains(c))).unwrap_or(plain.len());
        let (number, unit) = plain.split_at(digits);
        let scale = match unit.trim() {
            "ns" => 1e-3,
            "ms" => 1e3,
            "s" => 1e6,
            "m" => 60e6,
            "h" => 3_600e6,
            "KiB" => 1024.0,
            "MiB" => 1_048_576.0,
            "GiB" => 1_073_741_824.0,
            _ => 1.0,
        };
        let value = number.trim().parse::<f64>().ok().map(|value| value * scale);
        Self { value: value.filter(|value| value.is_finite()), exact: None }
    }

    fn exact(exact: u64) -> Self {
        Self { value: Some(float(exact)), exact: Some(exact) }
    }

    pub(super) fn u64(self) -> Option<u64> {
        self.exact.or(self.value.filter(|value| (0.0..1.8e19).contains(value)).map(integer))
    }
}

impl<'de> Deserialize<'de> for Number {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Any;
        impl<'de> Visitor<'de> for Any {
            type Value = Number;

            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str("a number")
            }

            fn visit_u64<E>(self, value: u64) -> Result<Number, E> {
                Ok(Number::exact(value))
            }

            fn visit_i64<E>(self, value: i64) -> Result<Number, E> {
                Ok(Number { value: Some(float(value)), exact: u64::try_from(value).ok() })
            }

            fn visit_f64<E>(self, value: f64) -> Result<Number, E> {
                Ok(Number { value: Some(value), exact: None })
            }

            fn visit_str<E>(self, text: &str) -> Result<Number, E> {
                Ok(Number::text(text))
            }

            fn visit_unit<E>(self) -> Result<Number, E> {
                Ok(Number::default())
            }

            /// Of several writings of one thing, the one in DAMON's own units.
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Number, A::Error> {
                let mut found = Number::default();
                while let Some(key) = map.next_key::<String>()? {
                    if !matches!(key.as_str(), "samples" | "aggr_intervals") {
                        map.next_value::<IgnoredAny>()?;
                        continue;
                    }
                    let value: Number = map.next_value()?;
                    found = if value.value.is_some() { value } else { found };
                }
                Ok(found)
            }
        }
        deserializer.deserialize_any(Any)
    }
}
