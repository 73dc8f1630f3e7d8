// Stands in for ATen/DeviceGuard.h while a candidate is built. That header declares device_of for three kinds of
// arguments; the third, a list of tensors, needs half of what a compiler would read for a tensor's factory, and nobody
// has a use for it. All generated headers of operations include this one.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/DeviceGuard.h>

#include <optional>

namespace at {

inline std::optional<Device> device_of(const Tensor& tensor) {
  return tensor.defined() ? std::optional<Device>(tensor.device()) : std::nullopt;
}

inline std::optional<Device> device_of(const std::optional<Tensor>& tensor) {
  return tensor ? device_of(*tensor) : std::nullopt;
}

}  // namespace at
