use super::*;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path as FilePath;

use lowtide_kernel::clock::TestClock;
use lowtide_kernel::root::Kernel;
use lowtide_model::curve::RefaultCosts;
use lowtide_model::kind::PerKind;

use crate::agent::serve::client::Client;
use crate::event::{ActionEvent, ActionKind, Event, Observed, Sink};
use crate::failure::code;

fn view() -> LiveView {
    let kernel = Kernel::default().with_clock(&TestClock::default());
    let mut view = LiveView::new(&kernel, RefaultCosts::default());
    let process =
        lowtide_policy::machine::WorkloadState { id: 7.into(), resident: [4096.0, 0.0].into(), ..Default::default() };
    let observation = lowtide_policy::machine::Observation { now_s: 2.0, ..Default::default() };
    let observed = Observed {
        observation: &observation,
        workloads: &std::collections::BTreeMap::new(),
        processes: &[("pid <7>".to_owned(), process)],
        are_ages_new: false,
        stopped: false,
        stop_file: "/stop",
        dry_run: true,
        every_s: 5.0,
        cpu_s: (0.0, 0.0),
    };
    view.take(2.0, &Event::Observed(&observed));
    let (name, reason, stopped) = ("pid <7>", "it rests", Some("dry run".to_owned()));
    let bytes = PerKind { anon: 4096.0, file: 0.0 };
    let of = ActionEvent::of(ActionKind::PageOut, 7.into());
    view.take(2.0, &Event::Acted(&ActionEvent { name, reason, stopped, bytes, took_s: 0.1, ..of }));
    view
}

fn serve(text: &str, serve: &Serve) -> Server {
    start(&Listen::try_from(text.to_owned()).unwrap(), serve, view()).unwrap()
}

/// What is answered to a request as it stands.
fn say(server: &Server, request: &str) -> String {
    let address = server.name.trim_start_matches("http://").trim_end_matches('/');
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

fn get(server: &Server, path: &str, headers: &str) -> String {
    say(server, &format!("GET {path} HTTP/1.1\r\nConnection: close\r\n{headers}\r\n"))
}

#[test]
fn figures_are_the_same_over_an_address_and_a_socket() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    let socket = serve(&format!("unix:{}", path.display()), &Serve::default());
    let address = serve("127.0.0.1:0", &Serve::default());
    let clients = [Client::at_socket(&path, PATIENCE), Client::at_url(&address.name, None, PATIENCE).unwrap()];
    for client in clients {
        let overview = client.overview().unwrap();
        assert_eq!((overview.agent.dry_run, overview.agent.now_s), (true, 2.0));
        assert_eq!(overview.workloads.iter().map(|row| row.name.as_str()).collect::<Vec<_>>(), ["pid <7>"]);
        let detail = client.detail("7").unwrap().unwrap();
        assert_eq!(
            (detail.actions[0].reason.as_str(), detail.actions[0].stopped.as_deref()),
            ("it rests", Some("dry run"))
        );
        for none in ["8", "-1", "x", "7%2f", "99999999999999999999999"] {
            assert!(client.detail(none).unwrap().is_none(), "{none}");
        }
    }
    drop(socket);
    assert!(!path.exists());
}

#[test]
fn the_page_loads_nothing_from_elsewhere_and_every_answer_is_guarded() {
    let server = serve("127.0.0.1:0", &Serve::default());
    for (path, status) in [("/", 200), ("/page.js", 200), ("/metrics", 200), ("/none", 404), ("/api/workloads/8", 404)]
    {
        let answer = get(&server, path, "Host: localhost\r\n");
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{path}: {answer}");
        assert!(answer.contains(&format!("content-security-policy: {POLICY}\r\n")), "{path}: {answer}");
        assert!(answer.contains("x-content-type-options: nosniff\r\n"), "{path}");
        assert!(!answer.to_ascii_lowercase().contains("access-control"), "{path}");
    }
    assert!(get(&server, "/metrics", "Host: localhost\r\n").contains("lowtide_agent_cpu_seconds_total"));
    for (path, _, text) in FILES {
        let foreign = text.replace("http://www.w3.org/2000/svg", "");
        for part in ["http:", "https:", "src=\"//", "innerHTML", "insertAdjacentHTML", "eval(", "style=\"", "onclick="]
        {
            assert!(!foreign.contains(part), "{path}: {part}");
        }
    }
}

#[test]
fn nothing_but_reading_for_this_machine_is_answered() {
    let server = serve("127.0.0.1:0", &Serve::default());
    let status = |request: &str| {
        let answer = say(&server, request);
        answer.split(' ').nth(1).map(|status| status.parse::<u16>().unwrap())
    };
    for (method, path) in
        [("POST", "/api/workloads"), ("PUT", "/"), ("DELETE", "/api/workloads/7"), ("OPTIONS", "/metrics")]
    {
        let request = format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        assert_eq!(status(&request), Some(405), "{method}");
    }
    for headers in [
        "Host: evil.example\r\n",
        "",
        "Host: localhost\r\nHost: evil.example\r\n",
        "Host: localhost.evil.example:9465\r\n",
    ] {
        for path in ["/", "/api/workloads", "/metrics"] {
            assert!(get(&server, path, headers).starts_with("HTTP/1.1 40"), "{headers}");
            assert!(!get(&server, path, headers).contains("<title>"), "{headers}");
        }
    }
    let other = "GET http://evil.example/api/workloads HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    assert_eq!(status(other), Some(403));
    assert_eq!(status(&format!("GET /{} HTTP/1.1\r\n", "x".repeat(100_000))), Some(431));
}

#[test]
fn with_a_token_only_the_page_without_figures_is_for_all() {
    let dir = tempfile::tempdir().unwrap();
    let put = |name: &str, text: &str| {
        use std::os::unix::fs::PermissionsExt;
        let path = dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        path
    };
    let (own, other) = (put("own", "0123456789abcdef\n"), put("other", "0123456789abcdeg\n"));
    let server = serve("127.0.0.1:0", &Serve { token_file: Some(own.clone()), ..Serve::default() });
    assert!(get(&server, "/", "Host: x\r\n").starts_with("HTTP/1.1 200"));
    for path in ["/api/workloads", "/api/workloads/7", "/metrics", "/none"] {
        let answer = get(&server, path, "Host: x\r\n");
        assert!(answer.starts_with("HTTP/1.1 401") && answer.contains("www-authenticate: Bearer"), "{path}: {answer}");
        assert!(get(&server, path, "Host: x\r\nAuthorization: Bearer 0123456789abcdef\r\n").contains("HTTP/1.1 "));
    }
    let client = |token: Option<&FilePath>| {
        let client = Client::at_url(&server.name, None, PATIENCE).unwrap();
        token.map_or_else(|| client.clone(), |token| client.clone().with_token_of(token).unwrap())
    };
    assert_eq!(client(None).overview().unwrap_err().code, code::PERMISSION);
    assert_eq!(client(Some(&other)).overview().unwrap_err().code, code::PERMISSION);
    assert_eq!(client(Some(&own)).overview().unwrap().workloads.len(), 1);
}

#[test]
fn peers_that_say_nothing_leave_room_for_others() {
    let server = serve("127.0.0.1:0", &Serve::default());
    let address = server.name.trim_start_matches("http://").trim_end_matches('/').to_owned();
    let silent: Vec<TcpStream> = (0..PEERS - 1).map(|_| TcpStream::connect(&address).unwrap()).collect();
    assert!(get(&server, "/", "Host: localhost\r\n").starts_with("HTTP/1.1 200"));
    drop(silent);
}

#[test]
fn a_peer_that_was_answered_gives_its_place_back() {
    let server = serve("127.0.0.1:0", &Serve::default());
    // It asks to be kept.
    let answer = say(&server, "GET / HTTP/1.1\r\nConnection: keep-alive\r\nHost: localhost\r\n\r\n");
    assert!(answer.to_ascii_lowercase().contains("\r\nconnection: close\r\n"), "{answer}");
}
