// What PYBIND11_MODULE and torch::wrap_pybind_function mean where all that a module does is to define functions that
// take and return tensors and numbers: most candidates' C++ half. Each function says here of what kinds its arguments
// and its result are, and how it is called with them; the rest is pybind11's, and is compiled once (bindings.cpp).
// What has another kind does not compile against this, and is then compiled against the slim headers.
#pragma once

#include <cstdint>
#include <new>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

extern "C" typedef struct _object PyObject;

namespace dojo {

enum class Kind { Void, Tensor, Tensors, MaybeTensor, Bool, Int, Long, Float, Double, String, Longs };

template <typename T>
struct KindOf;  // Of nothing else.
#define DOJO_KIND(type, name)                 \
  template <>                                 \
  struct KindOf<type> {                       \
    static constexpr Kind kind = Kind::name;  \
  };
DOJO_KIND(void, Void)
DOJO_KIND(at::Tensor, Tensor)
DOJO_KIND(std::vector<at::Tensor>, Tensors)
DOJO_KIND(std::optional<at::Tensor>, MaybeTensor)
DOJO_KIND(bool, Bool)
DOJO_KIND(int, Int)
DOJO_KIND(long, Long)
DOJO_KIND(float, Float)
DOJO_KIND(double, Double)
DOJO_KIND(std::string, String)
DOJO_KIND(std::vector<long>, Longs)
#undef DOJO_KIND

struct Function {
  void (*function)();
  bool is_wrapped;
  void (*call)(void (*function)(), void** arguments, void* result);
  Kind result;
  std::vector<Kind> arguments;
};

template <typename Result, typename... Arguments, size_t... At>
void call(void (*function)(), [[maybe_unused]] void** arguments, void* result, std::index_sequence<At...>) {
  auto called = reinterpret_cast<Result (*)(Arguments...)>(function);
  if constexpr (std::is_void_v<Result>) {
    called(std::forward<Arguments>(*static_cast<std::decay_t<Arguments>*>(arguments[At]))...);
  } else {
    new (result) std::decay_t<Result>(
        called(std::forward<Arguments>(*static_cast<std::decay_t<Arguments>*>(arguments[At]))...));
  }
}

template <typename Result, typename... Arguments>
void call_all(void (*function)(), void** arguments, void* result) {
  call<Result, Arguments...>(function, arguments, result, std::index_sequence_for<Arguments...>{});
}

template <typename Result, typename... Arguments>
struct Wrapped {
  Result (*function)(Arguments...);
};

class Module {
 public:
  explicit Module(PyObject* module) : module_(module) {}

  template <typename Result, typename... Arguments>
  Module& def(const char* name, Result (*function)(Arguments...), const char* doc = nullptr) {
    return add<Result, Arguments...>(name, function, false, doc);
  }
  template <typename Result, typename... Arguments>
  Module& def(const char* name, Wrapped<Result, Arguments...> wrapped, const char* doc = nullptr) {
    return add<Result, Arguments...>(name, wrapped.function, true, doc);
  }

 private:
  template <typename Result, typename... Arguments>
  Module& add(const char* name, Result (*function)(Arguments...), bool is_wrapped, const char* doc) {
    define(
        module_, name, doc,
        Function{
            reinterpret_cast<void (*)()>(function), is_wrapped, call_all<Result, Arguments...>,
            KindOf<std::decay_t<Result>>::kind, {KindOf<std::decay_t<Arguments>>::kind...}});
    return *this;
  }
  static void define(PyObject* module, const char* name, const char* doc, const Function& function);

  PyObject* module_;
};

PyObject* initialized(const char* name, void (*initialize)(Module&));

}  // namespace dojo

#ifndef DOJO_BODIES
namespace torch {
template <typename Result, typename... Arguments>
dojo::Wrapped<Result, Arguments...> wrap_pybind_function(Result (*function)(Arguments...)) {
  return {function};
}
}  // namespace torch

#define PYBIND11_MODULE(name, variable) DOJO_MODULE(name, variable)
#define DOJO_MODULE(name, variable)                                             \
  static void dojo_initialize_##name(::dojo::Module&);                          \
  extern "C" __attribute__((visibility("default"))) PyObject* PyInit_##name() { \
    return ::dojo::initialized(#name, dojo_initialize_##name);                  \
  }                                                                             \
  void dojo_initialize_##name(::dojo::Module& variable)
#endif
