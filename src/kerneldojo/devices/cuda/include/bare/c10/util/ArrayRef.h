// Stands in for c10/util/ArrayRef.h: see c10/core/ScalarType.h.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <type_traits>
#include <utility>
#include <vector>

namespace c10 {

template <typename T>
class ArrayRef {
 public:
  using iterator = const T*;
  using const_iterator = const T*;
  using size_type = size_t;
  using value_type = T;

  constexpr ArrayRef() : Data(nullptr), Length(0) {}
  constexpr ArrayRef(const T& OneElt) : Data(&OneElt), Length(1) {}
  constexpr ArrayRef(const T* data, size_t length) : Data(data), Length(length) {}
  constexpr ArrayRef(const T* begin, const T* end) : Data(begin), Length(end - begin) {}
  template <
      typename Container,
      typename U = decltype(std::declval<Container>().data()),
      typename = std::enable_if_t<(std::is_same_v<U, T*> || std::is_same_v<U, T const*>)>>
  ArrayRef(const Container& container) : Data(container.data()), Length(container.size()) {}
  template <typename A>
  ArrayRef(const std::vector<T, A>& Vec) : Data(Vec.data()), Length(Vec.size()) {}
  template <size_t N>
  constexpr ArrayRef(const std::array<T, N>& Arr) : Data(Arr.data()), Length(N) {}
  template <size_t N>
  constexpr ArrayRef(const T (&Arr)[N]) : Data(Arr), Length(N) {}
  constexpr ArrayRef(const std::initializer_list<T>& Vec)
      : Data(Vec.begin() == Vec.end() ? static_cast<T*>(nullptr) : Vec.begin()), Length(Vec.size()) {}

  constexpr iterator begin() const {
    return Data;
  }
  constexpr iterator end() const {
    return Data + Length;
  }
  constexpr bool empty() const {
    return Length == 0;
  }
  constexpr const T* data() const {
    return Data;
  }
  constexpr size_t size() const {
    return Length;
  }
  constexpr const T& operator[](size_t Index) const {
    return Data[Index];
  }
  constexpr bool equals(ArrayRef RHS) const {
    if (Length != RHS.Length) return false;
    for (size_t i = 0; i < Length; ++i) {
      if (!(Data[i] == RHS.Data[i])) return false;
    }
    return true;
  }
  std::vector<T> vec() const {
    return std::vector<T>(Data, Data + Length);
  }
  friend bool operator==(ArrayRef a1, ArrayRef a2) {
    return a1.equals(a2);
  }
  friend bool operator!=(ArrayRef a1, ArrayRef a2) {
    return !a1.equals(a2);
  }

 private:
  const T* Data;
  size_type Length;
};

using IntArrayRef = ArrayRef<int64_t>;

}  // namespace c10
