// Stands in for ATen/core/Tensor.h while the CUDA half of a candidate is built: see torch/types.h. A tensor is one
// pointer, as in torch; what is done with it is done elsewhere.
#pragma once

#include <ATen/core/TensorAccessor.h>
#include <c10/core/Device.h>
#include <c10/core/Layout.h>
#include <c10/core/MemoryFormat.h>
#include <c10/core/Scalar.h>
#include <c10/core/ScalarType.h>
#include <c10/core/ScalarTypeToTypeMeta.h>
#include <c10/core/TensorOptions.h>
#include <c10/util/Exception.h>
#include <c10/util/OptionalArrayRef.h>

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <type_traits>

namespace at {

using namespace c10;
using OptionalIntArrayRef = c10::OptionalArrayRef<int64_t>;

class Tensor;

class TORCH_API TensorBase {
 public:
  TensorBase();
  TensorBase(const TensorBase&);
  TensorBase(TensorBase&&) noexcept;
  ~TensorBase() noexcept;
  TensorBase& operator=(const TensorBase&) &;
  TensorBase& operator=(TensorBase&&) & noexcept;

  int64_t dim() const;
  int64_t ndimension() const;
  int64_t size(int64_t dim) const;
  int64_t stride(int64_t dim) const;
  IntArrayRef sizes() const;
  IntArrayRef strides() const;
  int64_t numel() const;
  size_t nbytes() const;
  size_t itemsize() const;
  int64_t element_size() const;
  int64_t storage_offset() const;
  bool defined() const;
  bool is_same(const TensorBase& other) const noexcept;
  bool is_contiguous(MemoryFormat memory_format = MemoryFormat::Contiguous) const;
  bool is_non_overlapping_and_dense() const;
  MemoryFormat suggest_memory_format(bool channels_last_strides_exact_match = false) const;
  bool is_complex() const;
  bool is_floating_point() const;
  bool is_signed() const;
  bool is_cpu() const;
  bool is_cuda() const;
  bool is_sparse() const;
  ScalarType scalar_type() const;
  caffe2::TypeMeta dtype() const;
  Layout layout() const;
  Device device() const;
  DeviceIndex get_device() const;
  TensorOptions options() const;

  const void* const_data_ptr() const;
  void* mutable_data_ptr() const;
  void* data_ptr() const;
  template <typename T>
  const T* const_data_ptr() const;
  template <typename T>
  T* mutable_data_ptr() const;
  template <typename T>
  T* data_ptr() const;

#ifndef DOJO_BARE
  template <typename T, size_t N>
  TensorAccessor<T, N> accessor() const& {
    return {pointer_of<T, N>(), sizes().data(), strides().data()};
  }
  template <typename T, size_t N>
  TensorAccessor<T, N> accessor() && = delete;

  template <typename T, size_t N, template <typename U> class PtrTraits = DefaultPtrTraits>
  PackedTensorAccessor32<T, N, PtrTraits> packed_accessor32() const& {
    TORCH_CHECK(
        numel() <= static_cast<int64_t>(std::numeric_limits<int32_t>::max()),
        "numel needs to be smaller than int32_t max; otherwise, please use packed_accessor64");
    return {pointer_of<T, N>(), sizes().data(), strides().data()};
  }
  template <typename T, size_t N, template <typename U> class PtrTraits = DefaultPtrTraits>
  PackedTensorAccessor32<T, N, PtrTraits> packed_accessor32() && = delete;

  template <typename T, size_t N, template <typename U> class PtrTraits = DefaultPtrTraits>
  PackedTensorAccessor64<T, N, PtrTraits> packed_accessor64() const& {
    return {pointer_of<T, N>(), sizes().data(), strides().data()};
  }
  template <typename T, size_t N, template <typename U> class PtrTraits = DefaultPtrTraits>
  PackedTensorAccessor64<T, N, PtrTraits> packed_accessor64() && = delete;
#endif

 private:
#ifndef DOJO_BARE
  template <typename T, size_t N>
  T* pointer_of() const {
    static_assert(N > 0, "accessor is used for indexing tensor, for scalars use *data_ptr<T>()");
    TORCH_CHECK(dim() == N, "TensorAccessor expected ", N, " dims but tensor has ", dim());
    if constexpr (std::is_const_v<T>) {
      return const_data_ptr<T>();
    } else {
      return mutable_data_ptr<T>();
    }
  }
#endif

  void* impl_;
};

class TORCH_API Tensor : public TensorBase {
 public:
  Tensor();
  Tensor(const Tensor& tensor);
  Tensor(Tensor&& tensor) noexcept;
  ~Tensor() noexcept;
  explicit Tensor(const TensorBase& base);
  Tensor& operator=(const TensorBase& x) & noexcept;
  Tensor& operator=(const Tensor& x) & noexcept;
  Tensor& operator=(Tensor&& x) & noexcept;
#ifndef DOJO_BARE
  Tensor& operator=(const Scalar& v) &&;
  Tensor& operator=(const Tensor& rhs) &&;
  Tensor& operator=(Tensor&& rhs) &&;

  Tensor operator~() const;
  Tensor operator-() const;
  Tensor& operator+=(const Tensor& other);
  Tensor& operator+=(const Scalar& other);
  Tensor& operator-=(const Tensor& other);
  Tensor& operator-=(const Scalar& other);
  Tensor& operator*=(const Tensor& other);
  Tensor& operator*=(const Scalar& other);
  Tensor& operator/=(const Tensor& other);
  Tensor& operator/=(const Scalar& other);
  Tensor& operator&=(const Tensor& other);
  Tensor& operator|=(const Tensor& other);
  Tensor& operator^=(const Tensor& other);
  Tensor operator[](const Scalar& index) const;
  Tensor operator[](const Tensor& index) const;
  Tensor operator[](int64_t index) const;
#endif

  using TensorBase::size;
  using TensorBase::stride;
  Tensor contiguous(MemoryFormat memory_format = MemoryFormat::Contiguous) const;
  Tensor cpu() const;
  Tensor cuda() const;
  template <typename T>
  T* data() const {
    return data_ptr<T>();
  }
  template <typename T>
  T item() const;

  Tensor to(caffe2::TypeMeta type_meta, bool non_blocking = false, bool copy = false) const;
  Tensor to(Device device, caffe2::TypeMeta type_meta, bool non_blocking = false, bool copy = false) const;
#include <dojo_methods.h>
};

inline std::optional<Device> device_of(const Tensor& tensor) {
  return tensor.defined() ? std::optional<Device>(tensor.device()) : std::nullopt;
}

inline std::optional<Device> device_of(const std::optional<Tensor>& tensor) {
  return tensor ? device_of(*tensor) : std::nullopt;
}

}  // namespace at
