//! Where the agent serves its page: an address or a Unix socket, and the credentials that peers from other machines need.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use lowtide_kernel::root::Kernel;
use lowtide_kernel::{sys, system};
use serde::Deserialize;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{self, ServerConfig};

use super::gate::{Gate, Token};
use crate::agent::socket::{SocketFile, bind};

/// Where to listen.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub enum Listen {
    /// An address with its port.
    Address(SocketAddr),
    /// A Unix socket, for root and the agent's own user alone.
    Socket(PathBuf),
}

impl TryFrom<String> for Listen {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let wrong = || format!("listen = {text:?}: neither an address like 127.0.0.1:9465 nor unix:/PATH");
        match text.strip_prefix("unix:") {
            Some(path) if path.starts_with('/') => Ok(Self::Socket(path.into())),
            Some(_) => Err(wrong()),
            None => text.parse().map(Self::Address).map_err(|_| wrong()),
        }
    }
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address) => address.fmt(f),
            Self::Socket(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// `[serve]`: what is asked of peers. All of it is needed beyond this machine; on it, each part holds if it is given.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Serve {
    /// A file whose first line is the token that peers must send; nobody else may read it.
    pub token_file: Option<PathBuf>,
    /// The server's certificate and its chain, PEM.
    pub certificate: Option<PathBuf>,
    /// Its key, PEM; nobody else may read it.
    pub key: Option<PathBuf>,
}

/// Bytes of these files, at most.
const LONGEST: u64 = 1 << 20;

impl Serve {
    /// Whether the credentials that `listen` needs are there. Fails with what is missing, cannot be read or may be read by others.
    pub fn check(&self, listen: &Listen) -> Result<(), String> {
        self.terms(listen).map(drop)
    }

    /// What peers must have, and TLS if there is a certificate. Fails as [`Self::check`].
    pub(super) fn terms(&self, listen: &Listen) -> Result<(Gate, Option<Arc<ServerConfig>>), String> {
        let is_beyond = matches!(listen, Listen::Address(address) if !address.ip().is_loopback());
        let given = [("token_file", &self.token_file), ("certificate", &self.certificate), ("key", &self.key)];
        let missing: Vec<&str> = given.iter().filter(|(_, path)| path.is_none()).map(|(name, _)| *name).collect();
        if is_beyond && !missing.is_empty() {
            let missing = missing.join(", ");
            return Err(format!("listen = \"{listen}\": others can come there; give {missing} in [serve]"));
        }
        let token = self.token_file.as_ref().map(|path| {
            let token = secret(path).and_then(|text| Token::new(&String::from_utf8_lossy(&text)));
            token.map_err(|why| format!("token_file: {}: {why}", path.display()))
        });
        let token = token.transpose()?;
        let tls = match (&self.certificate, &self.key) {
            (Some(certificate), Some(key)) => Some(Arc::new(tls(certificate, key)?)),
            (None, None) => None,
            _ => return Err("serve: certificate and key go together; give both".to_owned()),
        };
        let hosts = match listen {
            Listen::Address(address) if token.is_none() => Some(names(address)),
            _ => None,
        };
        Ok((Gate { hosts, token }, tls))
    }
}

/// What is asked of peers on an address of this machine: only its own names are answered.
pub(crate) fn on_this_machine(address: &SocketAddr) -> Gate {
    Gate { hosts: Some(names(address)), token: None }
}

/// Names of this machine in requests to it.
fn names(address: &SocketAddr) -> Vec<String> {
    let own = match address {
        SocketAddr::V4(address) => address.ip().to_string(),
        SocketAddr::V6(address) => format!("[{}]", address.ip()),
    };
    ["localhost".to_owned(), "127.0.0.1".to_owned(), "[::1]".to_owned(), own].into()
}

/// Reads a file that nobody but its owner's group may read.
fn secret(path: &Path) -> Result<Vec<u8>, String> {
    let file = File::open(path).map_err(|error| error.to_string())?;
    let meta = file.metadata().map_err(|error| error.to_string())?;
    if !meta.is_file() {
        return Err("it is no file".to_owned());
    }
    if meta.mode() & 0o007 != 0 {
        return Err("others may read or change it; chmod 600".to_owned());
    }
    if meta.uid() != 0 && meta.uid() != rustix::process::geteuid().as_raw() {
        return Err("it belongs to another user; chown it to the agent's".to_owned());
    }
    bounded(file).map_err(|error| error.to_string())
}

fn bounded(file: File) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    file.take(LONGEST).read_to_end(&mut text)?;
    Ok(text)
}

fn tls(certificate: &Path, key: &Path) -> Result<ServerConfig, String> {
    let unfit = |why: &dyn fmt::Display| format!("certificate: {}: {why}", certificate.display());
    let text = File::open(certificate).and_then(bounded).map_err(|error| unfit(&error))?;
    let chain = CertificateDer::pem_slice_iter(&text).collect::<Result<Vec<_>, _>>().map_err(|error| unfit(&error))?;
    if chain.is_empty() {
        return Err(unfit(&"there is none in it; PEM is understood"));
    }
    let unfit = |why: &dyn fmt::Display| format!("key: {}: {why}", key.display());
    let secret = PrivateKeyDer::from_pem_slice(&secret(key).map_err(|why| unfit(&why))?);
    let secret = secret.map_err(|error| unfit(&error))?;
    let unfit = |error| unfit(&format!("{error} (certificate {})", certificate.display()));
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().map_err(unfit)?;
    let mut config = builder.with_no_client_auth().with_single_cert(chain, secret).map_err(unfit)?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

/// What is listened on.
#[derive(Debug)]
pub(crate) enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

/// Listens: the listener, its name, and the file of the socket.
pub(super) fn open(listen: &Listen, is_tls: bool) -> io::Result<(Listener, String, Option<SocketFile>)> {
    match listen {
        Listen::Address(address) => {
            let listener = passed(address)?.map_or_else(|| bound(address), Ok)?;
            listener.set_nonblocking(true)?;
            let scheme = if is_tls { "https" } else { "http" };
            let name = format!("{scheme}://{}/", listener.local_addr()?);
            Ok((Listener::Tcp(listener), name, None))
        }
        Listen::Socket(path) => {
            let (listener, file) = bind(path, 0o600)?;
            Ok((Listener::Unix(listener), listen.to_string(), Some(file)))
        }
    }
}

fn bound(address: &SocketAddr) -> io::Result<TcpListener> {
    if system::is_alone_on_network(&Kernel::default()) {
        let fix = "systemctl enable --now lowtide-agent.socket, whose ListenStream= has this address";
        return Err(io::Error::other(format!(
            "nobody can come there: PrivateNetwork= gives this process its own; {fix}"
        )));
    }
    TcpListener::bind(address)
}

/// The socket of that address among those that a socket unit of systemd opened for this process; `None` if it opened none.
/// Fails if they are all of other addresses.
fn passed(address: &SocketAddr) -> io::Result<Option<TcpListener>> {
    let mut listeners = opened_by_systemd()?;
    if listeners.is_empty() {
        return Ok(None);
    }
    if let Some(at) = listeners.iter().position(|(at, _)| at == address) {
        return Ok(Some(listeners.swap_remove(at).1));
    }
    let others = listeners.iter().map(|(at, _)| at.to_string()).collect::<Vec<_>>().join(", ");
    let fix = "write the same address here and into ListenStream= (systemctl edit lowtide-agent.socket)";
    Err(io::Error::other(format!("the socket unit has {others}; {fix}")))
}

/// Addresses that a socket unit opened for this process though `listen` names no address: nothing answers there.
pub fn unanswered(listen: Option<&Listen>) -> io::Result<Vec<SocketAddr>> {
    match listen {
        Some(Listen::Address(_)) => Ok(Vec::new()),
        _ => Ok(opened_by_systemd()?.into_iter().map(|(address, _)| address).collect()),
    }
}

fn opened_by_systemd() -> io::Result<Vec<(SocketAddr, TcpListener)>> {
    let listener = |number| {
        let listener = TcpListener::from(sys::inherited(number)?);
        Ok((listener.local_addr()?, listener))
    };
    sd_notify::listen_fds()?.map(listener).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn listen(text: &str) -> Listen {
        Listen::try_from(text.to_owned()).unwrap()
    }

    fn put(dir: &Path, name: &str, text: &str, mode: u32) -> PathBuf {
        let path = dir.join(name);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        path
    }

    #[test]
    fn addresses_and_sockets_are_distinguished() {
        assert_eq!(listen("unix:/run/x.sock"), Listen::Socket("/run/x.sock".into()));
        assert_eq!(listen("[::1]:80").to_string(), "[::1]:80");
        for wrong in ["unix:x", "unix:", "localhost:80", "127.0.0.1", ""] {
            let error = Listen::try_from(wrong.to_owned()).unwrap_err();
            assert!(error.contains("127.0.0.1:9465"), "{error}");
        }
    }

    #[test]
    fn beyond_this_machine_everything_is_needed() {
        let why = |serve: &Serve, at: &str| serve.terms(&listen(at)).map(|_| ()).unwrap_err();
        let none = Serve::default();
        assert!(why(&none, "0.0.0.0:80").contains("give token_file, certificate, key in [serve]"));
        assert!(why(&none, "[::]:80").contains("[serve]"));
        let dir = tempfile::tempdir().unwrap();
        let open = put(dir.path(), "open", "0123456789abcdef", 0o644);
        let token = put(dir.path(), "token", "0123456789abcdef", 0o600);
        let short = put(dir.path(), "short", "0123", 0o600);
        let of = |path: PathBuf| Serve { token_file: Some(path), ..Serve::default() };
        assert!(why(&of(open), "127.0.0.1:80").contains("chmod 600"));
        assert!(why(&of(short), "127.0.0.1:80").contains("16 visible"));
        assert!(why(&of(dir.path().join("none")), "unix:/x").contains("token_file: "));
        assert!(why(&of(dir.path().into()), "unix:/x").contains("no file"));
        assert!(why(&of(token.clone()), "10.0.0.1:80").contains("give certificate, key in"));
        let half = Serve { certificate: Some(token.clone()), ..of(token.clone()) };
        assert!(why(&half, "127.0.0.1:80").contains("go together"));
        let both = Serve { key: Some(token.clone()), ..half };
        assert!(why(&both, "127.0.0.1:80").contains("certificate: "), "no certificate is in it");
    }

    #[test]
    fn names_are_asked_for_on_this_machine_only() {
        let hosts = |at: &str| Serve::default().terms(&listen(at)).unwrap().0.hosts;
        assert!(hosts("127.0.0.2:80").unwrap().contains(&"127.0.0.2".to_owned()));
        assert!(hosts("[::1]:80").unwrap().contains(&"[::1]".to_owned()));
        assert_eq!(hosts("unix:/x"), None, "no page of a browser comes there");
    }

    #[test]
    fn without_a_socket_unit_the_address_is_bound_here() {
        let (listener, name, _) = open(&listen("127.0.0.1:0"), true).unwrap();
        let Listener::Tcp(listener) = listener else { panic!("{listener:?}") };
        assert_eq!(name, format!("https://{}/", listener.local_addr().unwrap()));
        assert_eq!(unanswered(None).unwrap(), []);
    }

    #[test]
    fn a_socket_is_for_its_owner_and_goes_away() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("deep/s");
        let (_listener, name, file) = open(&Listen::Socket(path.clone()), false).unwrap();
        assert_eq!(name, format!("unix:{}", path.display()));
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        // One that was left is replaced; what is no socket is not.
        std::mem::forget(file);
        let again = open(&Listen::Socket(path.clone()), false).unwrap();
        drop(again);
        assert!(!path.exists());
        std::fs::write(&path, "mine").unwrap();
        assert!(open(&Listen::Socket(path.clone()), false).is_err());
        assert_eq!(std::fs::read(&path).unwrap(), b"mine");
    }
}
