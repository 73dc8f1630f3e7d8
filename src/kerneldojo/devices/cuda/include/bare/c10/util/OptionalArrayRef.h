// Stands in for c10/util/OptionalArrayRef.h: see c10/core/ScalarType.h.
#pragma once

#include <c10/util/ArrayRef.h>

namespace c10 {
template <typename T>
class OptionalArrayRef;
}  // namespace c10
