//! Bytes between cgroups and addresses.

use std::fs::File;
use std::net::{IpAddr, Ipv6Addr};
use std::os::fd::AsRawFd;
use std::path::Path;

use ctlmgr_model::{Bytes, CgroupId};
use libbpf_rs::{Link, MapCore, MapFlags, MapHandle, Object};

use crate::load::{TraceError, load, map, refused};

static TRAFFIC: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/traffic.bpf.o"));

/// What cgroups send, counted in the kernel for as long as this lives.
#[derive(Debug)]
pub struct TrafficTrace {
    sent: MapHandle,
    _links: Vec<Link>,
    _object: Object,
}

/// What a cgroup sent to an address since tracing began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sent {
    /// Who, by the cgroup of its socket.
    pub cgroup: CgroupId,
    /// To whom.
    pub peer: IpAddr,
    /// Bytes of IP packets, headers counted; segments that the device cuts share one header.
    pub bytes: Bytes,
    /// Packets, before the device cuts them.
    pub packets: u64,
}

/// Bytes and packets.
const VALUE: usize = 16;

impl TrafficTrace {
    /// Loads the program and attaches it to the cgroup in this directory: it sees the packets of all
    /// sockets there and below, in whatever network name space.
    ///
    /// # Errors
    /// The kernel is too old or does not let this process, or there is no such cgroup.
    pub fn attach(cgroup: &Path) -> Result<TrafficTrace, TraceError> {
        let open = |source| TraceError::Open { path: cgroup.into(), source };
        let directory = File::open(cgroup).map_err(open)?;
        let object = load(TRAFFIC)?;
        let links = object.progs_mut().map(|program| program.attach_cgroup(directory.as_raw_fd()));
        let links = links.collect::<Result<_, _>>().map_err(refused("attach"))?;
        Ok(TrafficTrace { sent: map(&object, "sent", VALUE)?, _links: links, _object: object })
    }

    /// Everything that was counted. Of sixteen thousand pairs the ones that were used the longest ago are
    /// forgotten.
    pub fn sent(&self) -> Vec<Sent> {
        let value = |key: Vec<u8>| {
            let value = self.sent.lookup(&key, MapFlags::ANY).ok()??;
            decode(&key, &value)
        };
        self.sent.keys().filter_map(value).collect()
    }
}

/// Reads `struct pair` and `struct count` of `bpf/traffic.bpf.c`.
fn decode(key: &[u8], value: &[u8]) -> Option<Sent> {
    let (cgroup, peer) = key.split_at_checked(8)?;
    let peer = Ipv6Addr::from(<[u8; 16]>::try_from(peer).ok()?).to_canonical();
    let word = |bytes: &[u8]| Some(u64::from_ne_bytes(bytes.try_into().ok()?));
    let (bytes, packets) = value.split_at_checked(8)?;
    Some(Sent {
        cgroup: CgroupId(word(cgroup)?),
        peer,
        bytes: Bytes(word(bytes)?),
        packets: word(packets)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_map_is_read_as_the_program_writes_it() {
        let mut key = 7_u64.to_ne_bytes().to_vec();
        key.extend([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 172, 17, 0, 2]);
        let value: Vec<u8> = [1500_u64, 3].iter().flat_map(|w| w.to_ne_bytes()).collect();
        let sent = decode(&key, &value).unwrap();
        assert_eq!((sent.cgroup, sent.peer), (CgroupId(7), IpAddr::from([172, 17, 0, 2])));
        assert_eq!((sent.bytes, sent.packets), (Bytes(1500), 3));
        assert_eq!(decode(&key[..20], &value), None);
    }

    #[test]
    fn the_object_has_the_map_and_the_program() {
        let open = libbpf_rs::ObjectBuilder::default().open_memory(TRAFFIC).unwrap();
        let sent = open.maps().filter(|m| m.name() == "sent");
        let sizes: Vec<_> = sent.map(|m| (m.key_size(), m.value_size())).collect();
        assert_eq!(sizes, [(24, 16)]);
        assert_eq!(open.progs().map(|p| p.name().to_owned()).collect::<Vec<_>>(), ["leaves"]);
    }
}
