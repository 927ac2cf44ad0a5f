//! The agent's socket: hints about what is in the background or the foreground, one a connection.
//!
//! Hints are taken from root and from the owner of the target, by the peer's credentials (`SO_PEERCRED`).

use std::io::{self, Read, Write};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::Mode;
use serde::{Deserialize, Serialize};

/// A hint is no longer than this.
const LONGEST: usize = 8192;
/// A peer that neither sends nor reads is not waited for longer.
const PATIENCE: Duration = Duration::from_millis(200);

/// A hint, as a peer sends it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hint {
    /// It is in the background now, or in the foreground.
    pub background: bool,
    /// What it is about.
    #[serde(flatten)]
    pub target: HintTarget,
}

/// What a hint is about.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum HintTarget {
    /// A process, and what descends from it.
    Pid(u32),
    /// A cgroup, by its path below the mount.
    Cgroup(String),
}

/// What the agent answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Answer {
    /// It was taken. The word on the socket is one that clients rely on.
    #[serde(rename = "heard")]
    Taken,
    /// It was refused: the exit code, and why.
    Refused(i32, String),
}

/// The file of a Unix socket, removed with it.
#[derive(Debug)]
pub struct SocketFile(pub PathBuf);

impl Drop for SocketFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Listens on a socket with these permissions. One that a dead agent left is replaced: the caller holds the agent's lock.
pub(super) fn bind(path: &Path, mode: u32) -> io::Result<(UnixListener, SocketFile)> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    // Whatever else is there is not ours to remove.
    if std::fs::symlink_metadata(path).is_ok_and(|meta| meta.file_type().is_socket()) {
        std::fs::remove_file(path)?;
    }
    // Permissions from the beginning: a socket that is changed afterwards would be open to all for a moment.
    let before = rustix::process::umask(Mode::from_raw_mode(0o777 & !mode));
    let listener = UnixListener::bind(path);
    rustix::process::umask(before);
    let listener = listener?;
    listener.set_nonblocking(true)?;
    Ok((listener, SocketFile(path.to_path_buf())))
}

/// The socket for hints.
#[derive(Debug)]
pub struct Socket {
    /// Where peers connect.
    pub listener: UnixListener,
    pub(super) file: SocketFile,
}

impl Socket {
    /// Opens it. Everybody may connect; whose hints are taken is decided by who they are.
    pub fn open(path: &Path) -> io::Result<Self> {
        let (listener, file) = bind(path, 0o666)?;
        Ok(Self { listener, file })
    }

    /// Answers one peer, if one is there; `decide` gets its user. False if none is there. Fails if peers cannot be accepted.
    pub fn answer(&self, decide: impl FnOnce(u32, &Hint) -> Answer) -> io::Result<bool> {
        match self.listener.accept() {
            Ok((stream, _)) => {
                // That a peer disconnects is no error.
                let _ = converse(&stream, decide);
                Ok(true)
            }
            Err(error) if [io::ErrorKind::WouldBlock, io::ErrorKind::ConnectionAborted].contains(&error.kind()) => {
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }
}

fn converse(mut stream: &UnixStream, decide: impl FnOnce(u32, &Hint) -> Answer) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let uid = rustix::net::sockopt::socket_peercred(stream)?.uid.as_raw();
    let text = read_all(stream)?;
    let answer = match serde_json::from_slice::<Hint>(&text) {
        Ok(hint) => decide(uid, &hint),
        Err(error) => Answer::Refused(crate::failure::code::USAGE, format!("this is no hint: {error}")),
    };
    stream.write_all(&serde_json::to_vec(&answer)?)
}

/// Reads until the peer is done, has sent too much, or is out of time: a slow one must not hold up others.
fn read_all(mut stream: &UnixStream) -> io::Result<Vec<u8>> {
    let until = Instant::now() + PATIENCE;
    let mut text = Vec::new();
    let mut some = [0; 1024];
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() || text.len() >= LONGEST {
            return Ok(text);
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut some)? {
            0 => return Ok(text),
            got => text.extend(&some[..got]),
        }
    }
}

/// Gives a hint to the agent that listens there. Fails if none listens, or it does not answer.
pub fn give(path: &Path, hint: &Hint) -> io::Result<Answer> {
    let mut stream = UnixStream::connect(path)?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    stream.write_all(&serde_json::to_vec(hint)?)?;
    stream.shutdown(std::net::Shutdown::Write)?;
    let mut text = Vec::new();
    stream.take(u64::try_from(LONGEST).unwrap_or(u64::MAX)).read_to_end(&mut text)?;
    Ok(serde_json::from_slice(&text)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn socket() -> (tempfile::TempDir, Socket) {
        let dir = tempfile::tempdir().unwrap();
        let socket = Socket::open(&dir.path().join("s")).unwrap();
        (dir, socket)
    }

    /// Says something to the socket while it listens; what came back.
    fn say(socket: &Socket, text: &[u8]) -> Vec<u8> {
        std::thread::scope(|scope| {
            let peer = scope.spawn(|| {
                let mut stream = UnixStream::connect(&socket.file.0).unwrap();
                let _ = stream.write_all(text);
                let _ = stream.shutdown(std::net::Shutdown::Write);
                let mut answer = Vec::new();
                let _ = stream.read_to_end(&mut answer);
                answer
            });
            while !socket.answer(|_, _| Answer::Taken).unwrap() {}
            peer.join().unwrap()
        })
    }

    #[test]
    fn a_hint_comes_with_its_user() {
        let (_dir, socket) = socket();
        let hint = Hint { background: true, target: HintTarget::Cgroup("/a".to_owned()) };
        let uid = rustix::process::geteuid().as_raw();
        let answer = std::thread::scope(|scope| {
            let peer = scope.spawn(|| give(&socket.file.0, &hint).unwrap());
            while !socket
                .answer(|peer, taken| {
                    assert_eq!((peer, taken), (uid, &hint));
                    Answer::Refused(4, "no".to_owned())
                })
                .unwrap()
            {}
            peer.join().unwrap()
        });
        assert_eq!(answer, Answer::Refused(4, "no".to_owned()));
        let path = socket.file.0.clone();
        drop(socket);
        assert!(!path.exists());
    }

    #[test]
    fn garbage_and_silence_are_survived() {
        let (_dir, socket) = socket();
        assert_eq!(say(&socket, b"{\"background\":true,\"pid\":7}"), b"\"heard\"");
        for text in [&b"{}"[..], b"\xff\0", b"{\"background\":true}", &vec![b'['; 100_000]] {
            let answer = String::from_utf8(say(&socket, text)).unwrap();
            assert!(answer.is_empty() || answer.contains("no hint"), "{answer}");
        }
        // A silent peer holds up others for a short time only.
        let silent = UnixStream::connect(&socket.file.0).unwrap();
        let start = std::time::Instant::now();
        assert!(socket.answer(|_, _| Answer::Taken).unwrap());
        assert!(start.elapsed() < 20 * PATIENCE);
        drop(silent);
    }

    proptest! {
        #[test]
        fn hints_come_back_as_they_were(background: bool, pid: u32, path in "\\PC{0,20}") {
            for target in [HintTarget::Pid(pid), HintTarget::Cgroup(path)] {
                let hint = Hint { background, target };
                prop_assert_eq!(serde_json::from_slice::<Hint>(&serde_json::to_vec(&hint).unwrap()).unwrap(), hint);
            }
        }
    }
}
