//! Carrying out steps and putting knobs back.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ctlmgr_host::{CgroupDir, Hierarchy, Host, HostError, chain};
use ctlmgr_model::{Bytes, CgroupId, CgroupPath, Cpus, Knob, Outcome, Saved, Undone, Value};

use crate::dip::Dip;
use crate::host_knob;
use crate::properties::{Property, beside, goes_along, property};
use crate::systemd::{UnitError, UnitProperties};

/// Whoever reclaims stops asking for more after this time; the next plan sees how far it came.
pub const RECLAIM_TIME: Duration = Duration::from_secs(2);

/// What is asked of memory.reclaim.
#[derive(Debug, Clone, Copy)]
pub struct Ask {
    /// How much in all.
    pub amount: Bytes,
    /// How much at a time.
    pub chunk: Bytes,
    /// Whether page cache only; of a kernel that cannot tell nothing is taken.
    pub only_cache: bool,
    /// No more is asked for from then on.
    pub deadline: Instant,
}

/// Scope of the system's manager: transient to it, though it never goes.
const MANAGER: &str = "init.scope";
/// Use this far above a memory.high is what the kernel itself lets pass for a moment.
const BESIDE_LIMIT: Bytes = Bytes::mib(4);

/// Writes to one host.
#[derive(Debug, Clone)]
pub struct Actuator<U> {
    host: Host,
    has_reclaim: bool,
    cgroups: Hierarchy,
    units: Arc<U>,
}

/// Whatever can go wrong on the way to a knob.
#[derive(Debug, thiserror::Error)]
enum ActError {
    #[error(transparent)]
    Host(#[from] HostError),
    #[error(transparent)]
    Unit(#[from] UnitError),
    #[error("a worker ended early: {0}")]
    Worker(String),
}

impl<U: UnitProperties> Actuator<U> {
    /// An actuator for `host`, with `units` for what the system manager keeps.
    ///
    /// # Errors
    /// The host has no cgroup v2 hierarchy.
    pub fn new(host: Host, units: U) -> Result<Self, HostError> {
        let cgroups = host.cgroups()?;
        let has_reclaim = cgroups.has_reclaim();
        Ok(Actuator { host, has_reclaim, cgroups, units: Arc::new(units) })
    }

    /// Whether the kernel has memory.reclaim (5.19). Elsewhere memory is reclaimed by a [`Dip`].
    pub fn has_reclaim(&self) -> bool {
        self.has_reclaim
    }

    /// The dip that takes `amount` from a cgroup; `None` if the cgroup is gone, or has a limit
    /// lower than that already. `known` is what the journal has of its memory.high.
    ///
    /// # Errors
    /// A file of the cgroup cannot be read or understood.
    pub fn dip(
        &self,
        (path, id): (&CgroupPath, CgroupId),
        amount: Bytes,
        known: Option<&Saved>,
    ) -> Result<Option<Dip>, HostError> {
        let Some(dir) = self.open(path, id)? else { return Ok(None) };
        Dip::plan(dir, amount, known)
    }

    /// Writes `saved.ours`, and reads it back.
    pub async fn set(&self, saved: &Saved) -> Outcome {
        self.try_set(saved).await.unwrap_or_else(|error| Outcome::Failed(chain(&error)))
    }

    /// Whether use has grown beyond a memory.high since it was decided. The kernel would reclaim the
    /// difference within the write, and the writer may be PID 1: also when another property of the
    /// unit is set, because the manager writes memory.high along with it.
    pub fn is_overtaken(&self, saved: &Saved) -> bool {
        let Some(dir) = self.open(&saved.path, saved.id).ok().flatten() else { return false };
        let file = |name| read_file(&dir, name).ok().flatten();
        let Some(current) = file("memory.current") else { return false };
        match saved.knob {
            Knob::MemoryHigh => saved.ours.amount().is_some_and(|ours| current >= ours),
            // Of a scope the manager writes memory.high along with a list, but a pin is rare and not put off.
            Knob::CgroupFreeze | Knob::LruGen | Knob::CpusetCpus | Knob::CpusetMems => false,
            Knob::MemoryLow | Knob::MemoryMin => {
                let is_over = |high| current > high + BESIDE_LIMIT;
                saved.path.unit().is_some() && file("memory.high").is_some_and(is_over)
            }
        }
    }

    /// Protection takes effect at once, before its keeper is told: the system's manager may be waiting for the very
    /// memory that is kept from it. Seen with classic lists on a machine that shrinks: a plan took 5 s. So does a limit that
    /// is raised: whom it holds back has no part in what keeps the manager. `false` where nothing was done.
    pub fn write_ahead(&self, saved: &Saved) -> bool {
        let Some(dir) = self.open(&saved.path, saved.id).ok().flatten() else { return false };
        self.is_as_decided(saved) && write_ahead(&dir, saved.knob, &saved.ours).unwrap_or(false)
    }

    /// Whether a knob holds what it held when its write was decided.
    pub fn is_as_decided(&self, saved: &Saved) -> bool {
        self.present(saved).is_ok_and(|value| value.as_ref() == Some(&saved.before))
    }

    /// Reclaims from a cgroup.
    pub async fn reclaim(&self, (path, id): (&CgroupPath, CgroupId), ask: Ask) -> Outcome {
        let dir = match self.open(path, id) {
            Ok(Some(dir)) => dir,
            Ok(None) => return Outcome::Vanished,
            Err(error) => return Outcome::Failed(chain(&error)),
        };
        // memory.reclaim works in the writer and may take seconds: never on the loop's threads.
        tokio::task::spawn_blocking(move || reclaim(&dir, ask))
            .await
            .unwrap_or_else(|panic| Err(ActError::Worker(panic.to_string())))
            .unwrap_or_else(|error| Outcome::Failed(chain(&error)))
    }

    /// Puts a knob back, unless somebody else has written it since.
    pub async fn put_back(&self, saved: &Saved) -> Undone {
        self.try_put_back(saved).await.unwrap_or_else(|error| Undone::Failed(chain(&error)))
    }

    /// What a knob holds now; `None` if its cgroup is gone or another one.
    ///
    /// # Errors
    /// The file is there but cannot be read or understood.
    pub fn present(&self, saved: &Saved) -> Result<Option<Value>, HostError> {
        if let Some(file) = saved.knob.host_file() {
            return host_knob::present(&self.host, file);
        }
        let Some(dir) = self.open(&saved.path, saved.id)? else { return Ok(None) };
        read(&dir, saved.knob)
    }

    fn open(&self, path: &CgroupPath, id: CgroupId) -> Result<Option<CgroupDir>, HostError> {
        Ok(self.cgroups.open(path)?.filter(|dir| dir.id() == id))
    }

    async fn try_set(&self, saved: &Saved) -> Result<Outcome, ActError> {
        if let Some(file) = saved.knob.host_file() {
            return self.on_host(file, saved, host_knob::set).await;
        }
        let Some(dir) = self.open(&saved.path, saved.id)? else { return Ok(Outcome::Vanished) };
        if !self.write(&dir, saved.knob, &saved.ours).await? {
            return Ok(Outcome::Vanished);
        }
        Ok(match read(&dir, saved.knob)? {
            None => Outcome::Vanished,
            Some(value) if value == saved.ours => Outcome::Done,
            Some(other) => Outcome::Overridden(other),
        })
    }

    /// Writes through the knob's keeper; `false` if the cgroup vanished.
    async fn write(&self, dir: &CgroupDir, knob: Knob, to: &Value) -> Result<bool, ActError> {
        write_ahead(dir, knob, to)?;
        match (dir.cgroup().unit(), property(knob, to)) {
            (Some(unit), Some(target)) => {
                let all = self.properties(dir, unit, target).await?;
                match self.units.set(unit, &all).await {
                    Ok(()) => Ok(true),
                    // The manager does not know the unit (any more), but its cgroup is there.
                    Err(UnitError::NoSuchUnit(_)) => Ok(dir.write(knob.file(), &to.file_text())?),
                    Err(error) => Err(error.into()),
                }
            }
            _ => Ok(dir.write(knob.file(), &to.file_text())?),
        }
    }

    /// The property to set; for a scope also what is there of memory beside it, because the manager writes all of a unit,
    /// whichever property is set, and must change no other.
    async fn properties(
        &self,
        dir: &CgroupDir,
        unit: &str,
        target: Property,
    ) -> Result<Vec<Property>, ActError> {
        // runc writes past the manager; into the manager's own scope nobody does.
        if !unit.ends_with(".scope") || unit == MANAGER {
            return Ok(vec![target]);
        }
        // Asked before files are read. What `docker update` sets meanwhile goes through the manager, so it is in the files only, or
        // in neither: an old value is never taken for one that was written past it.
        let held = self.units.held(unit).await;
        let mut beside = beside(dir, held.as_deref())?;
        beside
            .retain(|(name, _)| *name != target.0 && goes_along(name, target.0, self.has_reclaim));
        Ok([target].into_iter().chain(beside).collect())
    }

    /// Runs `work` on a knob of the host, off the loop: the kernel may have every page in hand.
    async fn on_host<T: Send + 'static>(
        &self,
        file: &'static str,
        saved: &Saved,
        work: fn(&Host, &str, &Saved) -> Result<T, HostError>,
    ) -> Result<T, ActError> {
        let (host, saved) = (self.host.clone(), saved.clone());
        let result = tokio::task::spawn_blocking(move || work(&host, file, &saved)).await;
        Ok(result.map_err(|panic| ActError::Worker(panic.to_string()))??)
    }

    async fn try_put_back(&self, saved: &Saved) -> Result<Undone, ActError> {
        if let Some(file) = saved.knob.host_file() {
            return self.on_host(file, saved, host_knob::put_back).await;
        }
        let found = self.cgroups.open(&saved.path)?;
        // The unit of a slice or service keeps a value while its cgroup goes and comes; a scope
        // and a plain directory are gone with their cgroup.
        let Some(dir) = found.filter(|dir| dir.id() == saved.id || outlives_cgroup(&saved.path))
        else {
            self.forget_in_unit(saved).await?;
            return Ok(Undone::Vanished);
        };
        match read(&dir, saved.knob)? {
            None => return Ok(Undone::Vanished),
            Some(value) if value != saved.prior && !saved.is_ours(&value) => {
                self.leave(&dir, saved, &value).await?;
                return Ok(Undone::LeftToOthers(value));
            }
            // That it inherits again cannot be written, and need not be: our write never came through.
            Some(value) if is_inherited(&value) => return Ok(Undone::PutBack),
            Some(_) => {}
        }
        let prior = self.writable(saved)?;
        if !self.write(&dir, saved.knob, &prior).await? {
            return Ok(Undone::Vanished);
        }
        self.drop_trace(saved);
        Ok(match read(&dir, saved.knob)? {
            Some(value) if value != prior => Undone::LeftToOthers(value),
            _ => Undone::PutBack,
        })
    }

    /// What to write so that the prior value is in force again. The kernel refuses an empty list while
    /// a process is there (ENOSPC), and the manager does not write one: all that could be is the same.
    fn writable(&self, saved: &Saved) -> Result<Value, HostError> {
        if !is_inherited(&saved.prior) {
            return Ok(saved.prior.clone());
        }
        let file = match saved.knob {
            Knob::CpusetMems => "sys/devices/system/node/possible",
            _ => "sys/devices/system/cpu/possible",
        };
        let text = self.host.read(file)?.unwrap_or_default();
        let all = text.parse::<Cpus>().ok().filter(|all| !all.is_empty());
        all.map(Value::from).ok_or_else(|| HostError::malformed(self.host.path(file), &text))
    }

    /// Another writer's value stays. If it went past the system manager, that still holds ours and
    /// would bring it back at the next reload.
    async fn leave(&self, dir: &CgroupDir, saved: &Saved, value: &Value) -> Result<(), ActError> {
        let set = self.set_to(&saved.path, saved.knob);
        if set.is_some_and(|set| saved.is_ours(&set)) {
            self.write(dir, saved.knob, value).await?;
            self.drop_trace(saved);
        }
        Ok(())
    }

    /// Takes our value out of a unit that has no cgroup now, or it would be back with the next.
    async fn forget_in_unit(&self, saved: &Saved) -> Result<(), ActError> {
        let unit = saved.path.unit().filter(|_| outlives_cgroup(&saved.path));
        let (Some(unit), Some(prior)) = (unit, property(saved.knob, &saved.prior)) else {
            return Ok(());
        };
        match self.units.set(unit, &[prior]).await {
            // Masked, broken or gone: a unit that cannot be loaded cannot bring our value back.
            Ok(()) | Err(UnitError::NoSuchUnit(_)) => self.drop_trace(saved),
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    /// Whether the unit has a run-time setting that is somebody's own: it says what was there
    /// before us, not what we last wrote.
    pub fn has_setting(&self, saved: &Saved) -> bool {
        self.set_to(&saved.path, saved.knob).as_ref() == Some(&saved.prior)
    }

    /// What the run-time setting of the unit says, if it has one, as the kernel counts it.
    fn set_to(&self, path: &CgroupPath, knob: Knob) -> Option<Value> {
        let text = std::fs::read_to_string(self.setting(path, knob)?).ok()?;
        let (name, _) = property(knob, &Bytes::ZERO.into())?;
        // Before a list there is a line that empties it.
        let value = text.lines().rev().find_map(|l| l.strip_prefix(name)?.strip_prefix('='))?;
        match value.trim() {
            list if knob.is_list() => Some(list.replace(' ', ",").parse::<Cpus>().ok()?.into()),
            "infinity" => Some(Bytes(u64::MAX).into()),
            number => number.parse().ok().map(|number| Bytes(number).page_floor().into()),
        }
    }

    /// Where the system manager keeps a run-time setting of this property.
    fn setting(&self, path: &CgroupPath, knob: Knob) -> Option<PathBuf> {
        let (name, _) = property(knob, &Bytes::ZERO.into())?;
        let unit = path.unit()?;
        let place = if unit == MANAGER { "transient" } else { "system.control" };
        Some(self.host.path(&format!("run/systemd/{place}/{unit}.d/50-{name}.conf")))
    }

    /// Removes the run-time setting that ours left behind, unless there was one before.
    fn drop_trace(&self, saved: &Saved) {
        let Some(file) = self.setting(&saved.path, saved.knob) else { return };
        if !saved.had_setting {
            // Absent for scopes; a leftover says what is true anyway.
            let _ = std::fs::remove_file(&file);
            let _ = file.parent().map(std::fs::remove_dir);
        }
    }
}

/// Writes protection past its keeper, and a limit that is raised.
fn write_ahead(dir: &CgroupDir, knob: Knob, to: &Value) -> Result<bool, HostError> {
    let is_meant = knob == Knob::MemoryHigh || Knob::PROTECTION.contains(&knob);
    let now = if is_meant { read_file(dir, knob.file())? } else { None };
    let (Some(now), Some(to)) = (now, to.amount()) else { return Ok(false) };
    let is_due = if knob == Knob::MemoryHigh { now < to } else { now != to };
    Ok(is_due && dir.write(knob.file(), &Value::from(to).file_text())?)
}

/// Whether the system manager remembers a value beyond the life of the cgroup.
fn outlives_cgroup(path: &CgroupPath) -> bool {
    path.unit().is_some_and(|unit| !unit.ends_with(".scope"))
}

fn reclaim(dir: &CgroupDir, ask: Ask) -> Result<Outcome, ActError> {
    let mut done = Bytes::ZERO;
    while done < ask.amount && Instant::now() < ask.deadline {
        let next = ask.chunk.min(ask.amount - done);
        // Nothing is swapped at swappiness 0 (kernel: admin-guide/cgroup-v2.rst, memory.reclaim).
        let words = if ask.only_cache { " swappiness=0" } else { "" };
        match dir.write("memory.reclaim", &format!("{}{words}", next.0)) {
            Ok(true) => done = done + next,
            Ok(false) => return Ok(Outcome::Vanished),
            Err(error) if is_partial(&error) || (ask.only_cache && is_unknown(&error)) => break,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(Outcome::Reclaimed(done))
}

/// EINVAL: a kernel that cannot be told to take page cache only.
fn is_unknown(error: &HostError) -> bool {
    matches!(error, HostError::Write { source, .. } if source.kind() == std::io::ErrorKind::InvalidInput)
}

/// EAGAIN: less than asked was there to take. EINTR: we are asked to stop. Neither is a fault.
fn is_partial(error: &HostError) -> bool {
    let HostError::Write { source, .. } = error else { return false };
    matches!(source.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::Interrupted)
}

/// Whether a list says nothing: that of the parent is in force.
fn is_inherited(value: &Value) -> bool {
    value.list().is_some_and(Cpus::is_empty)
}

/// Reads a knob back.
fn read(dir: &CgroupDir, knob: Knob) -> Result<Option<Value>, HostError> {
    if !knob.is_list() {
        return Ok(read_file(dir, knob.file())?.map(Value::from));
    }
    let Some(text) = dir.read(knob.file())? else { return Ok(None) };
    let list = text.parse::<Cpus>();
    list.map(|list| Some(list.into()))
        .map_err(|_| HostError::malformed(dir.file(knob.file()), &text))
}

pub(crate) fn read_file(dir: &CgroupDir, file: &str) -> Result<Option<Bytes>, HostError> {
    let Some(text) = dir.read(file)? else { return Ok(None) };
    match text.trim() {
        "max" => Ok(Some(Bytes(u64::MAX))),
        number => number
            .parse()
            .map(|n| Some(Bytes(n)))
            .map_err(|_| HostError::malformed(dir.file(file), &text)),
    }
}
