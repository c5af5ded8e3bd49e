//! A client: one connection per request, as the CLI needs it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::{Method, Request, StatusCode, header};
use hyper_util::rt::TokioIo;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::net::UnixStream;

use crate::Refusal;

/// An answer takes at most this long, in seconds; undo waits for the system manager.
const TIMEOUT: Duration = Duration::from_secs(60);
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
        source: std::io::Error,
    },
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
}

/// A client of one socket.
#[derive(Debug, Clone)]
pub struct Client {
    socket: PathBuf,
}

impl Client {
    /// A client of the daemon at `socket`.
    pub fn new(socket: impl Into<PathBuf>) -> Client {
        Client { socket: socket.into() }
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
        let ask = self.send(Method::POST, "/v1/starts", request);
        let late = |_| ClientError::Exchange(format!("no answer in {} ms", patience.as_millis()));
        tokio::time::timeout(patience, ask).await.map_err(late)?
    }

    async fn exchange<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Vec<u8>,
    ) -> Result<T, ClientError> {
        let exchange = self.try_exchange(method, path, body);
        let (status, bytes) = tokio::time::timeout(TIMEOUT, exchange).await.map_err(|_| {
            ClientError::Exchange(format!("no answer in {} s", TIMEOUT.as_secs()))
        })??;
        if status.is_success() {
            return Ok(serde_json::from_slice(&bytes)?);
        }
        match serde_json::from_slice::<Refusal>(&bytes) {
            Ok(refusal) => Err(ClientError::Refused(refusal.error)),
            Err(_) => Err(ClientError::Exchange(format!("HTTP status {status}"))),
        }
    }

    async fn try_exchange(
        &self,
        method: Method,
        path: &str,
        body: Vec<u8>,
    ) -> Result<(StatusCode, Bytes), ClientError> {
        let stream = UnixStream::connect(&self.socket)
            .await
            .map_err(|source| ClientError::Connect { socket: self.socket.clone(), source })?;
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        let driver = tokio::spawn(connection);
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::HOST, "ctlmgr")
            .header(header::CONTENT_TYPE, "application/json")
            .body(Full::new(Bytes::from(body)))
            .map_err(|e| ClientError::Exchange(e.to_string()))?;
        let response = sender.send_request(request).await?;
        let status = response.status();
        let body = Limited::new(response.into_body(), MAX_ANSWER).collect().await;
        driver.abort();
        let bytes = body.map_err(|e| ClientError::Exchange(e.to_string()))?.to_bytes();
        Ok((status, bytes))
    }
}
