// Numbers as narrow types of floats hold them.
#pragma once

#include "lowering/hlo/element_type.h"

namespace xla_cc::hlo {

// The nearest value that a type of floats of less than 32 bits has, to even between two, by way of
// f32 as constants go; of other types the value itself. `value` is no larger than the type holds,
// or infinite.
double Rounded(ElementType type, double value);

}  // namespace xla_cc::hlo
