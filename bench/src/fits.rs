//! Whether a pattern fits into this machine's memory: figures of one that swaps or is killed are useless.

use std::path::Path;

use anyhow::{Context, bail};
use lowtide_kernel::root::Kernel;
use lowtide_kernel::system;
use lowtide_model::units::{Size, float, human_bytes};
use serde::Deserialize;

/// Needed besides: the program's and lowtide's own memory, and headroom.
const OTHER: u64 = 96 << 20;

#[derive(Deserialize)]
struct Pattern {
    area: Vec<Area>,
}

#[derive(Deserialize)]
struct Area {
    size: String,
}

/// Fails if the pattern in that file needs more memory than is available.
pub fn check(file: &Path) -> anyhow::Result<()> {
    let text = std::fs::read_to_string(file).with_context(|| format!("reading {}", file.display()))?;
    let needed = areas(&text).with_context(|| format!("in {}", file.display()))? + OTHER;
    let available = system::memory(&Kernel::default())?.available;
    if needed > available {
        let [needed, available] = [needed, available].map(|bytes| human_bytes(float(bytes)));
        bail!("needs {needed} of memory, {available} are available");
    }
    Ok(())
}

/// Bytes of all areas of a pattern.
fn areas(text: &str) -> anyhow::Result<u64> {
    let pattern: Pattern = toml::from_str(text)?;
    pattern.area.iter().map(|area| Ok(Size::in_file(&area.size)?.0)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn areas_are_added() {
        let text = "name = \"x\"\n[[area]]\nname = \"a\"\nsize = \"64M\"\n[[area]]\nname = \"b\"\nsize = \"1G\"\n[[phase]]\nseconds = 3\n";
        assert_eq!(areas(text).unwrap(), (64 << 20) + (1 << 30));
        assert!(areas("name = 3").is_err());
    }
}
