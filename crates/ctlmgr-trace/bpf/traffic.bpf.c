/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
 *
 * What each cgroup sends to whom: bytes of IP packets by the cgroup of the socket and the address of the
 * peer. Attached where packets leave a socket, so both directions of a conversation are seen, each at
 * its sender. Every packet goes on its way, whatever happens here. */
#include "kernel.h"

#define GOES_ON 1
#define IPV4_PEER 16
#define IPV6_PEER 24

/* The kernel's view for programs of this type begins so. */
struct __sk_buff {
	__u32 len;
};

struct pair {
	__u64 cgroup;
	/* IPv4 as mapped into IPv6. */
	__u8 peer[16];
};

struct count {
	__u64 bytes;
	__u64 packets;
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, struct pair);
	__type(value, struct count);
} sent SEC(".maps");

SEC("cgroup_skb/egress")
int leaves(struct __sk_buff *skb)
{
	struct pair pair = {};
	struct count one = { .packets = 1 }, *count;
	__u8 version = 0;
	long failed;

	if (bpf_skb_load_bytes(skb, 0, &version, 1))
		return GOES_ON;
	if (version >> 4 == 4) {
		pair.peer[10] = pair.peer[11] = 0xff;
		failed = bpf_skb_load_bytes(skb, IPV4_PEER, &pair.peer[12], 4);
		/* What stays within one host name space needs no cache of another. */
		if (failed || pair.peer[12] == 127)
			return GOES_ON;
	} else {
		failed = bpf_skb_load_bytes(skb, IPV6_PEER, pair.peer, sizeof(pair.peer));
		if (failed)
			return GOES_ON;
	}
	pair.cgroup = bpf_skb_cgroup_id(skb);
	one.bytes = skb->len;
	count = bpf_map_lookup_elem(&sent, &pair);
	if (count) {
		__sync_fetch_and_add(&count->bytes, one.bytes);
		__sync_fetch_and_add(&count->packets, 1);
	} else {
		bpf_map_update_elem(&sent, &pair, &one, BPF_NOEXIST);
	}
	return GOES_ON;
}

char may_use[] SEC("license") = "Dual MIT/GPL";
