/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * The parts of the kernel's types that are read; libbpf moves the offsets to those of the running
 * kernel when it loads a program (CO-RE). */
#pragma once

typedef unsigned char __u8;
typedef unsigned short __u16;
typedef unsigned int __u32;
typedef unsigned long long __u64;
typedef signed char __s8;
typedef short __s16;
typedef int __s32;
typedef long long __s64;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u32 __wsum;

#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>

#define READ_BY_OFFSETS __attribute__((preserve_access_index))

enum bpf_map_type { BPF_MAP_TYPE_LRU_HASH = 9 };
enum { BPF_NOEXIST = 1 };

struct kernfs_node {
	__u64 id;
} READ_BY_OFFSETS;

struct cgroup {
	struct kernfs_node *kn;
} READ_BY_OFFSETS;

struct cgroup_subsys_state {
	struct cgroup *cgroup;
} READ_BY_OFFSETS;

struct blkcg {
	struct cgroup_subsys_state css;
} READ_BY_OFFSETS;

struct blkcg_gq {
	struct blkcg *blkcg;
} READ_BY_OFFSETS;

struct bio {
	struct blkcg_gq *bi_blkg;
} READ_BY_OFFSETS;

struct gendisk {
	int major;
	int first_minor;
} READ_BY_OFFSETS;

struct request_queue {
	struct gendisk *disk;
} READ_BY_OFFSETS;

struct request {
	struct request_queue *q;
	struct bio *bio;
	unsigned int cmd_flags;
	unsigned int __data_len;
	__u64 __sector;
	__u64 start_time_ns;
} READ_BY_OFFSETS;

/* Until 5.16 a request knew its disk itself. */
struct request___until_5_16 {
	struct gendisk *rq_disk;
} READ_BY_OFFSETS;
