//! Which requests to dockerd start a container.

/// A request that starts a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Started {
    /// By name or id as the client wrote it.
    pub container: String,
    /// It stops it first if it runs; a mere start leaves it alone then.
    pub is_restart: bool,
}

/// The start or restart that a request asks for, if it does.
///
/// The plugin is no security boundary: what is not understood is no start (Docker Engine API,
/// `ContainerStart`, `ContainerRestart`; the URI is raw, with version and query).
pub fn started(method: &str, uri: &str) -> Option<Started> {
    if method != "POST" {
        return None;
    }
    let path = uri.split(['?', '#']).next().unwrap_or_default();
    let mut parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    if parts.first().is_some_and(|first| is_version(first)) {
        parts.remove(0);
    }
    match parts[..] {
        ["containers", name, verb @ ("start" | "restart")] => {
            Some(Started { container: unescape(name), is_restart: verb == "restart" })
        }
        _ => None,
    }
}

/// `v1.47`.
fn is_version(text: &str) -> bool {
    let digits = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    text.strip_prefix('v')
        .and_then(|rest| rest.split_once('.'))
        .is_some_and(|(major, minor)| digits(major) && digits(minor))
}

/// Percent-encoding undone; what is none stays as it is.
fn unescape(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let hex = bytes.get(at + 1..at + 3).and_then(|h| std::str::from_utf8(h).ok());
        match hex.and_then(|h| u8::from_str_radix(h, 16).ok()).filter(|_| bytes[at] == b'%') {
            Some(byte) => {
                out.push(byte);
                at += 3;
            }
            None => {
                out.push(bytes[at]);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn starts_and_restarts_by_name_and_id() {
        assert!(started("POST", "/containers/a/restart").unwrap().is_restart);
        assert!(!started("POST", "/containers/a/start").unwrap().is_restart);
        let of = |uri| started("POST", uri).map(|s| s.container);
        assert_eq!(of("/v1.47/containers/web-1/start"), Some("web-1".into()));
        assert_eq!(of("/containers/0123456789ab/start?checkpoint=x"), Some("0123456789ab".into()));
        assert_eq!(of("/v1.24/containers/a%2db/restart?t=5"), Some("a-b".into()));
        assert_eq!(of("/v1.47/containers/create?name=start"), None);
        assert_eq!(of("/v1.47/containers/web-1/stop"), None);
        assert_eq!(of("/v1.47/exec/1/start"), None);
        assert_eq!(of("/containers/v1.47/start"), Some("v1.47".into()));
        assert_eq!(started("GET", "/containers/web-1/start"), None);
    }

    proptest! {
        #[test]
        fn any_uri_is_a_start_or_not(method in "POST|GET|.*", uri in "(/v1.[0-9]{1,2})?/containers/[^/]{0,20}/(start|restart|stop)?.*|.*") {
            let _ = started(&method, &uri);
        }
    }
}
