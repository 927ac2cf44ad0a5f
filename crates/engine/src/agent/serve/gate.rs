//! Which requests the agent's server answers: the decisions, apart from HTTP.

use hyper::StatusCode;
use subtle::ConstantTimeEq as _;

/// A shorter token could be guessed, bytes.
const SHORTEST: usize = 16;

/// A secret that a peer must know.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Token(Vec<u8>);

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token")
    }
}

impl Token {
    /// The first line of a file.
    pub(super) fn new(text: &str) -> Result<Self, String> {
        let line = text.lines().next().unwrap_or_default().trim();
        if line.len() < SHORTEST || !line.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(format!("its first line must be {SHORTEST} visible ASCII characters or more"));
        }
        Ok(Self(line.as_bytes().to_vec()))
    }

    /// Whether a header holds it. How long the comparison takes shows only how long the token is.
    fn is_in(&self, authorization: &[u8]) -> bool {
        let scheme = b"bearer ";
        let given = authorization.split_at_checked(scheme.len());
        given.is_some_and(|(kind, given)| kind.eq_ignore_ascii_case(scheme) && bool::from(given.ct_eq(&self.0)))
    }
}

/// What is asked of peers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Gate {
    /// Host names that a request may be for; `None` = any.
    pub hosts: Option<Vec<String>>,
    /// What a peer must know to read figures.
    pub token: Option<Token>,
}

impl Gate {
    /// Why a request is refused, if it is. `is_public`: what it asks for holds no figures.
    pub(super) fn refuses(
        &self,
        host: Option<&str>,
        authorization: Option<&[u8]>,
        is_public: bool,
    ) -> Option<(StatusCode, &'static str)> {
        // A page of another site could have its own name resolve to this machine.
        let is_ours = |hosts: &Vec<String>| {
            host.and_then(name_of).is_some_and(|name| hosts.iter().any(|own| own.eq_ignore_ascii_case(name)))
        };
        if self.hosts.as_ref().is_some_and(|hosts| !is_ours(hosts)) {
            return Some((StatusCode::FORBIDDEN, "this is answered only to localhost, 127.0.0.1 and [::1]"));
        }
        let knows = |token: &Token| authorization.is_some_and(|given| token.is_in(given));
        let refused = !is_public && self.token.as_ref().is_some_and(|token| !knows(token));
        refused.then_some((StatusCode::UNAUTHORIZED, "the token is missing or another one"))
    }
}

/// A host without its port; `None` if it is none. Stricter than `Authority`, which takes anything for a port.
fn name_of(host: &str) -> Option<&str> {
    let end = if host.starts_with('[') { host.find(']')? + 1 } else { host.find(':').unwrap_or(host.len()) };
    let (name, port) = host.split_at_checked(end)?;
    let is_port = |port: &str| port.len() <= 5 && port.bytes().all(|byte| byte.is_ascii_digit());
    (port.is_empty() || port.strip_prefix(':').is_some_and(is_port)).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gate() -> Gate {
        Gate { hosts: Some(["localhost", "127.0.0.1", "[::1]"].map(String::from).into()), token: None }
    }

    fn refused(gate: &Gate, host: Option<&str>, authorization: Option<&[u8]>, is_public: bool) -> Option<StatusCode> {
        gate.refuses(host, authorization, is_public).map(|(status, _)| status)
    }

    #[test]
    fn only_names_of_this_machine_are_answered() {
        for host in ["localhost", "LOCALHOST:9465", "127.0.0.1:9465", "[::1]:1", "[::1]"] {
            assert_eq!(refused(&gate(), Some(host), None, false), None, "{host}");
        }
        for host in [
            "",
            "evil.example",
            "evil.example:9465",
            "localhost.evil.example",
            "localhost:9465.evil.example",
            "127.0.0.1@evil.example",
            "localhost:9465@evil.example",
            "[::1",
            "[::1]x",
            "::1",
            "localhost.",
        ] {
            assert_eq!(refused(&gate(), Some(host), None, true), Some(StatusCode::FORBIDDEN), "{host}");
        }
        assert_eq!(refused(&gate(), None, None, true), Some(StatusCode::FORBIDDEN));
        assert_eq!(refused(&Gate::default(), None, None, false), None);
    }

    #[test]
    fn figures_take_the_token() {
        let token = Some(Token::new("0123456789abcdef\n# a remark\n").unwrap());
        let gate = Gate { hosts: None, token };
        assert_eq!(refused(&gate, None, Some(b"Bearer 0123456789abcdef"), false), None);
        assert_eq!(refused(&gate, None, Some(b"bearer 0123456789abcdef"), false), None);
        let wrong: [&[u8]; 7] = [
            b"",
            b"Bearer",
            b"Bearer ",
            b"Bearer 0123456789abcdeg",
            b"Bearer 0123456789abcde",
            b"Bearer 0123456789abcdef0",
            b"0123456789abcdef",
        ];
        for given in wrong {
            assert_eq!(refused(&gate, None, Some(given), false), Some(StatusCode::UNAUTHORIZED), "{given:?}");
        }
        assert_eq!(refused(&gate, None, None, false), Some(StatusCode::UNAUTHORIZED));
        assert_eq!(refused(&gate, None, None, true), None, "a page without figures is for all");
    }

    #[test]
    fn a_token_is_hard_to_guess_and_not_printed() {
        for text in ["", "short", "0123456789abcde\n0123456789abcdef", "0123456789 abcdef", "0123456789abcdeä"] {
            assert!(Token::new(text).is_err(), "{text:?}");
        }
        assert_eq!(format!("{:?}", Token::new("0123456789abcdef").unwrap()), "Token");
    }
}
