//! The agent's socket: hints about what is in the background or the foreground, one a connection.
//!
//! Hints are taken from root and from the owner of the target, by the peer's credentials (`SO_PEERCRED`).

use std::io::{self, Read, Write};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use rustix::fs::Mode;
use serde::{Deserialize, Serialize};

/// A hint is no longer than this.
const LONGEST: usize = 8192;
/// A peer that has not sent its hint by then is let go when another comes.
const PATIENCE: Duration = Duration::from_secs(2);
/// Peers of one user that may be sending.
const PEERS: usize = 16;
/// Nobody is accepted for so long after it failed: the peer would wait, and the listener be ready, all the time.
const REST: Duration = Duration::from_secs(1);

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

/// A peer that has not sent all of its hint yet.
#[derive(Debug)]
struct Peer {
    stream: UnixStream,
    uid: u32,
    text: Vec<u8>,
    since: Instant,
}

/// The socket for hints.
#[derive(Debug)]
pub struct Socket {
    listener: UnixListener,
    pub(super) file: SocketFile,
    /// Peers that are sending: none of them is waited for.
    peers: Vec<Peer>,
    /// When a peer could not be accepted, until one is.
    failed: Option<Instant>,
}

impl Socket {
    /// Opens it. Everybody may connect; whose hints are taken is decided by who they are.
    pub fn open(path: &Path) -> io::Result<Self> {
        let (listener, file) = bind(path, 0o666)?;
        Ok(Self { listener, file, peers: Vec::new(), failed: None })
    }

    /// Descriptors that are ready when there is something to answer.
    pub fn wakers(&self) -> impl Iterator<Item = PollFd<'_>> {
        let peers = self.peers.iter().map(|peer| PollFd::new(&peer.stream, PollFlags::IN));
        let listener = (!self.is_resting()).then(|| PollFd::new(&self.listener, PollFlags::IN));
        listener.into_iter().chain(peers)
    }

    fn is_resting(&self) -> bool {
        self.failed.is_some_and(|at| at.elapsed() < REST)
    }

    /// Accepts who is there, and answers those that have sent their hint; `decide` gets the user. Fails if peers cannot be
    /// accepted (it lacks a descriptor, say), once until they can be; it goes on trying.
    pub fn answer(&mut self, mut decide: impl FnMut(u32, &Hint) -> Answer) -> io::Result<()> {
        let accepted = if self.is_resting() { Ok(()) } else { self.accept() };
        self.peers.retain_mut(|peer| match read_some(peer) {
            Ok(false) => peer.since.elapsed() < PATIENCE,
            Ok(true) => {
                drop(reply(peer, &mut decide));
                false
            }
            Err(_) => false,
        });
        accepted
    }

    fn accept(&mut self) -> io::Result<()> {
        for _ in 0..PEERS {
            match self.listener.accept() {
                // That a peer disconnects is no error.
                Ok((stream, _)) => drop(self.admit(stream)),
                Err(error) if [io::ErrorKind::WouldBlock, io::ErrorKind::ConnectionAborted].contains(&error.kind()) => {
                    break;
                }
                Err(error) => {
                    let is_known = self.failed.replace(Instant::now()).is_some();
                    return if is_known { Ok(()) } else { Err(error) };
                }
            }
        }
        self.failed = None;
        Ok(())
    }

    /// Takes a peer; of a user who has too many, the one that is silent for longest goes.
    fn admit(&mut self, stream: UnixStream) -> io::Result<()> {
        stream.set_nonblocking(true)?;
        let uid = rustix::net::sockopt::socket_peercred(&stream)?.uid.as_raw();
        let of = |peer: &Peer| peer.uid == uid;
        if self.peers.iter().filter(|peer| of(peer)).count() >= PEERS {
            // In the order in which they came.
            if let Some(oldest) = self.peers.iter().position(of) {
                self.peers.remove(oldest);
            }
        }
        self.peers.push(Peer { stream, uid, text: Vec::new(), since: Instant::now() });
        Ok(())
    }
}

/// Reads what a peer has sent by now; whether that is all, or too much.
fn read_some(peer: &mut Peer) -> io::Result<bool> {
    let mut some = [0; 1024];
    while peer.text.len() < LONGEST {
        match peer.stream.read(&mut some) {
            Ok(0) => return Ok(true),
            Ok(got) => peer.text.extend(&some[..got]),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            Err(error) => return Err(error),
        }
    }
    Ok(true)
}

/// Answers a peer. An answer is short, so that it needs nobody to read it.
fn reply(peer: &mut Peer, decide: &mut impl FnMut(u32, &Hint) -> Answer) -> io::Result<()> {
    let answer = match serde_json::from_slice::<Hint>(&peer.text) {
        Ok(hint) => decide(peer.uid, &hint),
        Err(error) => Answer::Refused(crate::failure::code::USAGE, format!("this is no hint: {error}")),
    };
    peer.stream.write_all(&serde_json::to_vec(&answer)?)
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
    fn say(socket: &mut Socket, text: &[u8]) -> Vec<u8> {
        let path = socket.file.0.clone();
        std::thread::scope(|scope| {
            let peer = scope.spawn(|| {
                let mut stream = UnixStream::connect(path).unwrap();
                let _ = stream.write_all(text);
                let _ = stream.shutdown(std::net::Shutdown::Write);
                let mut answer = Vec::new();
                let _ = stream.read_to_end(&mut answer);
                answer
            });
            while !peer.is_finished() {
                socket.answer(|_, _| Answer::Taken).unwrap();
            }
            peer.join().unwrap()
        })
    }

    #[test]
    fn a_hint_comes_with_its_user() {
        let (_dir, mut socket) = socket();
        let hint = Hint { background: true, target: HintTarget::Cgroup("/a".to_owned()) };
        let path = socket.file.0.clone();
        let uid = rustix::process::geteuid().as_raw();
        let answer = std::thread::scope(|scope| {
            let peer = scope.spawn(|| give(&path, &hint).unwrap());
            while !peer.is_finished() {
                let refuse = |peer, taken: &Hint| {
                    assert_eq!((peer, taken), (uid, &hint));
                    Answer::Refused(4, "no".to_owned())
                };
                socket.answer(refuse).unwrap();
            }
            peer.join().unwrap()
        });
        assert_eq!(answer, Answer::Refused(4, "no".to_owned()));
        drop(socket);
        assert!(!path.exists());
    }

    #[test]
    fn garbage_is_survived_and_silence_holds_up_nobody() {
        let (_dir, mut socket) = socket();
        assert_eq!(say(&mut socket, b"{\"background\":true,\"pid\":7}"), b"\"heard\"");
        for text in [&b"{}"[..], b"\xff\0", b"{\"background\":true}", &vec![b'['; 100_000]] {
            let answer = String::from_utf8(say(&mut socket, text)).unwrap();
            assert!(answer.is_empty() || answer.contains("no hint"), "{answer}");
        }
        let silent: Vec<UnixStream> = (0..150)
            .map(|_| {
                let peer = UnixStream::connect(&socket.file.0).unwrap();
                socket.answer(|_, _| Answer::Taken).unwrap();
                peer
            })
            .collect();
        assert_eq!(socket.peers.len(), PEERS, "no more are held");
        assert_eq!(say(&mut socket, b"{\"background\":true,\"pid\":7}"), b"\"heard\"");
        // Not only closed: a child that another thread has just forked would hold them open.
        silent.iter().for_each(|peer| peer.shutdown(std::net::Shutdown::Both).unwrap());
        socket.answer(|_, _| Answer::Taken).unwrap();
        assert!(socket.peers.is_empty());
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
