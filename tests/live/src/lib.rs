//! What the live tests share: docker, ctlmgr and cgroup files of the guest.
