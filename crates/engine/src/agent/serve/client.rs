//! Asking the agent, over HTTP: an address, with TLS or without, or a Unix socket.

use std::net::{TcpStream, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::Bytes;
use hyper::header::{AUTHORIZATION, HOST, HeaderValue};
use hyper::{Request, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{self, ClientConfig, RootCertStore};

use super::api::{Detail, Overview};
use crate::failure::{Failure, code};

/// No answer is longer: some hundred bytes for each of a hundred thousand workloads.
const LONGEST: usize = 64 << 20;

/// Where an agent is.
#[derive(Debug, Clone)]
enum Place {
    Socket(PathBuf),
    Address { host: String, port: u16, tls: Option<Arc<ClientConfig>> },
}

/// An agent to be asked.
#[derive(Debug, Clone)]
pub struct Client {
    name: String,
    place: Place,
    token: Option<HeaderValue>,
    patience: Duration,
}

fn wrong(what: &str, why: impl std::fmt::Display, fix: &str) -> Failure {
    Failure::new(code::USAGE, format!("top: {what}: {why}; {fix}"))
}

impl Client {
    /// One that listens on a Unix socket.
    pub fn at_socket(path: &Path, patience: Duration) -> Self {
        let name = format!("unix:{}", path.display());
        Self { name, place: Place::Socket(path.to_path_buf()), token: None, patience }
    }

    /// One that listens on an address. `certificate`: of the agent, or of its certificate authority, where the address is
    /// https. Fails if that is no address, or the certificate cannot be read or is missing.
    pub fn at_url(url: &str, certificate: Option<&Path>, patience: Duration) -> Result<Self, Failure> {
        let example = "give one like http://127.0.0.1:9465";
        let uri: Uri = url.parse().map_err(|error| wrong(url, error, example))?;
        let (Some(scheme), Some(host)) = (uri.scheme_str(), uri.host()) else {
            return Err(wrong(url, "it is no address", example));
        };
        if !["", "/"].contains(&uri.path()) || uri.query().is_some() {
            return Err(wrong(url, "it goes on after host and port", example));
        }
        let tls = match scheme {
            "http" => None,
            "https" => {
                let path =
                    certificate.ok_or_else(|| wrong(url, "nothing vouches for it", "give --certificate FILE"))?;
                Some(trusting(path)?)
            }
            _ => return Err(wrong(url, format!("{scheme} is not spoken"), example)),
        };
        let port = uri.port_u16().unwrap_or(if tls.is_some() { 443 } else { 80 });
        let place = Place::Address { host: host.trim_matches(['[', ']']).to_owned(), port, tls };
        Ok(Self { name: url.trim_end_matches('/').to_owned(), place, token: None, patience })
    }

    /// The same, with the token that the agent wants. Fails if the file cannot be read, or its first line is no token.
    pub fn with_token_of(mut self, path: &Path) -> Result<Self, Failure> {
        let what = path.display().to_string();
        let fix = "it is the agent's token_file";
        let text = std::fs::read_to_string(path).map_err(|error| wrong(&what, error, fix))?;
        let value = HeaderValue::from_str(&format!("Bearer {}", text.lines().next().unwrap_or_default().trim()));
        let mut value = value.map_err(|error| wrong(&what, error, fix))?;
        value.set_sensitive(true);
        self.token = Some(value);
        Ok(self)
    }

    /// The URL, or `unix:` and the path.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// All workloads. Fails if no agent answers.
    pub fn overview(&self) -> Result<Overview, Failure> {
        self.get("/api/workloads")?
            .ok_or_else(|| self.problem("what answers there is no lowtide agent of this version"))
    }

    /// One workload; `None` if it is gone. Fails if no agent answers.
    pub fn detail(&self, id: &str) -> Result<Option<Detail>, Failure> {
        self.get(&format!("/api/workloads/{id}"))
    }

    fn problem(&self, why: impl std::fmt::Display) -> Failure {
        let fix = "is `lowtide agent` running, with `listen` in its file? --url or --socket say where";
        Failure::new(code::GONE, format!("top: {}: {why}; {fix}", self.name))
    }

    /// What is there; `None` if nothing is.
    fn get<T: DeserializeOwned>(&self, path: &str) -> Result<Option<T>, Failure> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build();
        let runtime = runtime.map_err(|error| self.problem(error))?;
        let answered = runtime.block_on(async { tokio::time::timeout(self.patience, self.ask(path)).await });
        let (status, text) = match answered {
            Err(_) => return Err(self.problem(format!("no answer within {:?}", self.patience))),
            Ok(Err(why)) => return Err(self.problem(why)),
            Ok(Ok(answer)) => answer,
        };
        match status {
            StatusCode::OK => serde_json::from_slice(&text).map(Some).map_err(|error| self.problem(error)),
            StatusCode::NOT_FOUND => Ok(None),
            StatusCode::UNAUTHORIZED => {
                let why = "it wants to know a token; give --token-file FILE";
                Err(Failure::new(code::PERMISSION, format!("top: {}: {why}", self.name)))
            }
            status => Err(self.problem(format!("it answers {status}"))),
        }
    }

    async fn ask(&self, path: &str) -> anyhow::Result<(StatusCode, Bytes)> {
        match &self.place {
            Place::Socket(socket) => {
                self.converse(tokio::net::UnixStream::connect(socket).await?, "localhost", path).await
            }
            Place::Address { host, port, tls } => {
                let stream = tokio::net::TcpStream::from_std(connect(host, *port, self.patience)?)?;
                let name = if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") };
                let Some(tls) = tls else { return self.converse(stream, &name, path).await };
                let server = ServerName::try_from(host.clone())?;
                self.converse(TlsConnector::from(tls.clone()).connect(server, stream).await?, &name, path).await
            }
        }
    }

    async fn converse(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        host: &str,
        path: &str,
    ) -> anyhow::Result<(StatusCode, Bytes)> {
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        let mut request = Request::get(path).header(HOST, host);
        if let Some(token) = &self.token {
            request = request.header(AUTHORIZATION, token.clone());
        }
        let (head, body) = sender.send_request(request.body(Empty::<Bytes>::new())?).await?.into_parts();
        let body = Limited::new(body, LONGEST).collect().await.map_err(anyhow::Error::from_boxed)?;
        Ok((head.status, body.to_bytes()))
    }
}

/// Connects to the first of a name's addresses that answers.
fn connect(host: &str, port: u16, patience: Duration) -> std::io::Result<TcpStream> {
    let mut last = std::io::Error::other("the name has no address");
    for address in (host, port).to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, patience) {
            Ok(stream) => {
                stream.set_nonblocking(true)?;
                return Ok(stream);
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// TLS that trusts these certificates alone.
fn trusting(path: &Path) -> Result<Arc<ClientConfig>, Failure> {
    let what = path.display().to_string();
    let fix = "give the agent's certificate, or its authority's, as PEM";
    let all = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let mut roots = RootCertStore::empty();
    for certificate in all.map_err(|error| wrong(&what, error, fix))? {
        roots.add(certificate).map_err(|error| wrong(&what, error, fix))?;
    }
    if roots.is_empty() {
        return Err(wrong(&what, "there is no certificate in it", fix));
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let builder = builder.map_err(|error| wrong(&what, error, fix))?;
    Ok(Arc::new(builder.with_root_certificates(roots).with_no_client_auth()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(5);

    #[test]
    fn addresses_are_understood_or_refused() {
        for (url, wanted) in [
            ("http://127.0.0.1:9465", ("127.0.0.1", 9465)),
            ("http://[::1]:1/", ("::1", 1)),
            ("http://localhost", ("localhost", 80)),
        ] {
            let client = Client::at_url(url, None, PATIENCE).unwrap();
            let Place::Address { host, port, .. } = client.place else { panic!("{url}") };
            assert_eq!((host.as_str(), port), wanted);
        }
        for url in ["", "127.0.0.1:9465", "/x", "ftp://a", "http://a/metrics", "https://a:1"] {
            let error = Client::at_url(url, None, PATIENCE).unwrap_err();
            assert_eq!(error.code, code::USAGE, "{url}");
        }
    }

    #[test]
    fn silence_is_reported_with_the_address_and_what_to_do() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("none");
        let error = Client::at_socket(&path, PATIENCE).overview().unwrap_err();
        assert_eq!(error.code, code::GONE);
        let name = format!("unix:{}", path.display());
        assert!(error.message.contains(&name) && error.message.contains("is `lowtide agent` running"), "{error}");
        // One that takes connections and says nothing.
        let _listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
        let error = Client::at_socket(&path, Duration::from_millis(50)).overview().unwrap_err();
        assert!(error.message.contains("no answer within 50ms"), "{error}");
    }

    #[test]
    fn a_stranger_is_not_taken_for_the_agent() {
        use std::io::{Read, Write};
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let answers = ["200 OK\r\nContent-Length: 2\r\n\r\n{}", "404 X\r\nContent-Length: 0\r\n\r\n", "garbage"];
        let server = std::thread::spawn(move || {
            for answer in answers {
                let (mut stream, _) = listener.accept().unwrap();
                let _ = stream.read(&mut [0; 1024]);
                stream.write_all(format!("HTTP/1.1 {answer}").as_bytes()).unwrap();
            }
        });
        let client = Client::at_url(&url, None, PATIENCE).unwrap();
        for _ in answers {
            assert_eq!(client.overview().unwrap_err().code, code::GONE);
        }
        server.join().unwrap();
    }
}
