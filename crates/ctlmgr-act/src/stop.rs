//! Stopping a container or a unit in good order.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use bollard::Docker;
use bollard::errors::Error;
use bollard::query_parameters::StopContainerOptionsBuilder;
use ctlmgr_host::chain;
use ctlmgr_model::{Millis, Outcome, Stoppable};
use tokio::process::Command;

/// Beyond the grace, dockerd and the system manager may take this long.
const PATIENCE: Duration = Duration::from_secs(30);

/// Asks dockerd behind a socket, or the system manager, to stop what it runs.
#[derive(Debug, Clone)]
pub struct Stopper {
    docker: PathBuf,
}

/// Why something could not be stopped.
#[derive(Debug, thiserror::Error)]
enum StopError {
    #[error("failed to stop container {id}")]
    Docker { id: String, source: Error },
    #[error("failed to stop unit {unit}: {said}")]
    Unit { unit: String, said: String },
    #[error("failed to stop {what:?}: not done within {secs} s")]
    Timeout { what: Stoppable, secs: u64 },
}

impl Stopper {
    /// With dockerd's socket.
    pub fn new(docker: PathBuf) -> Stopper {
        Stopper { docker }
    }

    /// Stops `target`; returns when it has ended.
    pub async fn stop(&self, target: &Stoppable, grace: Millis) -> Outcome {
        let within = Duration::from_millis(grace.0) + PATIENCE;
        let work = async {
            match target {
                Stoppable::Container(id) => self.container(id, grace, within).await,
                Stoppable::Unit(name) => unit(name).await,
            }
        };
        let late = || Err(StopError::Timeout { what: target.clone(), secs: within.as_secs() });
        let result = tokio::time::timeout(within, work).await.unwrap_or_else(|_| late());
        result.unwrap_or_else(|error| Outcome::Failed(chain(&error)))
    }

    async fn container(
        &self,
        id: &str,
        grace: Millis,
        within: Duration,
    ) -> Result<Outcome, StopError> {
        let fail = |source| StopError::Docker { id: id.to_owned(), source };
        let address = self.docker.to_string_lossy();
        let secs = within.as_secs();
        let docker = Docker::connect_with_unix(&address, secs, bollard::API_DEFAULT_VERSION)
            .map_err(fail)?
            .negotiate_version()
            .await
            .map_err(fail)?;
        let grace_secs = i32::try_from(grace.0 / 1000).unwrap_or(i32::MAX);
        let options = StopContainerOptionsBuilder::new().t(grace_secs).build();
        match docker.stop_container(id, Some(options)).await {
            Ok(()) => Ok(Outcome::Done),
            Err(Error::DockerResponseServerError { status_code: 404, .. }) => Ok(Outcome::Vanished),
            Err(source) => Err(fail(source)),
        }
    }
}

/// As `systemctl stop` does; the unit's own `TimeoutStopSec` is its grace.
async fn unit(name: &str) -> Result<Outcome, StopError> {
    let output = Command::new("systemctl")
        .args(["stop", "--", name])
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output()
        .await;
    let said = match output {
        Ok(output) if output.status.success() => return Ok(Outcome::Done),
        Ok(output) => String::from_utf8_lossy(&output.stderr).trim().to_owned(),
        Err(error) => error.to_string(),
    };
    Err(StopError::Unit { unit: name.to_owned(), said })
}
