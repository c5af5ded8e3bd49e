//! Who may do what on the socket, by peer credentials.

use axum::extract::connect_info::Connected;
use axum::serve::IncomingStream;
use nix::unistd::{Group, Uid, User};
use tokio::net::UnixListener;

/// Groups that may read and change.
const READERS: &str = "ctlmgr";
const ADMINS: &str = "ctlmgr-admin";

/// Who is on the other end.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Peer {
    uid: Option<u32>,
    gid: Option<u32>,
}

impl Connected<IncomingStream<'_, UnixListener>> for Peer {
    fn connect_info(stream: IncomingStream<'_, UnixListener>) -> Self {
        let credentials = stream.io().peer_cred().ok();
        Peer { uid: credentials.map(|c| c.uid()), gid: credentials.map(|c| c.gid()) }
    }
}

impl Peer {
    /// Root, whoever runs the daemon, and members of either group.
    pub fn may_read(self) -> bool {
        self.may_change() || self.is_in(READERS)
    }

    /// Root, whoever runs the daemon, and members of the admin group.
    pub fn may_change(self) -> bool {
        let is_us = self.uid == Some(Uid::effective().as_raw());
        self.uid == Some(0) || is_us || self.is_in(ADMINS)
    }

    fn is_in(self, group: &str) -> bool {
        let Ok(Some(group)) = Group::from_name(group) else { return false };
        if self.gid == Some(group.gid.as_raw()) {
            return true;
        }
        let user = self.uid.and_then(|uid| User::from_uid(Uid::from_raw(uid)).ok().flatten());
        user.is_some_and(|user| group.mem.contains(&user.name))
    }
}
