// Stands in for c10/util/Exception.h: see c10/core/ScalarType.h. A message is put together from what torch's own code
// writes of each argument; of what is not listed here it can be none.
#pragma once

#include <c10/macros/Export.h>
#include <c10/macros/Macros.h>

#include <cstdint>
#include <string>

namespace c10 {
template <typename T>
class ArrayRef;
struct Device;
}  // namespace c10

namespace c10::detail {

[[noreturn]] C10_API void torchCheckFail(const char* func, const char* file, uint32_t line, const std::string& msg);
[[noreturn]] C10_API void torchCheckFail(const char* func, const char* file, uint32_t line, const char* msg);

}  // namespace c10::detail

namespace dojo {

template <typename T>
void write(std::string& text, const T& value) = delete;  // Or a pointer would be taken for a bool.
void write(std::string& text, const char* value);
void write(std::string& text, const std::string& value);
void write(std::string& text, bool value);
void write(std::string& text, char value);
void write(std::string& text, int value);
void write(std::string& text, unsigned int value);
void write(std::string& text, long value);
void write(std::string& text, unsigned long value);
void write(std::string& text, long long value);
void write(std::string& text, unsigned long long value);
void write(std::string& text, float value);
void write(std::string& text, double value);
void write(std::string& text, const c10::ArrayRef<int64_t>& value);
void write(std::string& text, const c10::Device& value);

inline const char* message(const char* usual) {
  return usual;
}
inline const char* message(const char* /*usual*/, const char* said) {
  return said;
}
template <typename... Args>
std::string message(const char* /*usual*/, const Args&... args) {
  std::string text;
  (write(text, args), ...);
  return text;
}

}  // namespace dojo

#define TORCH_CHECK(cond, ...)                                   \
  if (!(cond)) {                                                 \
    ::c10::detail::torchCheckFail(                               \
        __func__,                                                \
        __FILE__,                                                \
        static_cast<uint32_t>(__LINE__),                         \
        (::dojo::message(                                        \
            "Expected " #cond                                    \
            " to be true, but got false.  "                      \
            "(Could this error message be improved?  If so, "    \
            "please report an enhancement request to PyTorch.)", \
            ##__VA_ARGS__)));                                    \
  }
