//! The agent's server: the live page, its data as JSON, and metrics. Read-only, with bounds on what peers can hold up.

use std::future::Future;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use axum::Router;
use axum::extract::{Path, Request, State};
use axum::http::header::{
    AUTHORIZATION, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HOST, HeaderName, HeaderValue,
    REFERRER_POLICY, WWW_AUTHENTICATE, X_CONTENT_TYPE_OPTIONS,
};
use axum::http::{HeaderMap, StatusCode};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use serde::Serialize;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

use super::gate::{Gate, Refusal};
use super::listen::{self, Listen, Listener, Serve, SocketFile};
use crate::agent::sinks::view::LiveView;
use crate::metrics::{OPENMETRICS, exposition};

/// Connections at a time; more wait.
const PEERS: usize = 64;
/// A peer has so long to say what it wants, or to agree on a cipher.
const PATIENCE: Duration = Duration::from_secs(15);
/// A connection is given up after so long, and whatever it is in the middle of after so much more.
const LONGEST: (Duration, Duration) = (Duration::from_secs(120), Duration::from_secs(15));
/// A request's head is no longer.
const HEAD: usize = 16 << 10;
/// The page may load only what comes from here, and nothing may frame it.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// What the page is made of: path, type and text. None of it holds figures.
const FILES: [(&str, &str, &str); 5] = [
    ("/", "text/html; charset=utf-8", include_str!("page/index.html")),
    ("/page.css", "text/css; charset=utf-8", include_str!("page/page.css")),
    ("/page.js", "text/javascript; charset=utf-8", include_str!("page/page.js")),
    ("/draw.js", "text/javascript; charset=utf-8", include_str!("page/draw.js")),
    ("/icon.svg", "image/svg+xml", include_str!("page/icon.svg")),
];

/// A server at work, in a thread that ends with the process.
#[derive(Debug)]
pub struct Server {
    /// How it is to be asked for.
    pub name: String,
    _file: Option<SocketFile>,
}

/// Serves what was observed until the process ends.
///
/// # Errors
/// If it cannot be listened there, or what peers must have is not in order.
pub fn start(listen: &Listen, serve: &Serve, view: LiveView) -> anyhow::Result<Server> {
    let terms = serve.terms(listen).map_err(anyhow::Error::msg)?;
    let opened = listen::open(listen, terms.tls.is_some());
    let (listener, name, file) = opened.with_context(|| format!("listen = \"{listen}\""))?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
    let routes = routes(terms.gate, view);
    let tls = terms.tls.map(TlsAcceptor::from);
    std::thread::Builder::new().name("http".to_owned()).spawn(move || {
        runtime.block_on(async {
            // It ends with the process.
            let _ = match listener {
                Listener::Tcp(listener) => tcp(listener, tls, routes).await,
                Listener::Unix(listener) => unix(listener, tls, routes).await,
            };
        });
    })?;
    Ok(Server { name, _file: file })
}

async fn tcp(listener: std::net::TcpListener, tls: Option<TlsAcceptor>, routes: Router) -> io::Result<()> {
    let listener = tokio::net::TcpListener::from_std(listener)?;
    admit(async || listener.accept().await.map(|(stream, _)| stream), tls, routes).await
}

async fn unix(listener: std::os::unix::net::UnixListener, tls: Option<TlsAcceptor>, routes: Router) -> io::Result<()> {
    let listener = tokio::net::UnixListener::from_std(listener)?;
    admit(async || listener.accept().await.map(|(stream, _)| stream), tls, routes).await
}

/// Lets peers in, so many at a time.
async fn admit<S>(accept: impl AsyncFn() -> io::Result<S>, tls: Option<TlsAcceptor>, routes: Router) -> io::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let places = Arc::new(Semaphore::new(PEERS));
    loop {
        let place = places.clone().acquire_owned().await.map_err(io::Error::other)?;
        let Ok(stream) = accept().await else {
            // Descriptors may have run out: others give theirs back.
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let (tls, routes) = (tls.clone(), routes.clone());
        tokio::spawn(async move {
            let _place = place;
            match tls {
                None => converse(stream, routes).await,
                Some(tls) => {
                    if let Ok(Ok(stream)) = timeout(PATIENCE, tls.accept(stream)).await {
                        converse(stream, routes).await;
                    }
                }
            }
        });
    }
}

/// Answers one peer.
async fn converse(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, routes: Router) {
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(PATIENCE).max_buf_size(HEAD);
    let mut peer = pin!(http.serve_connection(TokioIo::new(stream), TowerToHyperService::new(routes)));
    // A peer that goes away, or says nonsense, is its own affair.
    if timeout(LONGEST.0, peer.as_mut()).await.is_err() {
        peer.as_mut().graceful_shutdown();
        let _ = timeout(LONGEST.1, peer).await;
    }
}

/// What is answered to what.
fn routes(gate: Gate, view: LiveView) -> Router {
    let mut routes = Router::new()
        .route("/api/workloads", get(async |State(view): State<LiveView>| json(&view.overview())))
        .route("/api/workloads/{id}", get(detail))
        .route("/metrics", get(metrics));
    for (path, kind, text) in FILES {
        routes = routes.route(path, get(move || std::future::ready(([(CONTENT_TYPE, kind)], text))));
    }
    routes.fallback(async || problem(StatusCode::NOT_FOUND, "there is nothing of that name")).with_state(view).layer(
        from_fn_with_state(Arc::new(gate), |State(gate): State<Arc<Gate>>, request: Request, next: Next| {
            guarded(gate, request, next)
        }),
    )
}

/// Answers those who may ask, and tells browsers what an answer may do.
fn guarded(gate: Arc<Gate>, request: Request, next: Next) -> impl Future<Output = Response> {
    let bare = FILES.iter().any(|(path, ..)| *path == request.uri().path());
    let refusal = gate.refuses(host(&request), said(request.headers(), AUTHORIZATION), bare);
    async move {
        let mut answer = match refusal {
            None => next.run(request).await,
            Some(Refusal::Host) => {
                problem(StatusCode::FORBIDDEN, "this is answered only to localhost, 127.0.0.1 and [::1]")
            }
            Some(Refusal::Token) => {
                let problem = problem(StatusCode::UNAUTHORIZED, "the token is missing or another one");
                ([(WWW_AUTHENTICATE, "Bearer")], problem).into_response()
            }
        };
        let headers = answer.headers_mut();
        for (name, value) in [
            (CONTENT_SECURITY_POLICY, POLICY),
            (X_CONTENT_TYPE_OPTIONS, "nosniff"),
            (REFERRER_POLICY, "no-referrer"),
            (CACHE_CONTROL, "no-store"),
            (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
        ] {
            headers.insert(name, HeaderValue::from_static(value));
        }
        answer
    }
}

/// For whom a request is meant. One that says so twice, in different words, is for nobody.
fn host(request: &Request) -> Option<&str> {
    let mut all = request.headers().get_all(HOST).iter();
    let host = all.next()?.to_str().ok()?;
    let other = request.uri().authority().is_some_and(|authority| authority.as_str() != host);
    (all.next().is_none() && !other).then_some(host)
}

fn said(headers: &HeaderMap, name: HeaderName) -> Option<&[u8]> {
    headers.get(name).map(HeaderValue::as_bytes)
}

async fn detail(State(view): State<LiveView>, Path(id): Path<String>) -> Response {
    match id.parse().ok().and_then(|id| view.detail(id)) {
        Some(detail) => json(&detail),
        None => problem(StatusCode::NOT_FOUND, "there is no such workload, or not any more"),
    }
}

async fn metrics(State(view): State<LiveView>) -> Response {
    match exposition(&view.metrics()) {
        Ok(text) => ([(CONTENT_TYPE, OPENMETRICS)], text).into_response(),
        Err(error) => problem(StatusCode::INTERNAL_SERVER_ERROR, &format!("the figures could not be written: {error}")),
    }
}

fn json(value: &impl Serialize) -> Response {
    match serde_json::to_vec(value) {
        Ok(text) => ([(CONTENT_TYPE, "application/json")], text).into_response(),
        Err(error) => problem(StatusCode::INTERNAL_SERVER_ERROR, &format!("it could not be written: {error}")),
    }
}

fn problem(status: StatusCode, why: &str) -> Response {
    let text = serde_json::json!({ "error": why }).to_string();
    (status, [(CONTENT_TYPE, "application/json")], text).into_response()
}

#[cfg(test)]
mod tests;
