// That the headers are C++, too, and that their macros fit.
#include "models.h"

static_assert(sizeof(FIRST_INPUT_TYPE) * FIRST_MACRO(INPUT_0_ELEMENTS) == FIRST_MACRO(INPUT_0_BYTES), "");
extern "C" int scaled(FIRST_INPUT_TYPE element)
{
    return static_cast<int>((element - FIRST_MACRO(INPUT_0_ZERO_POINT)) * FIRST_MACRO(INPUT_0_SCALE));
}
