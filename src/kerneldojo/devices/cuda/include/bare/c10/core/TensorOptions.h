// Stands in for c10/core/TensorOptions.h: see ScalarType.h beside this. What is in one only torch's own code looks at.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/ScalarTypeToTypeMeta.h>
#include <c10/macros/Export.h>

#include <cstdint>
#include <optional>
#include <type_traits>
#include <utility>

namespace c10 {

struct C10_API TensorOptions {
  TensorOptions();
  TensorOptions(Layout layout);
  TensorOptions(caffe2::TypeMeta dtype);
  TensorOptions(ScalarType dtype);
  TensorOptions(MemoryFormat memory_format);
  template <typename T, typename = std::enable_if_t<std::is_same_v<std::decay_t<T>, Device>>>
  TensorOptions(T&& device) : TensorOptions(TensorOptions().device(std::optional<Device>(device))) {}
  template <typename... Args, typename = std::enable_if_t<std::is_constructible_v<Device, Args&&...>>>
  TensorOptions(Args&&... args) : TensorOptions(Device(std::forward<Args>(args)...)) {}

  [[nodiscard]] TensorOptions device(std::optional<Device> device) const noexcept;
  template <typename... Args>
  [[nodiscard]] TensorOptions device(Args&&... args) const noexcept {
    return device(std::optional<Device>(std::in_place, std::forward<Args>(args)...));
  }
  [[nodiscard]] TensorOptions dtype(std::optional<caffe2::TypeMeta> dtype) const noexcept;
  [[nodiscard]] TensorOptions dtype(std::optional<ScalarType> dtype) const noexcept;
  [[nodiscard]] TensorOptions layout(std::optional<Layout> layout) const noexcept;
  [[nodiscard]] TensorOptions requires_grad(std::optional<bool> requires_grad) const noexcept;
  [[nodiscard]] TensorOptions pinned_memory(std::optional<bool> pinned_memory) const noexcept;
  [[nodiscard]] TensorOptions memory_format(std::optional<MemoryFormat> memory_format) const noexcept;

  Device device() const noexcept;
  caffe2::TypeMeta dtype() const noexcept;
  Layout layout() const noexcept;
  bool requires_grad() const noexcept;

 private:
  uint64_t torchs_own_;
};

TensorOptions dtype(caffe2::TypeMeta dtype);
TensorOptions dtype(ScalarType dtype);
TensorOptions layout(Layout layout);
TensorOptions device(Device device);
TensorOptions requires_grad(bool requires_grad = true);

}  // namespace c10
