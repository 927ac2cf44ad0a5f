//! Reading `/proc/self/smaps`, to learn whether huge pages were really given.

use crate::units::usize_of;

/// The `AnonHugePages` bytes of the mapping that starts at `start`, in the text of an smaps file.
pub fn anon_huge_bytes(smaps: &str, start: usize) -> usize {
    let mut inside = false;
    for line in smaps.lines() {
        let first = line.split_ascii_whitespace().next().unwrap_or("");
        if let Some(value) = line.strip_prefix("AnonHugePages:") {
            if inside {
                let kib = value.trim().trim_end_matches("kB").trim();
                return usize_of(kib.parse::<u64>().unwrap_or(0)) << 10;
            }
        } else if !first.ends_with(':') {
            // A mapping's first line: its range, rather than a key.
            let from = first.split('-').next().unwrap_or("");
            inside = usize::from_str_radix(from, 16) == Ok(start);
        }
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMAPS: &str = "\
7f0000000000-7f0000400000 rw-p 00000000 00:00 0 [anon:a]
Rss:                4096 kB
AnonHugePages:      2048 kB
VmFlags: rd wr hg
7f0000600000-7f0000a00000 rw-p 00000000 00:00 0
AnonHugePages:      4096 kB
";

    #[test]
    fn the_right_mapping_is_found() {
        assert_eq!(anon_huge_bytes(SMAPS, 0x7f00_0000_0000), 2 << 20);
        assert_eq!(anon_huge_bytes(SMAPS, 0x7f00_0060_0000), 4 << 20);
        assert_eq!(anon_huge_bytes(SMAPS, 0x7f00_0020_0000), 0);
    }
}
