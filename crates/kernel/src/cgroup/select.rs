//! Which cgroups are meant by a name with wildcards, as they come and go.

use std::path::PathBuf;

use glob::{MatchOptions, Pattern};

use super::{Cgroup, NOT_MOUNTED, mount};
use crate::root::{Error, Kernel, Result};

/// A `*` stands for one part of a path, as in a shell; names of cgroups may begin with a dot.
const OPTIONS: MatchOptions =
    MatchOptions { case_sensitive: true, require_literal_separator: true, require_literal_leading_dot: false };

/// A name with wildcards.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selection {
    pattern: Pattern,
    point: PathBuf,
    version: super::Version,
}

impl Selection {
    /// Whether a name has wildcards at all.
    pub fn is_pattern(name: &str) -> bool {
        name.contains(['*', '?', '['])
    }

    /// The selection of a pattern: a full path below the mount, or a path relative to it.
    pub fn new(kernel: &Kernel, name: &str) -> Result<Self> {
        let invalid = |e: glob::PatternError| {
            Error::new("understand", name, std::io::Error::new(std::io::ErrorKind::InvalidInput, e))
        };
        let mount = mount(kernel)?.ok_or_else(|| Error::not_found("find cgroup", name, NOT_MOUNTED))?;
        let relative = name.strip_prefix(&*mount.point.to_string_lossy()).filter(|rest| rest.starts_with('/'));
        let name = format!("/{}", relative.unwrap_or(name).trim_matches('/'));
        let pattern = Pattern::new(&name).map_err(invalid)?;
        Ok(Self { pattern, point: mount.point, version: mount.version })
    }

    /// Whether the pattern means this cgroup or one above it. `path`: as the kernel prints it, from the root of the
    /// hierarchy.
    pub fn holds(&self, path: &str) -> bool {
        let ends = path.match_indices('/').map(|(at, _)| at).skip(1).chain([path.len()]);
        ends.into_iter().any(|end| self.pattern.matches_with(&path[..end], OPTIONS))
    }

    /// The cgroups that are meant now, without those below another one of them.
    pub fn find(&self, kernel: &Kernel) -> Result<Vec<Cgroup>> {
        let base = kernel.path(&self.point);
        let absolute = format!("{}{}", Pattern::escape(&base.to_string_lossy()), self.pattern.as_str());
        let failed = |e: glob::PatternError| Error::new("search", &self.point, std::io::Error::other(e));
        let found = glob::glob_with(&absolute, OPTIONS).map_err(failed)?;
        // A cgroup may go while the folders are walked; what cannot be read counts as gone.
        let mut folders: Vec<PathBuf> = found.flatten().filter(|path| path.is_dir()).collect();
        folders.sort();
        folders.dedup_by(|path, before| path.starts_with(before));
        let inside = |path: PathBuf| path.strip_prefix(&base).ok().map(|rest| self.point.join(rest));
        let cgroups = folders.into_iter().filter_map(inside);
        Ok(cgroups.filter_map(|path| Cgroup::open(kernel, self.version, path).ok()).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn tree() -> (tempfile::TempDir, Kernel) {
        let dir = tempfile::tempdir().unwrap();
        for folder in ["kube.slice/pod1/c", "kube.slice/pod2/c", "kube.slice/other", "system.slice"] {
            std::fs::create_dir_all(dir.path().join("cg").join(folder)).unwrap();
        }
        std::fs::write(dir.path().join("cg/cgroup.controllers"), "memory\n").unwrap();
        std::fs::write(dir.path().join("cg/kube.slice/podfile"), "").unwrap();
        std::fs::create_dir_all(dir.path().join("proc/self")).unwrap();
        std::fs::write(dir.path().join("proc/self/mountinfo"), "30 29 0:26 / /cg rw - cgroup2 cgroup2 rw\n").unwrap();
        let kernel = Kernel::at(dir.path());
        (dir, kernel)
    }

    #[test]
    fn folders_that_match_are_found_and_followed() {
        let (dir, kernel) = tree();
        let selection = Selection::new(&kernel, "/cg/kube.slice/pod*").unwrap();
        let names = |selection: &Selection| -> Vec<String> {
            let found = selection.find(&kernel).unwrap();
            found.iter().map(|cgroup| cgroup.path.display().to_string()).collect()
        };
        assert_eq!(names(&selection), ["/cg/kube.slice/pod1", "/cg/kube.slice/pod2"]);
        std::fs::remove_dir_all(dir.path().join("cg/kube.slice/pod1")).unwrap();
        assert_eq!(names(&selection), ["/cg/kube.slice/pod2"]);
        let nested = Selection::new(&kernel, "**/*").unwrap();
        assert_eq!(names(&nested), ["/cg/kube.slice", "/cg/system.slice"], "what is below another is part of it");
        assert!(Selection::new(&kernel, "a/[").is_err());
    }

    #[test]
    fn descendants_are_held() {
        let (_dir, kernel) = tree();
        let selection = Selection::new(&kernel, "kube.slice/pod*").unwrap();
        assert!(selection.holds("/kube.slice/pod1") && selection.holds("/kube.slice/pod1/c/d"));
        for path in ["/kube.slice", "/kube.slice/other", "/", "", "/x/kube.slice/pod1"] {
            assert!(!selection.holds(path), "{path}");
        }
    }

    proptest! {
        #[test]
        fn any_pattern_and_path_are_survived(pattern in "\\PC{0,12}", path in "(/|\\PC){0,12}") {
            let (_dir, kernel) = tree();
            if let Ok(selection) = Selection::new(&kernel, &pattern) {
                let _ = (selection.holds(&path), selection.find(&kernel));
            }
        }
    }
}
