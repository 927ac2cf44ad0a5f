//! The agent's server: the live page, its data as JSON, and metrics. Read-only, with bounds on what peers can hold up.

use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{
    ALLOW, AUTHORIZATION, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HOST, HeaderName, HeaderValue,
    REFERRER_POLICY, WWW_AUTHENTICATE, X_CONTENT_TYPE_OPTIONS,
};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use serde::Serialize;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

use super::confine::confine;
use super::gate::Gate;
use super::listen::{self, Listen, Listener, Serve};
use crate::agent::sinks::view::LiveView;
use crate::agent::socket::SocketFile;
use crate::metrics::scrape;

/// Connections at a time; more wait.
const PEERS: usize = 64;
/// A peer has so long to send its request, or to agree on a cipher.
const PATIENCE: Duration = Duration::from_secs(15);
/// A connection is closed after so long; an answer under way then has so much more.
const LONGEST: (Duration, Duration) = (Duration::from_secs(120), Duration::from_secs(15));
/// Bytes of the head of a request, at most.
const HEAD: usize = 16 << 10;
/// The page may load only what comes from here, and nothing may frame it.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// The files of the page: path, type and text. None of them holds figures.
const FILES: [(&str, &str, &str); 5] = [
    ("/", "text/html; charset=utf-8", include_str!("page/index.html")),
    ("/page.css", "text/css; charset=utf-8", include_str!("page/page.css")),
    ("/page.js", "text/javascript; charset=utf-8", include_str!("page/page.js")),
    ("/draw.js", "text/javascript; charset=utf-8", include_str!("page/draw.js")),
    ("/icon.svg", "image/svg+xml", include_str!("page/icon.svg")),
];

/// An answer, complete in memory.
pub(crate) type Reply = Response<Full<Bytes>>;

/// A server in a thread that ends with the process.
#[derive(Debug)]
pub struct Server {
    /// The URL, or `unix:` and the path of the socket.
    pub name: String,
    _file: Option<SocketFile>,
}

/// Serves what was observed until the process ends. Fails if it cannot listen there, or if a credential is missing or unfit.
pub fn start(listen: &Listen, serve: &Serve, view: LiveView) -> anyhow::Result<Server> {
    let (gate, tls) = serve.terms(listen).map_err(anyhow::Error::msg)?;
    let (listener, name, file) =
        listen::open(listen, tls.is_some()).with_context(|| format!("listen = \"{listen}\""))?;
    spawn(listener, tls.map(TlsAcceptor::from), move |request| {
        let is_public = FILES.iter().any(|(path, ..)| *path == request.uri().path());
        guarded(&gate, is_public, request, |request| route(&view, request))
    })?;
    Ok(Server { name, _file: file })
}

/// Answers all requests in a thread of its own until the process ends: a slow reader delays no tick.
pub(crate) fn spawn(
    listener: Listener,
    tls: Option<TlsAcceptor>,
    reply: impl Fn(&Request<Incoming>) -> Reply + Send + Sync + 'static,
) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
    let reply = Arc::new(reply);
    let work = async move || -> io::Result<()> {
        match listener {
            Listener::Tcp(listener) => {
                let listener = tokio::net::TcpListener::from_std(listener)?;
                accept(async || Ok(listener.accept().await?.0), tls, reply).await
            }
            Listener::Unix(listener) => {
                let listener = tokio::net::UnixListener::from_std(listener)?;
                accept(async || Ok(listener.accept().await?.0), tls, reply).await
            }
        }
    };
    std::thread::Builder::new().name("http".to_owned()).spawn(move || {
        if let Err(error) = confine() {
            lowtide_kernel::message!("lowtide: the thread that serves keeps rights that it does not need: {error}");
        }
        runtime.block_on(work())
    })?;
    Ok(())
}

/// Accepts connections, so many at a time.
async fn accept<S>(
    next: impl AsyncFn() -> io::Result<S>,
    tls: Option<TlsAcceptor>,
    reply: Arc<impl Fn(&Request<Incoming>) -> Reply + Send + Sync + 'static>,
) -> io::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let places = Arc::new(Semaphore::new(PEERS));
    loop {
        let place = places.clone().acquire_owned().await.map_err(io::Error::other)?;
        let Ok(stream) = next().await else {
            // Descriptors may have run out: others give theirs back.
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let (tls, reply) = (tls.clone(), reply.clone());
        tokio::spawn(async move {
            let _place = place;
            match tls {
                None => converse(stream, reply).await,
                Some(tls) => {
                    if let Ok(Ok(stream)) = timeout(PATIENCE, tls.accept(stream)).await {
                        converse(stream, reply).await;
                    }
                }
            }
        });
    }
}

/// Answers one peer.
async fn converse(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    reply: Arc<impl Fn(&Request<Incoming>) -> Reply + Send + Sync + 'static>,
) {
    let mut http = http1::Builder::new();
    // One request a connection: an idle peer would hold a place that others wait for.
    http.timer(TokioTimer::new()).header_read_timeout(PATIENCE).max_buf_size(HEAD).keep_alive(false);
    let service = service_fn(|request| std::future::ready(Ok::<_, std::convert::Infallible>(reply(&request))));
    let mut peer = pin!(http.serve_connection(TokioIo::new(stream), service));
    // That a peer goes away, or sends what is no HTTP, is no error of the server.
    if timeout(LONGEST.0, peer.as_mut()).await.is_err() {
        peer.as_mut().graceful_shutdown();
        let _ = timeout(LONGEST.1, peer).await;
    }
}

/// What a peer that sends these bytes and no more is answered: for fuzzing, without a socket for each input.
#[cfg(fuzzing)]
pub fn answer(sent: &[u8]) -> io::Result<Vec<u8>> {
    use std::io::{Read as _, Write as _};
    let (mut peer, own) = std::os::unix::net::UnixStream::pair()?;
    own.set_nonblocking(true)?;
    // More than a socket holds would wait for ever.
    peer.write_all(&sent[..sent.len().min(HEAD * 2)])?;
    peer.shutdown(std::net::Shutdown::Write)?;
    let gate = Gate { hosts: Some(vec!["localhost".to_owned()]), token: None };
    let view = LiveView::new(&lowtide_kernel::root::Kernel::at("/nowhere"), Default::default());
    let reply =
        Arc::new(move |request: &Request<Incoming>| guarded(&gate, false, request, |request| route(&view, request)));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
    runtime.block_on(async { Ok::<_, io::Error>(converse(tokio::net::UnixStream::from_std(own)?, reply).await) })?;
    let mut answer = Vec::new();
    peer.read_to_end(&mut answer)?;
    Ok(answer)
}

/// Answers permitted requests that only read, and adds the security headers for browsers. `is_public`: the request is for
/// what holds no figures.
pub(crate) fn guarded(
    gate: &Gate,
    is_public: bool,
    request: &Request<Incoming>,
    route: impl FnOnce(&Request<Incoming>) -> Reply,
) -> Reply {
    let authorization = request.headers().get(AUTHORIZATION).map(HeaderValue::as_bytes);
    let refused = gate.refuses(host(request), authorization, is_public).map(|(status, why)| problem(status, why));
    let mut reply = refused.or_else(|| refuse_writes(request)).unwrap_or_else(|| route(request));
    if reply.status() == StatusCode::UNAUTHORIZED {
        reply.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    for (name, value) in [
        (CONTENT_SECURITY_POLICY, POLICY),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (REFERRER_POLICY, "no-referrer"),
        (CACHE_CONTROL, "no-store"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    ] {
        reply.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    reply
}

/// The host that a request is for. None if it names two.
fn host(request: &Request<Incoming>) -> Option<&str> {
    let mut all = request.headers().get_all(HOST).iter();
    let host = all.next()?.to_str().ok()?;
    let other = request.uri().authority().is_some_and(|authority| authority.as_str() != host);
    (all.next().is_none() && !other).then_some(host)
}

fn route(view: &LiveView, request: &Request<Incoming>) -> Reply {
    let path = request.uri().path();
    if let Some((_, kind, text)) = FILES.iter().find(|(file, ..)| *file == path) {
        return reply(StatusCode::OK, kind, *text);
    }
    match path.strip_prefix("/api/workloads") {
        Some("") => json(&view.overview()),
        Some(id) => match id.strip_prefix('/').and_then(|id| view.detail(id.parse::<u64>().ok()?.into())) {
            Some(detail) => json(&detail),
            None => problem(StatusCode::NOT_FOUND, "there is no such workload, or not any more"),
        },
        None if path == "/metrics" => scrape(view),
        None => problem(StatusCode::NOT_FOUND, "there is nothing of that name"),
    }
}

/// Everything is read-only.
fn refuse_writes(request: &Request<Incoming>) -> Option<Reply> {
    (![Method::GET, Method::HEAD].contains(request.method())).then(|| {
        let mut refused = problem(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD are answered");
        refused.headers_mut().insert(ALLOW, HeaderValue::from_static("GET,HEAD"));
        refused
    })
}

fn json(value: &impl Serialize) -> Reply {
    match serde_json::to_vec(value) {
        Ok(text) => reply(StatusCode::OK, "application/json", text),
        Err(error) => problem(StatusCode::INTERNAL_SERVER_ERROR, &format!("it could not be written: {error}")),
    }
}

pub(crate) fn problem(status: StatusCode, why: &str) -> Reply {
    reply(status, "application/json", serde_json::json!({ "error": why }).to_string())
}

pub(crate) fn reply(status: StatusCode, kind: &'static str, body: impl Into<Bytes>) -> Reply {
    let mut reply = Response::new(Full::new(body.into()));
    *reply.status_mut() = status;
    reply.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    reply
}

#[cfg(test)]
mod tests;
