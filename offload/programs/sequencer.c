/* Hands out numbers: adds to a counter of the region by compare and swap, and answers with what it was before, 8 bytes
 * big-endian. Two clients never get the same number, whoever else counts besides. Parameters: the offset of the counter and
 * how many numbers are wanted, 8 bytes each, little-endian. The counter is a big-endian word. */
#include "bareverbs.h"

struct parameters {
	u64 counter;
	u64 wanted;
};

u64 step(struct bareverbs_context *context)
{
	const struct parameters *parameters = (const struct parameters *)context->parameters;
	u64 *expected = (u64 *)context->state, now;

	if (context->event == EVENT_START) {
		if (context->parameters_length != sizeof(*parameters))
			return done(context, STATUS_BAD_PARAMETERS);
		return fetch(context, parameters->counter, 8);
	}
	if (context->event == EVENT_FETCHED) {
		now = be64(context->window);
	} else if (context->found == *expected) {
		*(u64 *)context->state = __builtin_bswap64(*expected);
		context->length = 8;
		return REPLY;
	} else {
		/* Somebody else was first. */
		now = context->found;
	}
	*expected = now;
	return compare_and_swap(context, parameters->counter, now, now + parameters->wanted);
}
