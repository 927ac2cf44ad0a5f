//! The multi-generational LRU through debugfs: generations by cgroup and node, and making new ones.
//! (Documentation/admin-guide/mm/multigen_lru.rst.)

use std::path::PathBuf;

use lowtide_model::PAGE;
use lowtide_model::generations::Generation;
use lowtide_model::kind::{Kind, PerKind};
use lowtide_model::units::float;

use crate::mounts::Mounted;
use crate::root::{Error, Kernel, Result};

/// What is switched on, and where to switch.
pub(crate) const SWITCH: &str = "/sys/kernel/mm/lru_gen/enabled";

/// The components that are on, as bits: 1 the LRU itself, 2 leaf entries in batches, 4 non-leaf entries.
pub fn switch(kernel: &Kernel) -> Result<u32> {
    let text = kernel.read_text(SWITCH)?;
    parse_switch(&text).ok_or_else(|| Error::unexpected(SWITCH, "not a hexadecimal number"))
}

fn parse_switch(text: &str) -> Option<u32> {
    u32::from_str_radix(text.trim().strip_prefix("0x")?, 16).ok()
}

/// The generations of one cgroup on one node: pages charged to itself, not to its children.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Lruvec {
    /// The kernel's number of the cgroup; only good for commands.
    pub memcg: u64,
    /// Path of the cgroup; `/` for the root.
    pub path: String,
    /// The node.
    pub node: u64,
    /// Oldest first. Only those that could be evicted are listed.
    pub generations: Vec<Generation>,
}

impl Lruvec {
    /// Whether no page is in any generation.
    pub fn is_empty(&self) -> bool {
        self.generations.iter().all(|generation| generation.anon + generation.file == 0.0)
    }

    /// Number of the youngest generation of which all pages have been idle for at least so long: for as long as the one after
    /// it has been there. Never one of the two youngest, which the kernel keeps.
    pub fn idle_for(&self, age_s: f64) -> Option<u64> {
        let mut pairs = self.generations.windows(3).map(|next| (next[0].seq, next[1].age_s));
        pairs.rfind(|(_, idle_s)| *idle_s >= age_s).map(|(seq, _)| seq)
    }

    /// Bytes of one kind in generations up to `seq`.
    pub fn up_to(&self, seq: u64, kind: Kind) -> f64 {
        let old = self.generations.iter().filter(|generation| generation.seq <= seq);
        old.map(|generation| PerKind { anon: generation.anon, file: generation.file }[kind]).sum()
    }

    /// Number of the youngest generation.
    pub fn youngest(&self) -> Option<u64> {
        self.generations.last().map(|generation| generation.seq)
    }
}

/// Parses the file: `memcg ID PATH`, ` node NID`, and a line `SEQ AGE_MS ANON FILE` (pages) for each generation. Lines of
/// any other form are passed over. Numbers are updated in batches and may be below zero for a moment.
pub fn parse(text: &str) -> Vec<Lruvec> {
    let mut all: Vec<Lruvec> = Vec::new();
    let (mut memcg, mut path) = (0, "");
    for line in text.lines() {
        let line = line.trim_start();
        if let Some(rest) = line.strip_prefix("memcg ") {
            // Older kernels pad the number; a path may hold spaces.
            let (id, name) = rest.trim_start().split_once(' ').unwrap_or((rest.trim(), ""));
            (memcg, path) = (id.parse().unwrap_or(0), name.trim_start());
        } else if let Some(rest) = line.strip_prefix("node ") {
            let node = rest.trim().parse().unwrap_or(0);
            let path = if path.is_empty() { "/" } else { path }.to_owned();
            all.push(Lruvec { memcg, path, node, generations: Vec::new() });
        } else if let (Some(lruvec), Some(generation)) = (all.last_mut(), generation(line)) {
            lruvec.generations.push(generation);
        }
    }
    all
}

fn generation(line: &str) -> Option<Generation> {
    let mut words = line.split_whitespace();
    let seq = words.next()?.parse().ok()?;
    let age_ms: u32 = words.next()?.parse().ok()?;
    let mut bytes = || {
        let pages: i64 = words.next()?.parse().ok()?;
        Some(float(u64::try_from(pages).unwrap_or(0).saturating_mul(PAGE)))
    };
    Some(Generation { seq, age_s: f64::from(age_ms) / 1e3, anon: bytes()?, file: bytes()? })
}

/// The interface.
#[derive(Debug)]
pub struct LruGen {
    kernel: Kernel,
    file: PathBuf,
    _debugfs: Mounted,
}

impl LruGen {
    /// Opens it; fails where the kernel lacks it, it is switched off, or debugfs is locked down.
    pub fn open(kernel: &Kernel) -> Result<Self> {
        if switch(kernel)? & 1 == 0 {
            return Err(Error::missing("use", SWITCH, "the multi-generational LRU is switched off (echo y to it)"));
        }
        let debugfs = Mounted::open(kernel, "debugfs", &["/sys/kernel/debug"], "lru_gen")?;
        let file = debugfs.path("lru_gen");
        kernel.check_writable(&file)?;
        Ok(Self { kernel: kernel.clone(), file, _debugfs: debugfs })
    }

    /// All cgroups' generations.
    pub fn read(&self) -> Result<Vec<Lruvec>> {
        Ok(parse(&self.kernel.read_text(&self.file)?))
    }

    /// Makes a new generation in each of these: the kernel walks the page tables of the cgroup's processes, and what was
    /// used since the last walk goes to the generation that was the youngest until now. Anonymous pages are aged too, also
    /// without swap.
    ///
    /// That it succeeds means little: older kernels say so also where nothing was done, and where another program made a
    /// generation first, it is refused. [`LruGen::read`] reports what there is now. Returns the numbers of the cgroups that
    /// are no longer: removed, while pages are still charged to them.
    pub fn age<'a>(&self, lruvecs: impl Iterator<Item = &'a Lruvec>) -> Result<Vec<u64>> {
        // can_swap (swappiness on newer kernels) and force_scan: 1 says yes to both in both dialects.
        let command = |lruvec: &Lruvec| {
            let youngest = lruvec.youngest()?;
            Some((lruvec.memcg, format!("+ {} {} {youngest} 1 1\n", lruvec.memcg, lruvec.node)))
        };
        let commands: Vec<(u64, String)> = lruvecs.filter_map(command).collect();
        let all: String = commands.iter().map(|(_, command)| command.as_str()).collect();
        if commands.is_empty() || self.write(&all)?.is_none() {
            return Ok(Vec::new());
        }
        // The kernel stopped at the first that it refused; asking again for those before it does nothing.
        let mut gone = Vec::new();
        for (memcg, command) in &commands {
            // Generations only become more, so what is invalid is the cgroup.
            if self.write(command)? == Some(libc::EINVAL) {
                gone.push(*memcg);
            }
        }
        Ok(gone)
    }

    /// Evicts at most so many pages of generations up to `seq`, the oldest first: anonymous ones, or those of files. The two
    /// youngest generations cannot be evicted. False if there was nothing that could be.
    pub fn evict(&self, lruvec: &Lruvec, seq: u64, kind: Kind, pages: u64) -> Result<bool> {
        // Swappiness: 200 takes anonymous pages alone, 0 those of files (mm/vmscan.c, get_type_to_scan).
        let swappiness = if kind == Kind::Anon { 200 } else { 0 };
        let command = format!("- {} {} {seq} {swappiness} {pages}", lruvec.memcg, lruvec.node);
        Ok(self.write(&command)?.is_none())
    }

    /// The error number where something was refused, which is no failure.
    fn write(&self, commands: &str) -> Result<Option<i32>> {
        match self.kernel.write(&self.file, commands) {
            Ok(()) => Ok(None),
            // EEXIST: no new one was made. EINVAL: the cgroup is gone. ERANGE: the oldest cannot be given up yet.
            Err(e) if e.is_any_of(&[libc::EEXIST, libc::EINVAL, libc::ERANGE, libc::EINTR]) => Ok(e.errno()),
            Err(e) => Err(e),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Both dialects: padded numbers (6.1), and not (6.12); a path with a space; a size below zero.
    const TEXT: &str = "memcg     1 /\n node     0\n          0     141290      30720          0\n          1     121004        128          7\nmemcg 38 /a b/c\n node 0\n 4 9000 100 -3\n 5 1000 20 1\n node 1\n 4 9000 0 0\n";

    #[test]
    fn cgroups_nodes_and_generations() {
        let all = parse(TEXT);
        let heads: Vec<_> = all.iter().map(|l| (l.memcg, l.path.as_str(), l.node, l.generations.len())).collect();
        assert_eq!(heads, [(1, "/", 0, 2), (38, "/a b/c", 0, 2), (38, "/a b/c", 1, 1)]);
        assert_eq!(all[0].generations[0].anon, 30720.0 * 4096.0);
        assert_eq!((all[1].generations[0].age_s, all[1].generations[0].file), (9.0, 0.0));
        assert_eq!(all[1].youngest(), Some(5));
    }

    #[test]
    fn what_can_be_evicted_is_idle_as_long_as_the_next_generation_is_old() {
        let of = |seq, age_s| Generation { seq, age_s, anon: 10.0, file: 1.0 };
        let lruvec =
            Lruvec { generations: vec![of(4, 90.0), of(5, 30.0), of(6, 10.0), of(7, 0.1)], ..Lruvec::default() };
        assert_eq!(
            [5.0, 10.0, 11.0, 30.0, 31.0].map(|age_s| lruvec.idle_for(age_s)),
            [Some(5), Some(5), Some(4), Some(4), None]
        );
        assert_eq!((lruvec.up_to(5, Kind::Anon), lruvec.up_to(4, Kind::File)), (20.0, 1.0));
        let young = Lruvec { generations: vec![of(6, 90.0), of(7, 50.0)], ..Lruvec::default() };
        assert_eq!(young.idle_for(1.0), None, "the kernel keeps two");
    }

    #[test]
    fn what_the_switch_says() {
        assert_eq!(parse_switch("0x0007\n"), Some(7));
        assert_eq!(parse_switch("0x0000\n"), Some(0));
        assert_eq!(parse_switch("y\n"), None);
    }

    proptest! {
        #[test]
        fn any_text_is_survived(text in "(0x)?(\\PC|\\n)*") {
            let _ = (parse(&text), parse_switch(&text));
        }

        #[test]
        fn near_misses_are_survived(cut in 0usize..200, junk in "\\PC{0,3}") {
            let cut = cut.min(TEXT.len());
            let _ = parse(&format!("{}{junk}{}", &TEXT[..cut], &TEXT[cut..]));
        }
    }
}
