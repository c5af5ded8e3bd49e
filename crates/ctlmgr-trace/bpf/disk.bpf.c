/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
 *
 * What each cgroup asks of each disk: requests as the device gets them, after readahead, writeback and
 * merging. A request belongs to the cgroup of its first bio, so buffered writes are their owner's even
 * though a kernel thread issues them (where the file system has cgroup writeback). */
#include "kernel.h"

/* Ends of runs that are remembered in each direction: several jobs that each read in sequence are not
 * taken for one that jumps. */
#define STREAMS 16
/* A request that begins this near to the end of a run goes on with it: queues reorder. In sectors. */
#define NEAR 256
/* A run of this span is sequential if hardly anything in it was left out; a random request of 1 MiB that
 * is cut into parts is shorter, and random writes that writeback has sorted leave gaps. In sectors. */
#define LONG_RUN 4096
/* Sizes in powers of two: up to 4 KiB, 8 KiB, ... 1 MiB, and more. */
#define SIZES 10
#define OP_MASK 0xff

struct key {
	__u64 cgroup;
	__u32 major;
	__u32 minor;
};

struct stream {
	__u64 begin;
	__u64 end;
	/* What was moved since it began, in sectors. */
	__u64 moved;
	/* When it went on last, in requests of its side. */
	__u64 used;
	__u64 is_long;
};

struct side {
	__u64 requests;
	__u64 bytes;
	/* In long runs. */
	__u64 sequential;
	/* From allocation to completion, all requests together. */
	__u64 busy_ns;
	__u64 sizes[SIZES];
	struct stream streams[STREAMS];
};

struct shape {
	struct side side[2];
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 2048);
	__type(key, struct key);
	__type(value, struct shape);
} shapes SEC(".maps");

static const struct shape nothing;
extern int LINUX_KERNEL_VERSION __kconfig;

static __always_inline struct gendisk *disk_of(struct request *rq)
{
	struct request___until_5_16 *old = (void *)rq;

	if (bpf_core_field_exists(old->rq_disk))
		return BPF_CORE_READ(old, rq_disk);
	return BPF_CORE_READ(rq, q, disk);
}

/* Where a request is counted, and in which direction; NULL if it moves no data or is nobody's. */
static __always_inline struct side *side_of(struct request *rq, int make)
{
	__u32 op = BPF_CORE_READ(rq, cmd_flags) & OP_MASK;
	struct gendisk *disk = disk_of(rq);
	struct key key = {};
	struct shape *shape;

	if (op > 1 || !disk)
		return 0;
	key.cgroup = BPF_CORE_READ(rq, bio, bi_blkg, blkcg, css.cgroup, kn, id);
	if (!key.cgroup)
		return 0;
	key.major = BPF_CORE_READ(disk, major);
	key.minor = BPF_CORE_READ(disk, first_minor);
	shape = bpf_map_lookup_elem(&shapes, &key);
	if (!shape && make) {
		bpf_map_update_elem(&shapes, &key, &nothing, BPF_NOEXIST);
		shape = bpf_map_lookup_elem(&shapes, &key);
	}
	if (!shape)
		return 0;
	/* Or the compiler reckons with the pointer before it is known to be one, which the verifier refuses. */
	barrier_var(shape);
	return &shape->side[op & 1];
}

static __always_inline void count_size(struct side *side, __u32 bytes)
{
	__u32 slot = 0;

	for (__u32 limit = 4096; slot < SIZES - 1 && bytes > limit; limit <<= 1)
		slot++;
	__sync_fetch_and_add(&side->sizes[slot], 1);
}

/* Goes on with a run; what it adds to the bytes in long runs. */
static __always_inline __u64 go_on(struct stream *stream, __u64 to, __u32 sectors)
{
	__u64 span;

	if (to > stream->end)
		stream->end = to;
	stream->moved += sectors;
	span = stream->end - stream->begin;
	/* Whoever writes a few blocks again and again does not advance. */
	if (span < LONG_RUN)
		return 0;
	if (stream->moved < span - span / 4) {
		stream->begin = stream->end - sectors;
		stream->moved = sectors;
		stream->is_long = 0;
		return 0;
	}
	if (stream->is_long)
		return sectors << 9;
	stream->is_long = 1;
	return (stream->moved < span ? stream->moved : span) << 9;
}

/* Two processors may meet in a stream; what gets lost is a part of one run. */
static __always_inline void follow(struct side *side, __u64 from, __u32 bytes)
{
	__u64 to = from + (bytes >> 9), now = side->requests;
	struct stream *oldest = &side->streams[0];

	for (int i = 0; i < STREAMS; i++) {
		struct stream *stream = &side->streams[i];

		if (stream->used < oldest->used)
			oldest = stream;
		if (!stream->used || from + NEAR < stream->end || from > stream->end + NEAR)
			continue;
		stream->used = now;
		__sync_fetch_and_add(&side->sequential, go_on(stream, to, bytes >> 9));
		return;
	}
	oldest->begin = from;
	oldest->end = to;
	oldest->moved = bytes >> 9;
	oldest->used = now;
	oldest->is_long = 0;
}

/* Until 5.11, and in the stable kernels of 5.10 until .137, the queue was the first argument. */
static __always_inline struct request *first_request(__u64 *ctx)
{
	return (struct request *)(LINUX_KERNEL_VERSION < ((5 << 16) + (10 << 8) + 137) ? ctx[1] : ctx[0]);
}

SEC("tp_btf/block_rq_issue")
int issued(__u64 *ctx)
{
	struct request *rq = first_request(ctx);
	__u32 bytes = BPF_CORE_READ(rq, __data_len);
	struct side *side = bytes ? side_of(rq, 1) : 0;

	if (!side)
		return 0;
	__sync_fetch_and_add(&side->requests, 1);
	__sync_fetch_and_add(&side->bytes, bytes);
	count_size(side, bytes);
	follow(side, BPF_CORE_READ(rq, __sector), bytes);
	return 0;
}

SEC("tp_btf/block_rq_complete")
int completed(__u64 *ctx)
{
	struct request *rq = (struct request *)ctx[0];
	__u64 began = BPF_CORE_READ(rq, start_time_ns);
	__u64 now = bpf_ktime_get_ns();
	struct side *side;

	/* A request may complete in parts: the last one counts. After a flush it completes again, with nothing. */
	if (!(__u32)ctx[2] || (__u32)ctx[2] < BPF_CORE_READ(rq, __data_len) || !began || now < began)
		return 0;
	side = side_of(rq, 0);
	if (side)
		__sync_fetch_and_add(&side->busy_ns, now - began);
	return 0;
}

/* The kernel lends some of its functions only to programs that say so. */
char may_use[] SEC("license") = "Dual MIT/GPL";
