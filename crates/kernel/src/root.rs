//! The one opener of kernel files: an injected root, a dry run inside the writing call, errors that say which
//! operation failed on which path.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustix::event::PollFd;
use rustix::fs::{Mode, OFlags};

use crate::clock::{Clock, TestClock};

pub use crate::error::{Error, Result, UnlessGone};

/// A change of a kernel file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileChange<'a> {
    /// A value is written.
    Write(&'a str),
    /// A folder is made.
    MakeDir,
    /// A folder is removed.
    RemoveDir,
}

/// A test's answer to a change of a kernel file; `None` has the change made.
type Script = dyn Fn(&Path, FileChange<'_>) -> Option<io::Result<()>> + Send + Sync;

#[derive(Clone)]
struct Scripted(Arc<Script>);

impl std::fmt::Debug for Scripted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Scripted")
    }
}

/// Where the kernel's files are, and whether they may be written.
#[derive(Debug, Clone)]
pub struct Kernel {
    root: PathBuf,
    dry_run: bool,
    clock: Clock,
    script: Option<Scripted>,
}

impl Default for Kernel {
    fn default() -> Self {
        Self { root: "/".into(), dry_run: false, clock: Clock::Running, script: None }
    }
}

impl Kernel {
    /// Kernel files below `root`: `/` on a real machine, a captured tree in tests.
    pub fn at(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into(), dry_run: false, clock: Clock::Running, script: None }
    }

    /// The same kernel with a test's clock.
    #[must_use]
    pub fn with_clock(mut self, clock: &TestClock) -> Self {
        self.clock = Clock::Test(clock.clone());
        self
    }

    /// The same kernel with a test's answers to changes, as only real kernel files give them: errors, files that appear.
    #[must_use]
    pub fn with_script(
        mut self,
        script: impl Fn(&Path, FileChange<'_>) -> Option<io::Result<()>> + Send + Sync + 'static,
    ) -> Self {
        self.script = Some(Scripted(Arc::new(script)));
        self
    }

    fn answer(&self, path: &Path, change: FileChange<'_>) -> Option<io::Result<()>> {
        self.script.as_ref().and_then(|Scripted(script)| script(path, change))
    }

    /// Nanoseconds on `CLOCK_MONOTONIC`, the clock of trace events.
    pub fn monotonic_ns(&self) -> u64 {
        self.clock.monotonic_ns()
    }

    /// Seconds since the boot in which the machine was not suspended: nobody uses memory meanwhile, and nothing grows idle.
    pub fn awake_s(&self) -> f64 {
        Duration::from_nanos(self.monotonic_ns()).as_secs_f64()
    }

    /// User plus system CPU seconds of this process; none pass by a test's clock.
    pub fn own_cpu_s(&self) -> f64 {
        self.clock.own_cpu_s()
    }

    /// CPU seconds of the calling thread; none pass by a test's clock.
    pub fn thread_cpu_s(&self) -> f64 {
        self.clock.thread_cpu_s()
    }

    /// Seconds since that time.
    pub fn seconds_since(&self, monotonic_ns: u64) -> f64 {
        Duration::from_nanos(self.monotonic_ns().saturating_sub(monotonic_ns)).as_secs_f64()
    }

    /// Waits until one of these is ready, a signal comes, or so many seconds are over.
    ///
    /// # Errors
    /// If they cannot be waited for.
    pub fn wait(&self, fds: &mut [PollFd<'_>], seconds: f64) -> io::Result<()> {
        let mut time = Duration::try_from_secs_f64(seconds.max(0.0)).map_err(io::Error::other)?;
        if seconds > 0.0 {
            // Rounded up: what is due then must not be found a part of a nanosecond away, again and again.
            time += Duration::from_nanos(1);
        }
        self.clock.wait(fds, time)
    }

    /// The same kernel, never written to.
    #[must_use]
    pub fn dry_run(mut self) -> Self {
        self.dry_run = true;
        self
    }

    /// Whether this is the kernel that runs this program. System calls know no injected root: what they say or do is
    /// about this kernel alone.
    pub fn is_running(&self) -> bool {
        self.root == Path::new("/")
    }

    /// Whether nothing may be changed. Files are never written then; system calls must ask.
    pub fn is_dry_run(&self) -> bool {
        self.dry_run
    }

    /// The real path of a kernel file.
    pub fn path(&self, path: impl AsRef<Path>) -> PathBuf {
        let path = path.as_ref();
        if self.root == Path::new("/") {
            return path.to_path_buf();
        }
        self.root.join(path.strip_prefix("/").unwrap_or(path))
    }

    /// Whether something is there.
    pub fn exists(&self, path: impl AsRef<Path>) -> bool {
        self.path(path).exists()
    }

    /// [`if_there`](crate::error::if_there) of a path of this kernel.
    pub fn if_there<T>(&self, path: impl AsRef<Path>, outcome: Result<T>) -> Result<Option<T>> {
        crate::error::if_there(&self.path(path), outcome)
    }

    /// Opens for reading.
    pub fn open(&self, path: impl AsRef<Path>) -> Result<File> {
        let path = path.as_ref();
        File::open(self.path(path)).map_err(|e| Error::new("open", path, e))
    }

    /// Reads a file.
    pub fn read(&self, path: impl AsRef<Path>) -> Result<Vec<u8>> {
        let path = path.as_ref();
        let mut bytes = Vec::with_capacity(4096);
        self.open(path)?.read_to_end(&mut bytes).map_err(|e| Error::new("read", path, e))?;
        Ok(bytes)
    }

    /// Reads a file as text; bytes that are not UTF-8 (a process may name itself anything) become U+FFFD.
    pub fn read_text(&self, path: impl AsRef<Path>) -> Result<String> {
        let bytes = self.read(path)?;
        Ok(String::from_utf8(bytes).unwrap_or_else(|e| String::from_utf8_lossy(e.as_bytes()).into_owned()))
    }

    /// Reads a file that holds one number.
    pub fn read_number(&self, path: impl AsRef<Path>) -> Result<u64> {
        let path = path.as_ref();
        let text = self.read_text(path)?;
        text.trim().parse().map_err(|_| Error::unexpected(path, "not a number"))
    }

    /// Names in a folder, sorted.
    pub fn list(&self, path: impl AsRef<Path>) -> Result<Vec<String>> {
        let path = path.as_ref();
        let fail = |e| Error::new("list", path, e);
        let mut names = Vec::new();
        for entry in std::fs::read_dir(self.path(path)).map_err(fail)? {
            names.push(entry.map_err(fail)?.file_name().to_string_lossy().into_owned());
        }
        names.sort_unstable();
        Ok(names)
    }

    /// Writes a value to an existing kernel file in one `write`.
    pub fn write(&self, path: impl AsRef<Path>, value: &str) -> Result<()> {
        let path = path.as_ref();
        if self.dry_run {
            return Ok(());
        }
        let fail = |e| Error::new(format!("write '{}' to", value.trim_end()), path, e);
        if let Some(answer) = self.answer(path, FileChange::Write(value)) {
            return answer.map_err(fail);
        }
        let mut file =
            OpenOptions::new().write(true).custom_flags(libc::O_CLOEXEC).open(self.path(path)).map_err(fail)?;
        file.write_all(value.as_bytes()).map_err(fail)
    }

    /// Writes a value to a file of the folder that has this inode. If another has taken the folder's path, it is gone
    /// (`ENOENT`): between reading the inode and opening a path it could still appear.
    pub fn write_in(&self, folder: &Path, inode: u64, name: &str, value: &str) -> Result<()> {
        let fail = |e: io::Error| Error::new(format!("write '{value}' to"), folder.join(name), e);
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = rustix::fs::open(self.path(folder), flags, Mode::empty()).map_err(|e| fail(e.into()))?;
        if rustix::fs::fstat(&dir).map_err(|e| fail(e.into()))?.st_ino != inode {
            return Err(fail(io::Error::from_raw_os_error(libc::ENOENT)));
        }
        if self.dry_run {
            return Ok(());
        }
        if let Some(answer) = self.answer(&folder.join(name), FileChange::Write(value)) {
            return answer.map_err(fail);
        }
        let opened = rustix::fs::openat(&dir, name, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty());
        File::from(opened.map_err(|e| fail(e.into()))?).write_all(value.as_bytes()).map_err(fail)
    }

    /// Whether a kernel file can be opened for writing; nothing is written.
    pub fn check_writable(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        let opened = OpenOptions::new().write(true).open(self.path(path));
        opened.map(|_| ()).map_err(|e| Error::new("open for writing", path, e))
    }

    /// Makes a folder (a cgroup, a trace instance).
    pub fn make_dir(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        if self.dry_run {
            return Ok(());
        }
        let made = self.answer(path, FileChange::MakeDir).unwrap_or_else(|| std::fs::create_dir(self.path(path)));
        made.map_err(|e| Error::new("make", path, e))
    }

    /// Removes a folder of the kernel's; one that is gone already is fine.
    pub fn remove_dir(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        if self.dry_run {
            return Ok(());
        }
        let removed = self.answer(path, FileChange::RemoveDir).unwrap_or_else(|| std::fs::remove_dir(self.path(path)));
        match removed {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(Error::new("remove", path, e)),
            _ => Ok(()),
        }
    }
}

/// Tries an operation again, `pause` later and at most `tries` times, while the kernel says that the thing is busy.
pub(crate) fn while_busy<T>(tries: u32, pause: Duration, operation: impl Fn() -> Result<T>) -> Result<T> {
    for _ in 0..tries {
        match operation() {
            Err(e) if e.is_busy() => std::thread::sleep(pause),
            result => return result,
        }
    }
    operation()
}

/// The `key number` lines of meminfo, vmstat, memory.stat and status: `key: 12 kB`, `key 12`. Numbers with a `kB` unit
/// are turned into bytes. Lines of any other form are passed over.
pub fn keyed(text: &str) -> impl Iterator<Item = (&str, u64)> {
    text.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        let key = words.next()?.trim_end_matches(':');
        let number: u64 = words.next()?.parse().ok()?;
        let scale = if words.next() == Some("kB") { 1024 } else { 1 };
        Some((key, number.saturating_mul(scale)))
    })
}

/// The number of one key of such a file.
pub fn value_of(text: &str, key: &str) -> Option<u64> {
    keyed(text).find(|(name, _)| *name == key).map(|(_, number)| number)
}

/// The chosen word of a file that shows all it could be set to, like `always [madvise] never`.
pub fn chosen(text: &str) -> Option<&str> {
    text.split_whitespace().find_map(|word| word.strip_prefix('[')?.strip_suffix(']'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_injected_root_and_a_dry_run() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("proc")).unwrap();
        std::fs::write(dir.path().join("proc/knob"), "7\n").unwrap();
        let kernel = Kernel::at(dir.path());
        assert_eq!(kernel.read_number("/proc/knob").unwrap(), 7);
        kernel.clone().dry_run().write("/proc/knob", "8").unwrap();
        assert_eq!(kernel.read_number("/proc/knob").unwrap(), 7);
        kernel.write("/proc/knob", "8").unwrap();
        assert_eq!(kernel.read_number("/proc/knob").unwrap(), 8);
        let error = kernel.read("/proc/none").unwrap_err();
        assert!(error.is_gone());
        assert!(error.to_string().starts_with("cannot open /proc/none: "), "{error}");
    }

    #[test]
    fn the_three_dialects_of_keyed_files() {
        let text = "MemFree:  12 kB\nanon 4096\nName:\tcat\nVmRSS:\t 8 kB\nHugePages_Total:  3\n";
        let all: Vec<_> = keyed(text).collect();
        assert_eq!(all, [("MemFree", 12288), ("anon", 4096), ("VmRSS", 8192), ("HugePages_Total", 3)]);
    }

    #[test]
    fn the_chosen_word() {
        assert_eq!(chosen("always [madvise] never\n"), Some("madvise"));
        assert_eq!(chosen("always"), None);
    }

    proptest! {
        #[test]
        fn any_text_is_survived(text in "(\\PC|\\n)*") {
            let _ = (keyed(&text).count(), chosen(&text));
        }
    }
}
