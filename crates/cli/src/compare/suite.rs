//! What is compared: programs, and the configurations that each is run with.

use std::path::{Path, PathBuf};

use lowtide_model::scheme::builtin;
use lowtide_model::units::{Share, Size, Span};
use serde::{Deserialize, Serialize};

use lowtide_engine::failure::{Failure, code, in_toml};

/// A suite file.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Suite {
    /// What it is called in tables.
    #[serde(default)]
    pub name: String,
    /// The programs.
    #[serde(rename = "program")]
    pub programs: Vec<Program>,
    /// Programs that run together. Are there any, programs run alone only to be compared with.
    #[serde(default, rename = "mix", skip_serializing_if = "Vec::is_empty")]
    pub mixes: Vec<Mix>,
    /// Configurations beside those that are built in.
    #[serde(default, rename = "config")]
    pub configs: Vec<Configuration>,
}

/// A program.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Program {
    /// What it is called in tables.
    pub name: String,
    /// What kind of program it is, for whoever groups the results.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub family: Option<String>,
    /// Run by a shell before each run, and not timed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub setup: Option<String>,
    /// What is run and timed: a line for a shell, or words.
    pub command: Command,
    /// Run by a shell after each run, however it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub teardown: Option<String>,
    /// Takes a figure from what the program prints: a regular expression with one group; the last match counts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub figure: Option<String>,
    /// What the figure is called, with its unit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub figure_name: Option<String>,
    /// A run is given up after so long.
    #[serde(default = "ten_minutes")]
    pub timeout: Span,
    /// Whether the page cache is dropped before each run: that of the entire system.
    #[serde(default)]
    pub drop_caches: bool,
}

fn ten_minutes() -> Span {
    Span(std::time::Duration::from_secs(600))
}

/// Programs that run together in less memory than they would have alone.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mix {
    /// What it is called in tables.
    pub name: String,
    /// Which programs; one that is named twice runs twice.
    pub programs: Vec<String>,
    /// By how much less they have all together than the sum of what each had at most when it ran alone.
    pub shortage: Share,
}

/// A command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Command {
    /// A line for a shell.
    Line(String),
    /// A program and its arguments.
    Words(Vec<String>),
}

impl Default for Command {
    fn default() -> Self {
        Self::Words(Vec::new())
    }
}

impl Command {
    /// The words to run.
    #[must_use]
    pub fn words(&self) -> Vec<String> {
        match self {
            Self::Line(line) => vec!["sh".to_owned(), "-c".to_owned(), line.clone()],
            Self::Words(words) => words.clone(),
        }
    }
}

/// When the kernel makes huge pages.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Thp {
    /// Wherever it can.
    Always,
    /// Where it is asked to.
    #[default]
    Madvise,
    /// Nowhere.
    Never,
}

impl Thp {
    /// The kernel's word.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Always => "always",
            Self::Madvise => "madvise",
            Self::Never => "never",
        }
    }
}

/// A configuration.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Configuration {
    /// What it is called in tables, and asked for by.
    pub name: String,
    /// Files of schemes, or names of those that are built in.
    #[serde(default)]
    pub schemes: Vec<String>,
    /// When the kernel makes huge pages.
    #[serde(default)]
    pub thp: Thp,
    /// Limit of the program's memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<Size>,
    /// Whether the program may be paged out; on unless said otherwise.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub no_swap: bool,
    /// Whether the limit is set by systemd, as one that was pasted is. A limit of lowtide's own is set otherwise.
    #[serde(skip)]
    pub scope: bool,
    /// The monitor; none if it is left out and there are no schemes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub monitor: Option<String>,
    /// Price cap of monitoring, as for `run`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_overhead: Option<String>,
    /// File of a `lowtide agent` that is at work beside the program. The program is in a cgroup named `lowtide-*`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<PathBuf>,
    /// Run by a shell beside the program, and ended with it. `$LOWTIDE_CGROUP` is the folder of the cgroup of programs that
    /// run together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub beside: Option<String>,
    /// The multi-generational LRU keeps what was used within this time, and kills before it evicts it (`min_ttl_ms`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_ttl: Option<Span>,
}

/// The configuration that all others are compared with.
pub const ORIGINAL: &str = "orig";

/// A configuration that is built in: `orig`, `rec`, `thp`, or the name of built-in schemes.
#[must_use]
pub fn builtin(name: &str) -> Option<Configuration> {
    let config = Configuration { name: name.to_owned(), ..Configuration::default() };
    match name {
        ORIGINAL => Some(config),
        "rec" => Some(Configuration { monitor: Some("auto".to_owned()), ..config }),
        "thp" => Some(Configuration { thp: Thp::Always, ..config }),
        _ if builtin::named(name).is_some() => Some(Configuration { schemes: vec![name.to_owned()], ..config }),
        _ => None,
    }
}

impl Suite {
    /// Reads a suite file.
    ///
    /// # Errors
    /// If it is not there, or has a mistake: which, and where.
    pub fn read(path: &Path) -> Result<Self, Failure> {
        let name = path.display();
        let text = std::fs::read_to_string(path)
            .map_err(|error| Failure::new(code::GONE, format!("{name}: {error}; give a suite file")))?;
        let suite: Self = toml::from_str(&text).map_err(|error| in_toml(path, &text, &error))?;
        suite.check().map_err(|message| Failure::new(code::USAGE, format!("{name}: {message}")))?;
        Ok(suite)
    }

    /// A suite of one program.
    #[must_use]
    pub fn of(command: Vec<String>) -> Self {
        let name = command.first().and_then(|word| Path::new(word).file_name()).unwrap_or_default();
        let name = name.to_string_lossy().into_owned();
        let program = Program { name, command: Command::Words(command), timeout: ten_minutes(), ..Program::default() };
        Self { programs: vec![program], ..Self::default() }
    }

    /// Leaves only these programs and mixes, and what the mixes are made of.
    ///
    /// # Errors
    /// If one of them is not in it.
    pub fn only(&mut self, names: &[String]) -> Result<(), Failure> {
        if names.is_empty() {
            return Ok(());
        }
        let known: Vec<&str> = self.names().collect();
        if let Some(name) = names.iter().find(|name| !known.contains(&name.as_str())) {
            let message = format!("--only {name}: no such program; there are {}", known.join(", "));
            return Err(Failure::new(code::USAGE, message));
        }
        self.mixes.retain(|mix| names.contains(&mix.name));
        let mixed = |program: &Program| self.mixes.iter().any(|mix| mix.programs.contains(&program.name));
        self.programs.retain(|program| names.contains(&program.name) || mixed(program));
        Ok(())
    }

    /// Names of all that runs: programs, then mixes.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let programs = self.programs.iter().map(|program| program.name.as_str());
        programs.chain(self.mixes.iter().map(|mix| mix.name.as_str()))
    }

    fn check(&self) -> Result<(), String> {
        if self.programs.is_empty() {
            return Err("no program in it; add a [[program]] with name and command".to_owned());
        }
        if let Some((_, twice)) =
            self.names().enumerate().find(|(index, name)| self.names().skip(index + 1).any(|n| n == *name))
        {
            return Err(format!("two programs are called {twice}"));
        }
        for program in &self.programs {
            if program.command.words().is_empty() {
                return Err(format!("{} has no command", program.name));
            }
            if let Some(figure) = &program.figure {
                let regex =
                    regex_lite::Regex::new(figure).map_err(|error| format!("figure of {}: {error}", program.name))?;
                if regex.captures_len() != 2 {
                    return Err(format!(
                        "figure of {}: give it exactly one group, as in 'rate: ([0-9.]+)'",
                        program.name
                    ));
                }
            }
        }
        for mix in &self.mixes {
            let known = |name: &&String| self.programs.iter().any(|program| program.name == **name);
            if let Some(name) = mix.programs.iter().find(|name| !known(name)) {
                return Err(format!("{}: there is no program {name}", mix.name));
            }
            if mix.programs.len() < 2 || !(0.0..1.0).contains(&mix.shortage.0) {
                return Err(format!("{}: give two programs or more, and a shortage below 100%", mix.name));
            }
        }
        Ok(())
    }

    /// The configurations of these names, the original first.
    ///
    /// # Errors
    /// If one is neither in the suite nor built in.
    pub fn configs(&self, names: &[String]) -> Result<Vec<Configuration>, Failure> {
        let one = |name: &String| {
            let own = self.configs.iter().find(|config| config.name == *name).cloned();
            own.or_else(|| builtin(name)).ok_or_else(|| {
                let schemes = builtin::ALL.map(|builtin| builtin.name).join(", ");
                let message = format!("--configs {name}: no such configuration; there are orig, rec, thp, {schemes}");
                Failure::new(code::USAGE, message)
            })
        };
        let mut configs = names.iter().map(one).collect::<Result<Vec<Configuration>, Failure>>()?;
        if !configs.iter().any(|config| config.name == ORIGINAL) {
            configs.extend(builtin(ORIGINAL));
        }
        configs.sort_by_key(|config| config.name != ORIGINAL);
        Ok(configs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Suite, Failure> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("suite.toml");
        std::fs::write(&path, text).unwrap();
        Suite::read(&path)
    }

    #[test]
    fn suites_are_read_and_mistakes_named() {
        let suite = read(
            "name='mine'\n[[program]]\nname='a'\ncommand='sleep 1'\ntimeout='1m'\nfigure='rate ([0-9]+)'\n\
             [[config]]\nname='tight'\nlimit='64M'\nthp='never'",
        )
        .unwrap();
        assert_eq!(suite.programs[0].command.words(), ["sh", "-c", "sleep 1"]);
        let names = ["tight", "prcl", "orig"].map(String::from);
        let configs = suite.configs(&names).unwrap();
        assert_eq!(configs.iter().map(|config| config.name.as_str()).collect::<Vec<_>>(), ["orig", "tight", "prcl"]);
        assert!(suite.configs(&["fast".to_owned()]).unwrap_err().message.contains("there are orig, rec"));
        for (text, part) in [
            ("[[program]]\nname='a'\ncomand='x'", "suite.toml:3:1: unknown field `comand`"),
            ("[[program]]\nname='a'\ncommand='x'\nfigure='('", "figure of a"),
            ("[[program]]\nname='a'\ncommand='x'\nfigure='x'", "exactly one group"),
            ("[[program]]\nname='a'\ncommand='x'\n[[program]]\nname='a'\ncommand='x'", "two programs are called a"),
            ("program=[]", "no program in it"),
            (
                "[[program]]\nname='a'\ncommand='x'\n[[mix]]\nname='m'\nprograms=['a','b']\nshortage='35%'",
                "no program b",
            ),
            (
                "[[program]]\nname='a'\ncommand='x'\n[[mix]]\nname='m'\nprograms=['a']\nshortage='35%'",
                "two programs or more",
            ),
            (
                "[[program]]\nname='a'\ncommand='x'\n[[mix]]\nname='a'\nprograms=['a','a']\nshortage='3%'",
                "are called a",
            ),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.message.contains(part), "{text}: {}", error.message);
        }
    }
}
