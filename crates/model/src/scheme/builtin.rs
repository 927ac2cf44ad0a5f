//! Schemes that are known by name.

use super::{Scheme, line};

/// A named set of schemes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Builtin {
    /// What it is asked for by.
    pub name: &'static str,
    /// One line of help.
    pub about: &'static str,
    text: &'static str,
}

/// All of them. `ethp` and `prcl` are the two of the evaluation of DAMON v6 (linux-mm, 9 March 2020), to the letter.
///
/// The tuned ones differ in the ages: programs that run for less than a minute use nothing for 5 s only once they are half
/// over. `prcl-tuned` takes what no sample found in use (one of twenty, which 5 % allows, is a page in use), in regions
/// large enough to be worth checking again. `ethp-tuned` makes huge pages at once of what a quarter of the
/// samples found in use, and never where most of one would be empty, so there are none to take back.
pub const ALL: [Builtin; 4] = [
    Builtin {
        name: "ethp",
        about: "huge pages for regions over 2 MiB in use, and only there (as published)",
        text: "2M null 5 null null null hugepage\n2M null null 5 1s null nohugepage",
    },
    Builtin {
        name: "prcl",
        about: "page out what was not used for 5 s (as published)",
        text: "4K null null 5 5s null pageout",
    },
    Builtin {
        name: "ethp-tuned",
        about: "huge pages at once for regions in use, without those that would be mostly empty",
        text: "2M null 25 null 1s null collapse",
    },
    Builtin {
        name: "prcl-tuned",
        about: "page out what no sample found in use for 2 s",
        text: "64K null null 0 2s null pageout",
    },
];

/// The schemes of that name.
#[must_use]
pub fn named(name: &str) -> Option<Vec<Scheme>> {
    let builtin = ALL.iter().find(|builtin| builtin.name == name)?;
    let mut schemes = line::parse(builtin.text).ok()?;
    for scheme in &mut schemes {
        scheme.name = Some(name.to_owned());
    }
    Some(schemes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_are_read() {
        for builtin in ALL {
            assert!(!named(builtin.name).unwrap().is_empty(), "{}", builtin.name);
        }
        assert_eq!(named("prcl-tuna"), None);
    }
}
