"""The bare headers: of torch next to nothing, for CUDA halves that take tensors, make tensors and launch kernels.

That is what most candidates' do, and even of the `brief` headers nearly all is no use to them: types of elements with
their arithmetic, scalars, messages made by streams. So `include/bare` has stand-ins for those headers under the brief
ones. What kinds of elements, devices and layouts are called is taken from the torch that is installed. What is passed
by value (`TensorOptions`, `TypeMeta`, `CUDAStream`) has torch's size and nothing else of it; its bodies, and what puts
a message together, are in the object that the brief headers have. What the judge has written by hand is not believed:
that each size and number is torch's is asserted where that object is compiled, or there is none, and tests build the
same with torch's own headers, to be asked the same.
"""

from __future__ import annotations

import re
from pathlib import Path

_ENUM = re.compile(r"^enum class (\w+) : int8_t \{(.*?)^\};", re.MULTILINE | re.DOTALL)
_CONSTANT = re.compile(r"^constexpr (?:auto|\w+) k\w+ = \w+::\w+;$", re.MULTILINE)
_SCALAR_TYPE = re.compile(r"_\([\w:]+(?:<[\w:]+>)?, (\w+)\)")
_ALL_SCALAR_TYPES = "#define AT_FORALL_SCALAR_TYPES_WITH_COMPLEX_AND_QINTS(_)"

_BY_VALUE = {"TensorOptions": 8, "Device": 2, "IntArrayRef": 16, "cuda::CUDAStream": 16}
"""Bytes of what is passed by value, in namespace c10."""

BODIES = """
static_assert(sizeof(caffe2::TypeMeta) == 2 && std::is_trivially_copyable_v<caffe2::TypeMeta>);

template <typename T>
void keep(const T& value) {
  asm volatile("" : : "r"(&value) : "memory");  // Or the compiler would see that nobody looks at it.
}

void options(Layout layout, caffe2::TypeMeta meta, ScalarType type, MemoryFormat format, Device device) {
  TensorOptions none, with_layout(layout), with_meta(meta), with_type(type), with_format(format);
  keep(none), keep(with_layout), keep(with_meta), keep(with_type), keep(with_format);
  keep(none.device(std::optional<Device>(device))), keep(none.dtype(std::optional<caffe2::TypeMeta>(meta)));
  keep(none.dtype(std::optional<ScalarType>(type))), keep(none.layout(std::optional<Layout>(layout)));
  keep(none.requires_grad(std::optional<bool>(true))), keep(none.pinned_memory(std::optional<bool>(true)));
  keep(none.memory_format(std::optional<MemoryFormat>(format)));
  keep(none.device()), keep(none.dtype()), keep(none.layout()), keep(none.requires_grad());
  keep(c10::dtype(meta)), keep(c10::dtype(type)), keep(c10::layout(layout)), keep(c10::device(device));
  keep(c10::requires_grad(true));
  keep(meta.isScalarType()), keep(meta.isScalarType(type)), keep(meta.itemsize()), keep(meta.toScalarType());
  keep(caffe2::TypeMeta::fromScalarType(type));
}

void streams(c10::cuda::CUDAStream stream) {
  keep(stream.stream()), keep(stream.query()), stream.synchronize();
  c10::cuda::c10_cuda_check_implementation(int32_t(0), "", "", uint32_t(0), true);
}

#define DOJO_WRITES(type)                           \\
  void write(std::string& text, type value) {       \\
    text += ::c10::str(value);                      \\
  }
DOJO_WRITES(const char*)
DOJO_WRITES(const std::string&)
DOJO_WRITES(bool)
DOJO_WRITES(char)
DOJO_WRITES(int)
DOJO_WRITES(unsigned int)
DOJO_WRITES(long)
DOJO_WRITES(unsigned long)
DOJO_WRITES(long long)
DOJO_WRITES(unsigned long long)
DOJO_WRITES(float)
DOJO_WRITES(double)
DOJO_WRITES(const c10::IntArrayRef&)
DOJO_WRITES(const c10::Device&)
"""
"""What `include/bare` only declares, in namespace dojo, where torch's own headers are known."""


def kinds(torch_headers: Path) -> tuple[str, str]:
    """What kinds of elements, devices and layouts there are.

    Returns:
        a header that says so, and assertions that it is right, for where torch's own headers are known.

    Raises:
        LookupError: this torch says it in another way.
    """
    header, asserted = ["#pragma once", "#include <cstdint>", "namespace c10 {"], list[str]()
    for name in ("DeviceType", "Layout", "MemoryFormat"):
        text = (torch_headers / f"torch/headeronly/core/{name}.h").read_text()
        enum = _ENUM.search(text)
        if enum is None or enum[1] != name:
            raise LookupError(f"torch's headers do not declare {name} as expected")
        header += [enum[0], *_CONSTANT.findall(text)]
    text = (torch_headers / "torch/headeronly/core/ScalarType.h").read_text()
    types = _SCALAR_TYPE.findall(text.partition(_ALL_SCALAR_TYPES)[2].partition("\n\n")[0])
    header.append(f"enum class ScalarType : int8_t {{ {', '.join([*types, 'Undefined', 'NumOptions'])} }};")
    header += [f"constexpr ScalarType k{name} = ScalarType::{name};" for name in types]
    asserted += [
        f"static_assert(static_cast<int>(c10::k{name}) == {number} && c10::k{name} == c10::ScalarType::{name});"
        for number, name in enumerate(types)
    ]
    asserted.append(f"static_assert(static_cast<int>(c10::ScalarType::NumOptions) == {len(types) + 1});")
    asserted += [
        f"static_assert(sizeof(c10::{name}) == {size} && std::is_trivially_copyable_v<c10::{name}>);"
        for name, size in _BY_VALUE.items()
    ]
    return "\n".join([*header, "}  // namespace c10", ""]), "\n".join(asserted)
