"""The brief headers: a tensor that is declared and no more, for the CUDA half of candidates' extensions.

nvcc reads a source three times, and can keep nothing of what it has read. Half of its time goes to what torch's tensor
is made of, which no launch of a kernel needs to know. So there is a tensor in `include/brief` that has torch's name,
size and members but none of their bodies. The bodies are compiled once, by the judge, from torch's own headers, into an
object that is linked to each extension; the linker keeps of it what is used.

Which members and functions there are is said here by name alone. Their declarations, defaults included, are taken from
the headers of the torch that is installed, all overloads of a name or none: so a call means what it means with torch's
own headers, or does not compile. Operators are all there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kerneldojo.devices.cuda import bare

METHODS = (
    *("bmm", "clone", "copy_", "detach", "expand", "expand_as", "fill_", "flatten", "item", "matmul", "mm", "narrow"),
    *("permute", "repeat", "reshape", "select", "squeeze", "t", "to", "transpose", "unsqueeze", "view", "view_as"),
    "zero_",
)
"""Members of `at::Tensor` that torch generates. Those that it writes by hand are in `include/brief` itself."""

FUNCTIONS = (
    *("bmm", "empty", "empty_like", "empty_strided", "full", "full_like", "linear", "matmul", "mm", "ones"),
    *("ones_like", "relu", "sigmoid", "tanh", "zeros", "zeros_like"),
)
"""Functions in namespace `at`."""

BARE_PART = "bare"
"""Folder within that of the generated headers: those for the `bare` ones."""

SIGNS = ("+", "-", "*", "/", "%", "&", "|", "^", "<", "<=", ">", ">=", "==", "!=")
"""Operators of two operands that torch has. Those of one operand are in `include/brief` itself."""

_UNKNOWN = re.compile(r"SymInt|Dimname|Generator|TensorList|Storage|Stream|c10::List")
"""What the brief headers have no word for. No argument that they have a word for could be taken for one of these."""

_INCLUDES = """#define AT_PER_OPERATOR_HEADERS
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
"""

_BY_HAND = """
namespace dojo {

using namespace at;

static_assert(sizeof(at::Tensor) == sizeof(void*) && sizeof(at::TensorBase) == sizeof(void*));
static_assert(sizeof(c10::cuda::CUDAStream) == sizeof(c10::Stream));
static_assert(sizeof(c10::cuda::CUDAGuard) <= 64 && alignof(c10::cuda::CUDAGuard) <= 16);
static_assert(sizeof(c10::cuda::OptionalCUDAGuard) <= 64 && alignof(c10::cuda::OptionalCUDAGuard) <= 16);

// What is called is compiled, for nothing is inlined.
void bases(const at::TensorBase& base, at::TensorBase&& moved) {
  at::TensorBase none, copy(base), taken(std::move(moved));
  none = base;
  taken = std::move(none);
}

void tensors(const at::TensorBase& base, const at::Tensor& tensor, at::Tensor&& moved) {
  at::Tensor none, copy(tensor), taken(std::move(moved)), based(base);
  none = base;
  copy = tensor;
  taken = std::move(based);
  (void)tensor.to(tensor.dtype());
  (void)tensor.to(tensor.device(), tensor.dtype());
}

void guards(c10::Device device, c10::DeviceIndex index) {
  c10::cuda::CUDAGuard on_device(device), on_index(index);
  c10::cuda::OptionalCUDAGuard none, maybe{std::optional<c10::Device>(device)};
  c10::cuda::OptionalCUDAGuard perhaps{std::optional<c10::DeviceIndex>(index)};
}
"""


@dataclass(frozen=True)
class Declaration:
    """One overload, as torch declares it."""

    result: str
    name: str
    parameters: tuple[str, ...]
    """With their names and defaults."""
    of: str = ""
    """For what kind of object it is called, if that is said: ` const`, ` &`, ` &&`."""

    @property
    def types(self) -> list[str]:
        """Of the parameters."""
        return [re.sub(r"\s*\w+$", "", parameter.partition("=")[0].rstrip()) for parameter in self.parameters]

    @property
    def has_scalar(self) -> bool:
        """Whether it takes or returns one, of which the `bare` headers know nothing."""
        return "Scalar " in f"{self} ".replace("ScalarType", "")

    def __str__(self) -> str:
        return f"{self.result} {self.name}({', '.join(self.parameters)}){self.of};"


def methods(text: str) -> list[Declaration]:
    """Those of `METHODS` in the text of ATen/core/TensorBody.h."""
    body = text.partition("\nclass TORCH_API Tensor")[2].partition("\n};")[0]
    pattern = re.compile(r"^  ((?:at|std|::std)::[^()]*?|void|bool) ?\b(\w+)\((.*)\)( const)?;$", re.MULTILINE)
    return [one for one in _declarations(pattern, body) if one.name in METHODS]


def functions(text: str, name: str) -> list[Declaration]:
    """What ATen/ops/NAME.h calls so."""
    pattern = re.compile(r"^inline (at::Tensor|::std::tuple<[^()]*>) (\w+)\((.*)\) \{$()", re.MULTILINE)
    return [one for one in _declarations(pattern, text) if one.name == name]


def operators(text: str) -> list[Declaration]:
    """Those of two operands in the text of ATen/TensorOperators.h, for two tensors, and for one and a scalar."""
    listed = text.partition("#define AT_FORALL_BINARY_OPS(_)")[2].partition("#define")[0]
    kinds = [("Tensor", "Tensor"), ("Tensor", "Scalar"), ("Scalar", "Tensor")]
    return [
        Declaration("Tensor", f"operator{sign}", (f"const {first}& x", f"const {second}& y"))
        for sign in re.findall(r"\b_\(([^\w\s,]+),", listed)
        for first, second in kinds
    ]


def _declarations(pattern: re.Pattern[str], text: str) -> Iterator[Declaration]:
    for result, name, parameters, of in pattern.findall(text):
        if not _UNKNOWN.search(f"{result} {parameters}"):
            yield Declaration(result, name, tuple(_split(parameters)), of)


def _split(parameters: str) -> Iterator[str]:
    """Parameters, parted where a comma is not between brackets."""
    depth, begin = 0, 0
    for position, letter in enumerate(parameters):
        depth += (letter in "<({") - (letter in ">)}")
        if letter == "," and depth == 0:
            yield parameters[begin:position].strip()
            begin = position + 1
    if parameters.strip():
        yield parameters[begin:].strip()


def write(torch_headers: Path, folder: Path) -> Path:
    """Write what the brief headers include, and the source of the object that has the bodies.

    Args:
        torch_headers: of the torch that is installed.
        folder: for the front of the search path, beside `include/brief`; its `BARE_PART` for `include/bare`.

    Returns:
        the source.

    Raises:
        LookupError: this torch has no such member or function: its headers are not of the kind that is known here.
    """
    members = methods((torch_headers / "ATen/core/TensorBody.h").read_text())
    free = [
        one for name in FUNCTIONS for one in functions((torch_headers / "ATen/ops" / f"{name}.h").read_text(), name)
    ]
    binary = operators((torch_headers / "ATen/TensorOperators.h").read_text())
    found = {one.name for one in binary}
    missing = {*METHODS} - {one.name for one in members} | {*FUNCTIONS} - {one.name for one in free}
    missing |= {
        f"operator{sign}" for sign in SIGNS
    } ^ found  # Of one that is not known here nobody has asserted anything.
    if missing:
        raise LookupError(f"torch's headers do not declare {', '.join(sorted(missing))} as expected")
    kinds, asserted = bare.kinds(torch_headers)
    _declare(members, [*free, *binary], folder)
    with_scalars = {one.name for one in (*members, *free) if one.has_scalar}
    bare_folder = folder / BARE_PART
    bare_folder.mkdir()
    _declare(
        [one for one in members if one.name not in with_scalars],
        [one for one in free if one.name not in with_scalars],
        bare_folder,
    )
    (bare_folder / "dojo_kinds.h").write_text(kinds)
    includes = _INCLUDES + "".join(f"#include <ATen/ops/{name}.h>\n" for name in FUNCTIONS)
    addresses = [*map(_address_of_method, members), *map(_address_of_function, [*free, *binary]), *_by_hand()]
    kept = "".join(f"__attribute__((used)) auto kept_{number} = {one};\n" for number, one in enumerate(addresses))
    source = folder / "brief.cpp"
    source.write_text(f"{includes}{_BY_HAND}\n{asserted}\n{bare.BODIES}\n{kept}\n}}  // namespace dojo\n")
    return source


def _declare(members: list[Declaration], free: list[Declaration], folder: Path) -> None:
    (folder / "dojo_methods.h").write_text("".join(f"  {one}\n" for one in members))
    (folder / "dojo_functions.h").write_text(
        "#pragma once\nnamespace at {\n" + "".join(f"TORCH_API {one}\n" for one in free) + "}  // namespace at\n"
    )


def _address_of_method(one: Declaration, of: str = "at::Tensor") -> str:
    return f"static_cast<{one.result} ({of}::*)({', '.join(one.types)}){one.of}>(&{of}::{one.name})"


def _address_of_function(one: Declaration) -> str:
    return f"static_cast<{one.result} (*)({', '.join(one.types)})>(&at::{one.name})"


def _by_hand() -> Iterator[str]:
    """Addresses of the members that `include/brief` declares itself."""
    text = (Path(__file__).with_name("include") / "brief/ATen/core/Tensor.h").read_text()
    pattern = re.compile(
        r"^  ([\w:]+[\w:<> *&]*?) ?\b(operator\S+?|\w+)\((.*?)\)( const| &&?)?(?: noexcept)?;$", re.MULTILINE
    )
    for name in ("TensorBase", "Tensor"):
        body = text.partition(f"\nclass TORCH_API {name} ")[2].partition("\n};")[0]
        plain = re.sub(r"  template <[^\n]*\n  [^\n]*\n", "", body)
        for one in _declarations(pattern, plain):
            if one.name not in (name, "to"):  # Constructors have no address; `to` is called above.
                yield _address_of_method(one, f"at::{name}")
