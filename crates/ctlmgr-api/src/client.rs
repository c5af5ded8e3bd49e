//! A client: one connection per request, as the CLI needs it.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::{Method, Request, Response, StatusCode, header};
use hyper_util::rt::TokioIo;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::net::UnixStream;

use crate::Refusal;

/// An answer takes at most this long, if nobody says otherwise; undo waits for the system manager.
const PATIENCE: Duration = Duration::from_secs(60);
/// Largest answer accepted, in bytes.
const MAX_ANSWER: usize = 64 << 20;

/// Why a request got no answer.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Nobody listens.
    #[error("failed to reach ctlmgrd at {socket}")]
    Connect {
        /// Where.
        socket: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It takes no more requests.
    #[error("ctlmgrd is stopping")]
    Stopping,
    /// The daemon said no.
    #[error("{0}")]
    Refused(String),
    /// The connection broke, or no HTTP came back.
    #[error("failed to talk to ctlmgrd")]
    Http(#[from] hyper::Error),
    /// What came back is no answer of this version.
    #[error("failed to understand the answer of ctlmgrd")]
    Json(#[from] serde_json::Error),
    /// Anything else about the exchange.
    #[error("failed to talk to ctlmgrd: {0}")]
    Exchange(String),
}

impl ClientError {
    /// Whether no daemon is there to talk to.
    pub fn is_absent(&self) -> bool {
        matches!(self, ClientError::Connect { source, .. } if matches!(
            source.kind(),
            std::io::ErrorKind::NotFound | std::io::ErrorKind::ConnectionRefused
        ))
    }

    /// Whether it went before it answered, so that who asks again is answered by the next one or finds nobody. That it
    /// did nothing is not said. `systemctl stop ctlmgr` returns while the socket still listens, and
    /// systemd closes unheard on whoever connects then.
    pub fn is_cut_off(&self) -> bool {
        match self {
            ClientError::Stopping => true,
            ClientError::Http(error) => is_cut_off(error),
            _ => false,
        }
    }
}

/// A client of one socket.
#[derive(Debug, Clone)]
pub struct Client {
    socket: PathBuf,
    patience: Duration,
}

impl Client {
    /// A client of the daemon at `socket`.
    pub fn new(socket: impl Into<PathBuf>) -> Client {
        Client { socket: socket.into(), patience: PATIENCE }
    }

    /// The same, that waits so long for an answer.
    #[must_use]
    pub fn patient(self, patience: Duration) -> Client {
        Client { patience, ..self }
    }

    /// Where this client connects to.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Reads a resource.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, ClientError> {
        self.exchange(Method::GET, path, Vec::new()).await
    }

    /// Changes a resource.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn send<B: Serialize, T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: &B,
    ) -> Result<T, ClientError> {
        self.exchange(method, path, serde_json::to_vec(body)?).await
    }

    /// Asks for leave to start, and waits for the answer no longer than this.
    ///
    /// # Errors
    /// See [`ClientError`]; a daemon that hangs is one.
    pub async fn ask_start(
        &self,
        request: &crate::StartRequest,
        patience: Duration,
    ) -> Result<crate::StartAnswer, ClientError> {
        self.clone().patient(patience).send(Method::POST, "/v1/starts", request).await
    }

    /// Follows a resource that tells of its changes (server-sent events), until the daemon ends or `take` fails.
    ///
    /// # Errors
    /// See [`ClientError`], and those of `take`.
    pub async fn follow<T: DeserializeOwned, E: From<ClientError>>(
        &self,
        path: &str,
        mut take: impl FnMut(T) -> Result<(), E>,
    ) -> Result<(), E> {
        let (mut response, _driver) =
            self.open(Method::GET, path, "text/event-stream", Vec::new()).await?;
        let status = response.status();
        if !status.is_success() {
            return Err(refused(status, &whole(response).await?).into());
        }
        let mut events = Events::default();
        while let Some(frame) = response.body_mut().frame().await {
            let frame = match frame {
                Err(error) if is_cut_off(&error) => return Ok(()),
                frame => frame.map_err(ClientError::Http)?,
            };
            for event in events.take(frame.data_ref().unwrap_or(&Bytes::new()))? {
                take(serde_json::from_slice(&event).map_err(ClientError::Json)?)?;
            }
        }
        Ok(())
    }

    async fn exchange<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Vec<u8>,
    ) -> Result<T, ClientError> {
        let exchange = self.try_exchange(method, path, body);
        let late = |_| ClientError::Exchange(format!("no answer in {:?}", self.patience));
        let (status, bytes) =
            tokio::time::timeout(self.patience, exchange).await.map_err(late)??;
        if status.is_success() {
            return Ok(serde_json::from_slice(&bytes)?);
        }
        Err(refused(status, &bytes))
    }

    async fn try_exchange(
        &self,
        method: Method,
        path: &str,
        body: Vec<u8>,
    ) -> Result<(StatusCode, Bytes), ClientError> {
        let (response, _driver) = self.open(method, path, "application/json", body).await?;
        Ok((response.status(), whole(response).await?))
    }

    /// Asks, and hands over the answer as it comes; the connection lives as long as its driver.
    async fn open(
        &self,
        method: Method,
        path: &str,
        accept: &'static str,
        body: Vec<u8>,
    ) -> Result<(Response<Incoming>, Driver), ClientError> {
        let stream = UnixStream::connect(&self.socket)
            .await
            .map_err(|source| ClientError::Connect { socket: self.socket.clone(), source })?;
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        let driver = Driver(tokio::spawn(async {
            // Whoever reads hears of it.
            let _ = connection.await;
        }));
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::HOST, "ctlmgr")
            .header(header::CONTENT_TYPE, "application/json")
            .header(header::ACCEPT, accept)
            .body(Full::new(Bytes::from(body)))
            .map_err(|e| ClientError::Exchange(e.to_string()))?;
        Ok((sender.send_request(request).await?, driver))
    }
}

/// Whether the other side has gone, before its answer or in the midst of it.
fn is_cut_off(error: &hyper::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
    let first: &(dyn std::error::Error + 'static) = error;
    let mut chain = std::iter::successors(Some(first), |e| e.source());
    let is_gone = |e: &io::Error| matches!(e.kind(), UnexpectedEof | ConnectionReset | BrokenPipe);
    // Canceled: it closed before anything was sent.
    error.is_incomplete_message()
        || error.is_canceled()
        || chain.any(|e| e.downcast_ref::<io::Error>().is_some_and(is_gone))
}

/// All that comes.
async fn whole(response: Response<Incoming>) -> Result<Bytes, ClientError> {
    let body = Limited::new(response.into_body(), MAX_ANSWER).collect().await;
    let body = body.map_err(|error| match error.downcast::<hyper::Error>() {
        Ok(error) => ClientError::Http(*error),
        Err(error) => ClientError::Exchange(error.to_string()),
    });
    Ok(body?.to_bytes())
}

/// What the daemon says instead of an answer.
fn refused(status: StatusCode, body: &[u8]) -> ClientError {
    if status == StatusCode::SERVICE_UNAVAILABLE {
        return ClientError::Stopping;
    }
    match serde_json::from_slice::<Refusal>(body) {
        Ok(refusal) => ClientError::Refused(refusal.error),
        Err(_) => ClientError::Exchange(format!("HTTP status {status}")),
    }
}

/// What moves a connection; without it that ends.
struct Driver(tokio::task::JoinHandle<()>);

impl Drop for Driver {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Server-sent events (WHATWG HTML, 9.2) as ctlmgrd sends them: data of one line each, and comments.
#[derive(Default)]
struct Events {
    /// A line that has not ended yet.
    rest: Vec<u8>,
}

impl Events {
    /// The data of those that end in this piece.
    fn take(&mut self, piece: &[u8]) -> Result<Vec<Vec<u8>>, ClientError> {
        self.rest.extend_from_slice(piece);
        let Some(end) = self.rest.iter().rposition(|byte| *byte == b'\n') else {
            return match self.rest.len() > MAX_ANSWER {
                true => Err(ClientError::Exchange("an event without an end".to_owned())),
                false => Ok(Vec::new()),
            };
        };
        let rest = self.rest.split_off(end + 1);
        let whole = std::mem::replace(&mut self.rest, rest);
        let lines = whole.split(|byte| *byte == b'\n');
        Ok(lines.filter_map(|line| line.strip_prefix(b"data: ")).map(<[u8]>::to_vec).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::UnixListener;

    /// A socket, and the directory that goes with the test.
    fn listening() -> (tempfile::TempDir, PathBuf, UnixListener) {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("s");
        let listener = UnixListener::bind(&socket).unwrap();
        (dir, socket, listener)
    }

    #[tokio::test]
    async fn following_ends_when_the_daemon_does() {
        let (_dir, socket, listener) = listening();
        let daemon = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            assert!(stream.read(&mut [0; 1024]).await.unwrap() > 0);
            let head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
            stream.write_all(head).await.unwrap();
            stream.write_all(b"9\r\ndata: 7\n\n\r\n").await.unwrap();
        });
        let mut heard = Vec::new();
        let take = |number: u32| {
            heard.push(number);
            Ok::<(), ClientError>(())
        };
        Client::new(socket).follow("/v1/queue", take).await.unwrap();
        daemon.await.unwrap();
        assert_eq!(heard, [7]);
    }

    /// As systemd does with who waits at a socket whose stop is scheduled: taken and closed, read or not.
    #[tokio::test]
    async fn a_daemon_that_goes_before_it_answers_cuts_off() {
        for (is_asked, has_read) in [(false, false), (true, false), (true, true)] {
            let (_dir, socket, listener) = listening();
            let daemon = tokio::spawn(async move {
                let (mut stream, _) = listener.accept().await.unwrap();
                if is_asked {
                    stream.readable().await.unwrap();
                }
                if has_read {
                    assert!(stream.read(&mut [0; 1024]).await.unwrap() > 0);
                }
            });
            let error = Client::new(socket).get::<u32>("/v1/diff").await.unwrap_err();
            daemon.await.unwrap();
            assert!(error.is_cut_off() && !error.is_absent(), "{is_asked} {has_read}: {error:?}");
        }
    }

    #[tokio::test]
    async fn so_does_one_that_goes_in_the_midst_of_its_answer_and_none_that_says_something_else() {
        let half = b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n[[[".as_slice();
        for (said, is_cut_off) in [(half, true), (b"no HTTP\r\n\r\n".as_slice(), false)] {
            let (_dir, socket, listener) = listening();
            let daemon = tokio::spawn(async move {
                let (mut stream, _) = listener.accept().await.unwrap();
                assert!(stream.read(&mut [0; 1024]).await.unwrap() > 0);
                stream.write_all(said).await.unwrap();
            });
            let error = Client::new(socket).get::<u32>("/v1/diff").await.unwrap_err();
            daemon.await.unwrap();
            assert_eq!(error.is_cut_off(), is_cut_off, "{error:?}");
        }
    }

    #[tokio::test]
    async fn one_that_takes_no_more_requests_is_going() {
        let error = refused(StatusCode::SERVICE_UNAVAILABLE, b"{}");
        assert!(error.is_cut_off() && !refused(StatusCode::BAD_REQUEST, b"{}").is_cut_off());
    }

    proptest! {
        #[test]
        fn events_are_the_same_however_they_are_cut(
            texts in proptest::collection::vec("[^\n]{0,20}", 0..5),
            cuts in proptest::collection::vec(0usize..200, 0..6),
        ) {
            let whole: String =
                texts.iter().map(|text| format!(": alive\n\ndata: {text}\n\n")).collect();
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(whole.len())).collect();
            cuts.extend([0, whole.len()]);
            cuts.sort_unstable();
            let mut events = Events::default();
            let pieces = cuts.windows(2).map(|cut| &whole.as_bytes()[cut[0]..cut[1]]);
            let heard: Vec<Vec<u8>> = pieces.flat_map(|piece| events.take(piece).unwrap()).collect();
            let sent: Vec<Vec<u8>> = texts.iter().map(|text| text.clone().into_bytes()).collect();
            prop_assert_eq!(heard, sent);
        }

        #[test]
        fn any_bytes_are_events_or_not(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = Events::default().take(&bytes);
        }
    }
}
