/* What a program that is deployed to a bareverbs DPU sees. See docs/offload.md.
 *
 * One function, called once a step: `unsigned long step(struct bareverbs_context *context)`. Build it with
 *
 *     clang -target bpf -mcpu=v3 -O2 -ffreestanding -c NAME.c -o NAME.o
 */
#ifndef BAREVERBS_H
#define BAREVERBS_H

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

/* What happened. */
enum { EVENT_START, EVENT_FETCHED, EVENT_PAYLOAD, EVENT_WRITTEN, EVENT_COMPARED };

/* What the program wants next: the value that it returns. */
enum {
	DONE,          /* the end, with `status` */
	FETCH,         /* read `length` bytes at `offset` of the region */
	REFETCH,       /* the same, because what was read cannot be trusted; `status` if no retry is left */
	EMIT,          /* answer with `length` bytes at `offset` of the window */
	REPLY,         /* answer with `length` bytes at `offset` of the state */
	AWAIT_PAYLOAD, /* hand over the payload of the request */
	WRITE,         /* write `length` bytes of the state, from its byte `from` on, at `offset` of the region */
	COMPARE_AND_SWAP, /* put `desired` in the place of the word at `offset` of the region if it is `expected` */
};

enum {
	STATUS_OK = 0,
	STATUS_NOT_FOUND = 1,
	STATUS_BAD_PARAMETERS = 3,
	STATUS_OUT_OF_BOUNDS = 4,
	STATUS_INCONSISTENT = 8,
	STATUS_BUSY = 9,
	STATUS_READ_ONLY = 19,
	STATUS_NO_ATOMICS = 20,
};

struct bareverbs_context {
	const u8 *parameters;
	u8 *state;        /* 160 bytes, zero at the start, kept from step to step */
	const u8 *window; /* what was read last, or the payload */
	u32 parameters_length;
	u32 window_length;
	u64 window_offset; /* where the window lies in the region */
	u32 event;
	u32 step;
	/* What the program says besides the verb: */
	u64 offset;
	u64 version;
	u32 length;
	u32 status;
	u64 found; /* EVENT_COMPARED: the word that was there; it was swapped if it is the expected one */
	u64 expected;
	u64 desired;
	u32 from;
	u32 reserved;
};

/* Helpers. Each takes one unit of fuel for 16 bytes. */
static u64 (*const crc32c)(const void *bytes, u64 length) = (void *)1;
static u64 (*const crc64)(const void *bytes, u64 length) = (void *)2;
static u64 (*const key_eq)(const void *one, const void *other, u64 length) = (void *)3;

static inline u16 be16(const u8 *at) { return __builtin_bswap16(*(const u16 *)at); }
static inline u32 be32(const u8 *at) { return __builtin_bswap32(*(const u32 *)at); }
static inline u64 be64(const u8 *at) { return __builtin_bswap64(*(const u64 *)at); }

static inline u64 done(struct bareverbs_context *context, u32 status)
{
	context->status = status;
	return DONE;
}

static inline u64 fetch(struct bareverbs_context *context, u64 offset, u32 length)
{
	context->offset = offset;
	context->length = length;
	return FETCH;
}

/* Writes bytes of the state. The region has to be granted for writing. */
static inline u64 write_state(struct bareverbs_context *context, u64 offset, u32 from, u32 length)
{
	context->offset = offset;
	context->from = from;
	context->length = length;
	return WRITE;
}

/* The word is big-endian in memory, and its address a multiple of 8; the numbers here are plain. A queue of DMA work requests
 * has no such request: the program then ends with the status "no atomics". */
static inline u64 compare_and_swap(struct bareverbs_context *context, u64 offset, u64 expected, u64 desired)
{
	context->offset = offset;
	context->expected = expected;
	context->desired = desired;
	return COMPARE_AND_SWAP;
}

#endif
