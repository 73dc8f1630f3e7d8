// Stands in for c10/core/ScalarTypeToTypeMeta.h: see ScalarType.h beside this.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstddef>
#include <cstdint>

namespace caffe2 {

class TypeMeta final {
 public:
  TypeMeta() noexcept;
  bool isScalarType() const noexcept;
  bool isScalarType(c10::ScalarType scalar_type) const noexcept;
  size_t itemsize() const noexcept;
  c10::ScalarType toScalarType() const;
  static TypeMeta fromScalarType(c10::ScalarType scalar_type);

 private:
  uint16_t index_;
  friend bool operator==(const TypeMeta& left, const TypeMeta& right) noexcept {
    return left.index_ == right.index_;
  }
};

inline bool operator!=(const TypeMeta& left, const TypeMeta& right) noexcept {
  return !(left == right);
}

}  // namespace caffe2

namespace c10 {

inline bool operator==(ScalarType type, caffe2::TypeMeta meta) {
  return meta.isScalarType(type);
}
inline bool operator==(caffe2::TypeMeta meta, ScalarType type) {
  return type == meta;
}
inline bool operator!=(ScalarType type, caffe2::TypeMeta meta) {
  return !(type == meta);
}
inline bool operator!=(caffe2::TypeMeta meta, ScalarType type) {
  return !(type == meta);
}

}  // namespace c10
