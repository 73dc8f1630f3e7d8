// What bindings.h only declares: pybind11 at work, as it would be in each extension.
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>

#include <memory>

#define DOJO_BODIES
#include "bindings.h"

namespace dojo {
namespace {

namespace detail = pybind11::detail;
using pybind11::handle;

struct Argument {
  virtual ~Argument() = default;
  virtual bool load(handle source, bool convert) = 0;
  virtual void* value() = 0;
};

template <typename T>
struct ArgumentOf final : Argument {
  bool load(handle source, bool convert) override {
    return caster.load(source, convert);
  }
  void* value() override {
    return &detail::cast_op<T&>(caster);
  }
  detail::make_caster<T> caster;
};

void call(const Function& function, void** arguments, void* result) {
  if (!function.is_wrapped) {
    function.call(function.function, arguments, result);
    return;
  }
  namespace py = pybind11;
  HANDLE_TH_ERRORS
  function.call(function.function, arguments, result);
  END_HANDLE_TH_ERRORS_PYBIND
}

template <typename T>
handle result_of(const Function& function, void** arguments, handle parent) {
  if constexpr (std::is_void_v<T>) {
    call(function, arguments, nullptr);
    return pybind11::none().release();
  } else {
    alignas(T) unsigned char place[sizeof(T)];
    call(function, arguments, place);
    T& value = *std::launder(reinterpret_cast<T*>(place));
    struct End {
      T& value;
      ~End() {
        value.~T();
      }
    } end{value};
    return detail::make_caster<T>::cast(std::move(value), pybind11::return_value_policy::move, parent);
  }
}

struct Converter {
  std::unique_ptr<Argument> (*argument)();
  handle (*result)(const Function&, void**, handle);
  std::string taken, returned;
};

template <typename T>
Converter converter() {
  if constexpr (std::is_void_v<T>) {
    return {nullptr, result_of<void>, "", std::string(detail::make_caster<detail::void_type>::name.text)};
  } else {
    return {
        []() -> std::unique_ptr<Argument> { return std::make_unique<ArgumentOf<T>>(); }, result_of<T>,
        std::string(detail::argument_loader<T>::arg_names.text), std::string(detail::make_caster<T>::name.text)};
  }
}

const Converter& of(Kind kind) {
  static const Converter converters[] = {
      converter<void>(), converter<at::Tensor>(), converter<std::vector<at::Tensor>>(),
      converter<std::optional<at::Tensor>>(), converter<bool>(), converter<int>(), converter<long>(),
      converter<float>(), converter<double>(), converter<std::string>(), converter<std::vector<long>>()};
  return converters[static_cast<int>(kind)];
}

handle dispatched(detail::function_call& call) {
  const Function& function = *static_cast<const Function*>(call.func.data[0]);
  std::vector<std::unique_ptr<Argument>> arguments;
  std::vector<void*> values;
  for (size_t number = 0; number < function.arguments.size(); ++number) {
    arguments.push_back(of(function.arguments[number]).argument());
    if (!arguments.back()->load(call.args[number], call.args_convert[number])) return PYBIND11_TRY_NEXT_OVERLOAD;
    values.push_back(arguments.back()->value());
  }
  return of(function.result).result(function, values.data(), call.parent);
}

class Defined : public pybind11::cpp_function {
 public:
  template <typename... Extra>
  explicit Defined(const Function& function, const Extra&... extra) {
    auto record = make_function_record();
    record->data[0] = new Function(function);
    record->free_data = [](detail::function_record* ended) { delete static_cast<Function*>(ended->data[0]); };
    record->impl = dispatched;
    record->nargs_pos = static_cast<std::uint16_t>(function.arguments.size());
    detail::process_attributes<Extra...>::init(extra..., record.get());
    std::string text = "(";
    for (Kind kind : function.arguments) text += (text.size() > 1 ? ", " : "") + of(kind).taken;
    text += ") -> " + of(function.result).returned;
    static const std::type_info* const none[] = {nullptr};
    initialize_generic(std::move(record), text.c_str(), none, function.arguments.size());
  }
};

struct Definition {
  PyModuleDef definition;
  void (*initialize)(Module&);
};

int filled(PyObject* module) {
  try {
    detail::get_internals();
    Module defined(module);
    reinterpret_cast<Definition*>(PyModule_GetDef(module))->initialize(defined);
    return 0;
  }
  PYBIND11_CATCH_INIT_EXCEPTIONS
  return -1;
}

}  // namespace

void Module::define(PyObject* module, const char* name, const char* doc, const Function& function) {
  auto scope = pybind11::reinterpret_borrow<pybind11::module_>(module);
  pybind11::sibling earlier(pybind11::getattr(scope, name, pybind11::none()));
  if (doc == nullptr) {
    scope.add_object(name, Defined(function, pybind11::name(name), pybind11::scope(scope), earlier), true);
  } else {
    scope.add_object(
        name, Defined(function, pybind11::name(name), pybind11::scope(scope), earlier, pybind11::doc(doc)), true);
  }
}

PyObject* initialized(const char* name, void (*initialize)(Module&)) {
  static PyModuleDef_Slot slots[] = {
      {Py_mod_exec, reinterpret_cast<void*>(filled)},
#ifdef Py_mod_multiple_interpreters
      {Py_mod_multiple_interpreters, Py_MOD_MULTIPLE_INTERPRETERS_NOT_SUPPORTED},
#endif
      {0, nullptr}};
  static Definition made;  // Of the one module that a library has.
  made.definition = {PyModuleDef_HEAD_INIT, name, nullptr, 0, nullptr, slots, nullptr, nullptr, nullptr};
  made.initialize = initialize;
  return PyModuleDef_Init(&made.definition);
}

}  // namespace dojo
