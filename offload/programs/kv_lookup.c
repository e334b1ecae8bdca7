/* The lookup in the remote hash table, as a program: what offload/src/kernels/kv_lookup.rs does, step by step. */
#include "bareverbs.h"

enum { MOVED = 1, LINE_SIZE = 64, SLOTS = 3, MAX_KEY = 64, MAX_VALUE = 65536, MAX_OBJECT = 65648 };
enum { PARAMETERS_FIXED = 24, OBJECT_HEADER = 24, OBJECT_TAIL = 16 };

struct lookup {
	u64 head; /* the first line of the chain */
	u64 next; /* the line behind the one that is looked at */
	u64 candidates[SLOTS];
	u64 expects_object;
	u32 buckets;
	u32 chain; /* its number */
};

static inline u64 fetch_line(struct bareverbs_context *context, struct lookup *lookup, u64 offset)
{
	if (offset % LINE_SIZE)
		return done(context, STATUS_OUT_OF_BOUNDS);
	lookup->expects_object = 0;
	return fetch(context, offset, LINE_SIZE);
}

/* Begins with the first line of the chain of the hash, among lines that begin at the offset. */
static inline u64 fetch_head(struct bareverbs_context *context, struct lookup *lookup, u64 lines, u32 buckets)
{
	u64 hash = be64(context->parameters);
	u64 low = (hash & 0xffffffff) * buckets;
	u64 bucket = ((hash >> 32) * buckets + (low >> 32)) >> 32;

	lookup->head = lines + bucket * LINE_SIZE;
	lookup->buckets = buckets;
	lookup->chain = buckets + (u32)bucket;
	if (lookup->head < lines)
		return done(context, STATUS_OUT_OF_BOUNDS);
	return fetch_line(context, lookup, lookup->head);
}

/* What was read was being changed: begins again with the first line. */
static inline u64 again(struct bareverbs_context *context, struct lookup *lookup, u32 otherwise)
{
	lookup->expects_object = 0;
	context->status = otherwise;
	fetch(context, lookup->head, LINE_SIZE);
	return REFETCH;
}

static inline u64 advance(struct bareverbs_context *context, struct lookup *lookup)
{
#pragma clang loop unroll(disable)
	for (u64 slot = 0; slot < SLOTS; slot++) {
		u64 candidate = lookup->candidates[slot];
		u32 size = (candidate & 0xffff) * 16;

		if (!candidate)
			continue;
		lookup->candidates[slot] = 0;
		if (size > MAX_OBJECT)
			return done(context, STATUS_OUT_OF_BOUNDS);
		lookup->expects_object = 1;
		return fetch(context, candidate >> 16, size);
	}
	if (!lookup->next)
		return done(context, STATUS_NOT_FOUND);
	return fetch_line(context, lookup, lookup->next);
}

static inline u64 start(struct bareverbs_context *context, struct lookup *lookup)
{
	const u8 *parameters = context->parameters;
	u32 buckets, key;

	if (context->parameters_length < PARAMETERS_FIXED)
		return done(context, STATUS_BAD_PARAMETERS);
	key = context->parameters_length - PARAMETERS_FIXED;
	buckets = be32(parameters + 16);
	if (be16(parameters + 20) != key || be16(parameters + 22) || !key || key > MAX_KEY || !buckets)
		return done(context, STATUS_BAD_PARAMETERS);
	return fetch_head(context, lookup, be64(parameters + 8), buckets);
}

static inline u64 take_line(struct bareverbs_context *context, struct lookup *lookup)
{
	const u8 *line = context->window;
	u64 hash = be64(context->parameters);

	if (be32(line + 56) & 1)
		return again(context, lookup, STATUS_BUSY);
	if ((u32)crc32c(line, 60) != (be32(line + 60) ^ lookup->chain))
		return again(context, lookup, STATUS_INCONSISTENT);
	lookup->next = be64(line + 48);
	if (lookup->next & MOVED) {
		if (lookup->buckets >> 31)
			return done(context, STATUS_OUT_OF_BOUNDS);
		return fetch_head(context, lookup, lookup->next - MOVED, lookup->buckets * 2);
	}
#pragma clang loop unroll(disable)
	for (u64 slot = 0; slot < SLOTS; slot++)
		lookup->candidates[slot] = be64(line + 16 * slot) == hash ? be64(line + 16 * slot + 8) : 0;
	return advance(context, lookup);
}

static inline u64 take_object(struct bareverbs_context *context, struct lookup *lookup)
{
	const u8 *object = context->window, *parameters = context->parameters;
	u64 key, value, tail;

	if (context->window_length < OBJECT_HEADER)
		return again(context, lookup, STATUS_INCONSISTENT);
	key = be16(object + 8);
	value = be32(object + 12);
	if (!key || key > MAX_KEY || value > MAX_VALUE)
		return again(context, lookup, STATUS_INCONSISTENT);
	tail = (OBJECT_HEADER + key + value + 7) & ~7ull;
	if (tail + OBJECT_TAIL > context->window_length || be64(object + tail + 8) != be64(object + 16) ||
	    crc64(object, tail) != be64(object + tail) || be64(object) != be64(parameters))
		return again(context, lookup, STATUS_INCONSISTENT);
	if (key + PARAMETERS_FIXED != context->parameters_length ||
	    !key_eq(object + OBJECT_HEADER, parameters + PARAMETERS_FIXED, key))
		return advance(context, lookup);
	context->offset = OBJECT_HEADER + key;
	context->length = value;
	context->version = be64(object + 16);
	return EMIT;
}

u64 step(struct bareverbs_context *context)
{
	struct lookup *lookup = (struct lookup *)context->state;

	if (context->event == EVENT_START)
		return start(context, lookup);
	if (lookup->expects_object)
		return take_object(context, lookup);
	return take_line(context, lookup);
}
