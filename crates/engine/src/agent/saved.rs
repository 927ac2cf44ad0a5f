//! The agent's state file: what an agent that was killed leaves to the next.
//!
//! It is for the same boot only: workloads are identified by the inodes of their cgroups, which are given again after a boot.
//!
//! The file is a line with its format, length and checksum, and a line of JSON. It is replaced atomically. Anything else that is
//! found there is reported and not used.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use lowtide_model::target::TargetId;
use lowtide_policy::policies::Spec;
use lowtide_policy::saved::Saved;
use lowtide_record::atomic::{self, Care};
use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};

use super::background::SavedBackground;
use crate::workloads::WorkloadTotals;

/// Format of the file. One that is of another is not read.
const FORMAT: u32 = 2;
/// Bytes of a file, at most.
const MOST: usize = 8 << 20;
/// Older state is not used, seconds.
const OLDEST_S: f64 = 3600.0;

/// The state of a policy, with its settings.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Remembered {
    /// State is of use with the same settings only.
    pub settings: Spec,
    /// The state.
    pub saved: Saved,
}

/// What was known of a workload.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct SavedWorkload {
    /// Path of its cgroup.
    pub path: String,
    /// Its counters.
    #[serde(flatten)]
    pub totals: WorkloadTotals,
}

/// The state of the agent.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct SavedState {
    /// The boot that it is of.
    pub boot_id: String,
    /// When it was saved, seconds since that boot.
    pub at_s: f64,
    /// Workloads.
    pub workloads: BTreeMap<TargetId, SavedWorkload>,
    /// Policies, by name.
    pub policies: BTreeMap<String, Remembered>,
    /// The policy for the background.
    pub lifecycle: Option<Remembered>,
    /// Which workloads are in the background.
    pub background: SavedBackground,
}

/// The first line.
#[derive(Debug, Serialize, Deserialize)]
struct Head {
    lowtide_agent_state: u32,
    bytes: usize,
    crc32: u32,
}

/// Why a file is not used.
#[derive(Debug, thiserror::Error)]
pub enum Unfit {
    /// It cannot be read.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// Another user could have written it.
    #[error("it is no file that only this user may write")]
    Foreign,
    /// It is torn, or something else.
    #[error("it is torn, or no state of the agent")]
    Torn,
    /// Another lowtide's.
    #[error("it has format {0}, and this lowtide's is {FORMAT}")]
    Format(u32),
    /// It is of another boot.
    #[error("it is of another boot")]
    Boot,
    /// It is too old.
    #[error("it was saved {0:.0} s ago, and what is older than {OLDEST_S:.0} s is of no use")]
    Old(f64),
    /// It is of a time to come.
    #[error("it says that it was saved in the future")]
    Future,
}

/// The bytes of the file, and of how many workloads the policies' state was left out, as it would be too large. Fails if the
/// rest is too large, too.
pub fn encode(state: &SavedState) -> io::Result<(Vec<u8>, usize)> {
    let mut state = state.clone();
    let mut left_out = 0;
    loop {
        let body = serde_json::to_vec(&state)?;
        if body.len() <= MOST {
            let head = Head { lowtide_agent_state: FORMAT, bytes: body.len(), crc32: crc32fast::hash(&body) };
            let mut file = serde_json::to_vec(&head)?;
            file.push(b'\n');
            file.extend(body);
            return Ok((file, left_out));
        }
        let before = left_out;
        for remembered in state.policies.values_mut().chain(&mut state.lifecycle) {
            let targets = &mut remembered.saved.targets;
            // The newest have the least state.
            let from = targets.keys().nth(targets.len() / 2).copied().unwrap_or(u64::MAX.into());
            left_out += targets.split_off(&from).len();
        }
        if left_out == before {
            return Err(io::Error::other(format!("it would have {} bytes, and {MOST} are allowed", body.len())));
        }
    }
}

/// The state in a file, on a machine with this boot, so many seconds after it.
pub fn decode(file: &[u8], boot_id: &str, now_s: f64) -> Result<SavedState, Unfit> {
    let line = file.iter().position(|byte| *byte == b'\n').ok_or(Unfit::Torn)?;
    let (head, body) = (&file[..line], &file[line + 1..]);
    let head: Head = serde_json::from_slice(head).map_err(|_| Unfit::Torn)?;
    if head.lowtide_agent_state != FORMAT {
        return Err(Unfit::Format(head.lowtide_agent_state));
    }
    if body.len() != head.bytes || crc32fast::hash(body) != head.crc32 {
        return Err(Unfit::Torn);
    }
    let state: SavedState = serde_json::from_slice(body).map_err(|_| Unfit::Torn)?;
    let away_s = now_s - state.at_s;
    // A boot without an id may be any.
    if state.boot_id != boot_id || boot_id.is_empty() {
        Err(Unfit::Boot)
    } else if away_s < 0.0 {
        Err(Unfit::Future)
    } else if away_s > OLDEST_S {
        Err(Unfit::Old(away_s))
    } else {
        Ok(state)
    }
}

/// Reads a file; `None` if there is none.
pub fn load(path: &Path, boot_id: &str, now_s: f64) -> Result<Option<SavedState>, Unfit> {
    // A pipe would block, and a link may lead to a file of another user.
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let open = OpenOptions::new().read(true).custom_flags(flags.bits().cast_signed()).open(path);
    let file = match open {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) if error.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error()) => {
            return Err(Unfit::Foreign);
        }
        other => other?,
    };
    let meta = file.metadata()?;
    if !meta.is_file() || meta.uid() != rustix::process::geteuid().as_raw() || meta.mode() & 0o022 != 0 {
        return Err(Unfit::Foreign);
    }
    let mut bytes = Vec::new();
    // A little more than the most: the head. What is longer is cut off, and then torn.
    file.take(u64::try_from(MOST).unwrap_or(u64::MAX) + 1024).read_to_end(&mut bytes)?;
    decode(&bytes, boot_id, now_s).map(Some)
}

/// Writes a file: beside first, then in its place. Fails if there is no room, or it may not be written there. What was
/// there before is still there.
pub fn store(path: &Path, bytes: &[u8]) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    atomic::write(path, Care { is_private: true, sync: true }, bytes)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn state() -> SavedState {
        let saved = Saved {
            common: json!({"cpu_debt_s": 0.2}),
            targets: [(TargetId::Cgroup(7), json!({"past": null}))].into(),
        };
        let workload = SavedWorkload {
            path: "/a b".to_owned(),
            totals: WorkloadTotals { reclaimed: [1.0, 2.5].into(), ..WorkloadTotals::default() },
        };
        SavedState {
            boot_id: "boot".to_owned(),
            at_s: 100.0,
            workloads: [(TargetId::Cgroup(7), workload)].into(),
            policies: [("auto".to_owned(), Remembered { settings: Spec::built_in("auto").unwrap(), saved })].into(),
            ..SavedState::default()
        }
    }

    #[test]
    fn a_state_comes_back_on_the_same_boot_within_the_hour() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("new folder/state");
        assert!(load(&path, "boot", 0.0).unwrap().is_none());
        store(&path, &encode(&state()).unwrap().0).unwrap();
        assert_eq!(load(&path, "boot", 160.0).unwrap(), Some(state()));
        let why = |boot_id, now_s| load(&path, boot_id, now_s).unwrap_err().to_string();
        assert_eq!(why("other", 160.0), "it is of another boot");
        assert!(why("boot", 4000.0).starts_with("it was saved 3900 s ago"));
        assert!(why("boot", 99.0).contains("future"));
    }

    #[test]
    fn what_is_not_ours_is_not_read() {
        let dir = tempfile::tempdir().unwrap();
        let (path, link) = (dir.path().join("state"), dir.path().join("link"));
        let good = encode(&state()).unwrap().0;
        store(&path, &good).unwrap();
        std::os::unix::fs::symlink(&path, &link).unwrap();
        assert!(matches!(load(&link, "boot", 160.0), Err(Unfit::Foreign)));
        // A link is replaced, and what it leads to is not written.
        std::fs::write(&path, "precious").unwrap();
        store(&link, &good).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"precious");
        assert!(load(&link, "boot", 160.0).unwrap().is_some());
        let pipe = dir.path().join("pipe");
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
        assert!(matches!(load(&pipe, "boot", 160.0), Err(Unfit::Foreign)));
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o666);
        std::fs::set_permissions(&link, mode).unwrap();
        assert!(matches!(load(&link, "boot", 160.0), Err(Unfit::Foreign)));
        let newer = good.iter().position(|byte| *byte == b'2').unwrap();
        let mut of_later = good;
        of_later[newer] = b'3';
        assert!(matches!(decode(&of_later, "boot", 160.0), Err(Unfit::Format(3))));
    }

    #[test]
    fn what_would_be_too_large_is_cut() {
        let mut large = state();
        let targets = &mut large.policies.get_mut("auto").unwrap().saved.targets;
        targets.extend((0..3000).map(|id| (TargetId::Cgroup(id), json!("x".repeat(10_000)))));
        let (file, left_out) = encode(&large).unwrap();
        assert!(file.len() < MOST + 1024 && left_out > 1000, "{} {left_out}", file.len());
        let back = decode(&file, "boot", 100.0).unwrap();
        assert_eq!(back.policies["auto"].saved.targets.len() + left_out, 3000);
        large.workloads.get_mut(&TargetId::Cgroup(7)).unwrap().path = "x".repeat(MOST);
        assert!(encode(&large).unwrap_err().to_string().contains("are allowed"));
    }

    proptest! {
        /// Torn at any byte, or with any byte changed: nothing else than what was saved ever comes back.
        #[test]
        fn damage_is_noticed(at in any::<prop::sample::Index>(), to: u8, torn: bool) {
            let good = encode(&state()).unwrap().0;
            let at = at.index(good.len());
            let mut bad = good.clone();
            if torn { bad.truncate(at) } else { bad[at] = to }
            prop_assume!(bad != good);
            // The head has room for nothing but other numbers, which are not those of what follows.
            prop_assert!(decode(&bad, "boot", 160.0).is_err(), "{}", String::from_utf8_lossy(&bad));
        }

        #[test]
        fn garbage_is_survived(bytes: Vec<u8>) {
            prop_assert!(decode(&bytes, "boot", 160.0).is_err());
        }
    }
}
