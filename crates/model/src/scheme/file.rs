//! Schemes as TOML or JSON, with all that the kernel has.
//!
//! ```toml
//! [[scheme]]
//! action = "pageout"
//! access = { max = "0%" }
//! age = { min = "3s" }
//! quota = { size = "64M", every = "1s" }
//! filter = [{ type = "young" }]
//! ```

use serde::{Deserialize, Serialize};

use super::Scheme;
use super::line::{self, SyntaxError};

/// A file of schemes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Schemes {
    scheme: Vec<Scheme>,
}

/// Schemes of a text in any of the three forms: JSON begins with a brace, TOML has a table or a key, and lines have neither.
///
/// # Errors
/// At the first mistake, with its place.
pub fn parse(text: &str) -> Result<Vec<Scheme>, SyntaxError> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let code = text.lines().map(str::trim).find(|line| !line.is_empty() && !line.starts_with('#')).unwrap_or_default();
    let schemes = if code.starts_with('{') {
        from_json(text)?
    } else if code.starts_with('[') || code.contains('=') {
        from_toml(text)?
    } else {
        line::parse(text)?
    };
    if schemes.is_empty() {
        let message =
            "there is no scheme in it; write one a line, for example 4K null null 5 5s null pageout".to_owned();
        return Err(SyntaxError { line: 1, column: 1, message });
    }
    Ok(schemes)
}

fn from_json(text: &str) -> Result<Vec<Scheme>, SyntaxError> {
    let schemes: Schemes = serde_json::from_str(text).map_err(|error| {
        let text = error.to_string();
        // The place is said on its own.
        let message = text.rsplit_once(" at line ").map_or(text.as_str(), |(message, _)| message).to_owned();
        SyntaxError { line: error.line(), column: error.column(), message }
    })?;
    Ok(schemes.scheme)
}

fn from_toml(text: &str) -> Result<Vec<Scheme>, SyntaxError> {
    let schemes: Schemes = toml::from_str(text).map_err(|error| SyntaxError::in_toml(text, &error))?;
    Ok(schemes.scheme)
}

/// Schemes as TOML.
///
/// # Errors
/// If a number has no place in TOML: one above `i64::MAX`.
pub fn to_toml(schemes: &[Scheme]) -> Result<String, toml::ser::Error> {
    toml::to_string(&Schemes { scheme: schemes.to_vec() })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::option;
    use proptest::prelude::*;

    use super::*;
    use crate::scheme::{
        Action, Bounds, Destination, Filter, FilterType, Goal, GoalMetric, Quota, Watermarks, Weights,
    };
    use crate::units::{Share, Size, Span};

    #[test]
    fn mistakes_are_named_with_their_place() {
        let toml = "[[scheme]]\naction = \"pageout\"\n";
        for (text, place, part) in [
            (format!("{toml}quotas = 3"), (3, 1), "unknown field `quotas`, expected one of `name`, `action`"),
            (format!("{toml}size = {{ min = \"4X\" }}"), (3, 16), "'4X' is not a size; write for example 64K"),
            (format!("{toml}age = {{ min = \"5s\", max = \"1s\" }}"), (3, 7), "min 5s is above max 1s"),
            ("[[scheme]]\naction = \"pagout\"".to_owned(), (2, 10), "expected one of `willneed`, `cold`, `pageout`"),
            (format!("{toml}filter = [{{ type = \"memcg\" }}]"), (3, 10), "takes cgroup = \"/path\""),
            (format!("{toml}target_node = 1"), (1, 1), "for migrate_hot and migrate_cold, not pageout"),
            ("{\"scheme\":[{\"action\":\"stat\",\"size\":3}]}".to_owned(), (1, 36), "expected a table like { min"),
            ("# nothing".to_owned(), (1, 1), "no scheme in it"),
            ("{".to_owned(), (1, 1), "EOF"),
        ] {
            let error = parse(&text).unwrap_err();
            assert_eq!((error.line, error.column), place, "{text}: {error}");
            assert!(error.message.contains(part), "{text}: {error}");
        }
    }

    fn bounds<T: PartialOrd + Copy + std::fmt::Debug>(
        value: impl Strategy<Value = T>,
    ) -> impl Strategy<Value = Bounds<T>> {
        (option::of(value.prop_map(|v| (v, v))), any::<[bool; 2]>()).prop_map(|(value, [least, most])| Bounds {
            min: value.filter(|_| least).map(|(min, _)| min),
            max: value.filter(|_| most).map(|(_, max)| max),
        })
    }

    fn span() -> impl Strategy<Value = Span> {
        (1u64..(1 << 50)).prop_map(|us| Span(Duration::from_micros(us)))
    }

    fn kind() -> impl Strategy<Value = FilterType> {
        prop_oneof![
            Just(FilterType::Anon),
            Just(FilterType::Active),
            Just(FilterType::Young),
            Just(FilterType::Unmapped),
            "[a-z/.\"\\\\ ]{0,12}".prop_map(FilterType::Memcg),
            (any::<u64>()).prop_map(|size| FilterType::HugepageSize(Size(size), Size(size))),
            (0u64..1 << 47, 1u64..1 << 47).prop_map(|(start, more)| FilterType::Addr(start, start + more)),
            any::<u32>().prop_map(FilterType::Target),
        ]
    }

    fn scheme() -> impl Strategy<Value = Scheme> {
        let pattern = (
            bounds(any::<u64>().prop_map(Size)),
            bounds((0.0..=1.0f64).prop_map(Share)),
            bounds(span()),
            option::of(span()),
            option::of("[a-z \"#]{0,9}"),
        );
        let goal = (0u64..1 << 60, option::of(0u64..9), option::of(any::<u32>()), option::of("[a-z/]{0,9}")).prop_map(
            |(target, current, node, cgroup)| Goal { metric: GoalMetric::NodeMemUsedBp, target, current, node, cgroup },
        );
        let quota = (
            option::of(span()),
            option::of(any::<u64>().prop_map(Size)),
            span(),
            any::<[u32; 3]>(),
            proptest::collection::vec(goal, 0..3),
        );
        let quota = quota.prop_map(|(time, size, every, [a, b, c], goals)| {
            let weights = Weights { size: a, access: b, age: c };
            Quota { time, size, every, weights, goals }
        });
        let marks = (span(), [0.0..=1.0f64, 0.0..=1.0, 0.0..=1.0]).prop_map(|(every, mut marks)| {
            marks.sort_by(f64::total_cmp);
            Watermarks { every, high: Share(marks[2]), mid: Share(marks[1]), low: Share(marks[0]) }
        });
        let filter = (kind(), any::<[bool; 2]>()).prop_map(|(of, [matching, allow])| Filter { of, matching, allow });
        let place =
            (proptest::sample::select(&Action::ALL), any::<u32>(), proptest::collection::vec(any::<[u32; 2]>(), 0..3));
        (pattern, quota, option::of(marks), proptest::collection::vec(filter, 0..4), place).prop_map(
            |((size, access, age, apply_interval, name), quota, watermarks, filters, (action, node, nodes))| Scheme {
                name,
                action,
                size,
                access,
                age,
                apply_interval,
                target_node: action.migrates().then_some(node),
                destinations: nodes
                    .into_iter()
                    .filter(|_| action.migrates())
                    .map(|[node, weight]| Destination { node, weight })
                    .collect(),
                quota,
                watermarks,
                filters,
            },
        )
    }

    proptest! {
        #[test]
        fn both_forms_round_trip(schemes in proptest::collection::vec(scheme(), 1..4)) {
            let json = Schemes { scheme: schemes.clone() };
            prop_assert_eq!(&parse(&serde_json::to_string_pretty(&json).unwrap()).unwrap(), &schemes);
            prop_assert_eq!(&parse(&to_toml(&schemes).unwrap()).unwrap(), &schemes);
            for scheme in &schemes {
                if let Ok(line) = line::print(scheme) {
                    let bare = Scheme { name: None, ..scheme.clone() };
                    prop_assert_eq!(&parse(&line).unwrap(), &[bare]);
                }
            }
        }

        #[test]
        fn lines_of_whole_figures_round_trip(size in any::<u64>(), percent in 0u32..=100, age in span()) {
            let text = format!("{size} null {percent} null null {age} cold");
            let scheme = &parse(&text).unwrap()[0];
            prop_assert_eq!(&parse(&line::print(scheme).unwrap()).unwrap()[0], scheme);
        }

        #[test]
        fn any_text_is_survived(text in "\\PC*") {
            let _ = parse(&text);
            let _ = parse(&format!("[[scheme]]\n{text}"));
        }
    }
}
