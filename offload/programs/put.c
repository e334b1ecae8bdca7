/* Writes a record behind its version. Parameters: where the record lies, 8 bytes little-endian; then 1 to 152 bytes of it. The
 * 8 bytes where it lies are its version, little-endian; they are counted up. Answers with the version that was there before:
 * a client that knows another one sees that somebody wrote meanwhile. The region has to be granted for writing. */
#include "bareverbs.h"

#define MOST 152

static inline void copy(u8 *to, const u8 *from, u32 length)
{
	u32 at = 0;

	for (; at + 8 <= length; at += 8)
		*(u64 *)(to + at) = *(const u64 *)(from + at);
	for (; at < length; at++)
		to[at] = from[at];
}

u64 step(struct bareverbs_context *context)
{
	u64 *version = (u64 *)context->state;
	u32 length = context->parameters_length - 8;

	if (context->event == EVENT_START) {
		if (context->parameters_length < 9 || length > MOST)
			return done(context, STATUS_BAD_PARAMETERS);
		return fetch(context, *(const u64 *)context->parameters, 8);
	}
	if (context->event == EVENT_FETCHED) {
		*version = *(const u64 *)context->window + 1;
		copy(context->state + 8, context->parameters + 8, length);
		return write_state(context, *(const u64 *)context->parameters, 0, length + 8);
	}
	*version -= 1;
	context->length = 8;
	return REPLY;
}
