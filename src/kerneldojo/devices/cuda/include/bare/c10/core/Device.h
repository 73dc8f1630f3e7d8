// Stands in for c10/core/Device.h: see ScalarType.h beside this.
#pragma once

#include <c10/macros/Export.h>
#include <dojo_kinds.h>

#include <cstdint>
#include <string>

namespace c10 {

using DeviceIndex = int8_t;

struct C10_API Device final {
  using Type = DeviceType;
  Device(DeviceType type, DeviceIndex index = -1) : type_(type), index_(index) {}
  Device(const std::string& device_string);

  bool operator==(const Device& other) const noexcept {
    return type_ == other.type_ && index_ == other.index_;
  }
  bool operator!=(const Device& other) const noexcept {
    return !(*this == other);
  }
  void set_index(DeviceIndex index) {
    index_ = index;
  }
  DeviceType type() const noexcept {
    return type_;
  }
  DeviceIndex index() const noexcept {
    return index_;
  }
  bool has_index() const noexcept {
    return index_ != -1;
  }
  bool is_cuda() const noexcept {
    return type_ == DeviceType::CUDA;
  }
  bool is_cpu() const noexcept {
    return type_ == DeviceType::CPU;
  }
  std::string str() const;

 private:
  DeviceType type_;
  DeviceIndex index_ = -1;
};

}  // namespace c10
