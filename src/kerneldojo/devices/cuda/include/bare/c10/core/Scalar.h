// Stands in for c10/core/Scalar.h: see ScalarType.h beside this. Whoever makes one is compiled against brief headers.
#pragma once

namespace c10 {
class Scalar;
}  // namespace c10
