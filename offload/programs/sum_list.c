/* Adds up a list whose elements are { value, next }, 8 bytes each, little-endian; next is an offset in the region, zero at
 * the end. Parameters: the offset of the first element, 8 bytes little-endian. Answers with the sum and the number of
 * elements, which no READ of one element can. */
#include "bareverbs.h"

struct sum {
	u64 sum;
	u64 elements;
};

u64 step(struct bareverbs_context *context)
{
	struct sum *sum = (struct sum *)context->state;
	u64 next;

	if (context->event == EVENT_START) {
		if (context->parameters_length != 8)
			return done(context, STATUS_BAD_PARAMETERS);
		next = *(const u64 *)context->parameters;
	} else {
		sum->sum += *(const u64 *)context->window;
		sum->elements++;
		next = *(const u64 *)(context->window + 8);
	}
	if (next)
		return fetch(context, next, 16);
	context->length = sizeof(*sum);
	return REPLY;
}
