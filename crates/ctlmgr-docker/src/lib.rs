//! dockerd's side of ctlmgr: small, with no state but who is held, and never in dockerd's way.
//!
//! dockerd asks the authorization plugin ([`plugin`]) about every request. Everything that is no start
//! is allowed at once; a start is held until ctlmgrd lets it go ([`ask`]). Starts that dockerd makes by
//! itself (restart policies, boot, swarm) pass only the runtime wrapper, `ctlmgr-runc`. Whatever goes
//! wrong with ctlmgrd, the container starts: the plugin is a gate for the disk's sake, not for security.

pub mod ask;
pub mod daemon_json;
pub mod held;
pub mod install;
pub mod plugin;
pub mod uri;
