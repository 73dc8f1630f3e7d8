"""Who is compiled against the bare headers does what it would do with torch's own, errors and messages included.

Each thing here is built twice, with bare headers and with those that have torch's own inside, and both are asked the
same. No GPU is needed for that: a host compiler has what is the same in both halves.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import weakref
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from extensions import BINDINGS, ON_DEVICE, PLAIN_ON_DEVICE, PLAIN_ON_HOST, loaded, names, precompiled

from kerneldojo.devices.cuda import bare, headers, toolchain
from kerneldojo.devices.cuda.build import _bindings
from kerneldojo.devices.cuda.compiler import Compiler, Unit
from kerneldojo.devices.cuda.flags import Flags
from kerneldojo.devices.cuda.precompiled import Precompiled

needs_nvcc = pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc")

TORCH = Path(torch.__file__).parent
NAMES = re.findall(r"^(?:(?:std|torch)::[\w:<>]+|float|bool|void) (\w+)\(", PLAIN_ON_HOST, re.MULTILINE)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Precompiled:
    """What the judge makes."""
    made = precompiled(tmp_path_factory)
    assert made.has_bindings == (shutil.which("nvcc") is not None)
    return made


def run(command: list[str]) -> None:
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def both(made: Precompiled, tmp_path_factory: pytest.TempPathFactory) -> tuple[ModuleType, ModuleType]:
    """The same extension, called the same, with bare headers and with slim ones.

    What the objects take of CUDA's libraries, which are not everywhere, becomes weak, for it is not called.
    """
    tools, own = toolchain.find((9, 0)), toolchain.find((9, 0)).include_flags()
    binds = [*_bindings(NAMES, handled=True)[1:-1], *(f'm.def("{name}_plain", &{name});' for name in NAMES)]
    binds += ['m.def("told", &half, "an overload");', 'm.def("half", half, "said by hand");', "}"]
    whole = "\n".join([PLAIN_ON_HOST, *binds])  # One file, for the headers are what takes long.
    assert headers.binds_bare(whole)
    found: list[ModuleType] = []
    for kind, includes, bodies in (
        ("bare", [made.bare, headers.BARE, headers.BRIEF], [made.brief_object, made.bindings_object]),
        ("slim", [headers.SLIM], []),
    ):
        folder = tmp_path_factory.mktemp(kind)
        source, objects = folder / "whole.cpp", [folder / "whole.o"]
        source.write_text(whole)
        run(tools.cxx_command("plain", source, objects[0], [*(f"-I{one}" for one in includes), *own]))
        for number, body in enumerate(bodies):
            target = folder / f"body{number}.o"
            run(["objcopy", "-w", "-W", "*c104cuda*", "-W", "cuda*", str(body), str(target)])
            objects.append(target)
        run(tools.link_command(objects, folder / "plain.so", cuda=False, extra=[]))
        found.append(loaded("plain", folder / "plain.so"))
    return found[0], found[1]


def outcome(called: Callable[[], Any]) -> str:
    try:
        return repr(called())
    except Exception as error:
        return f"{type(error).__name__}: {re.sub('whole.cpp:[0-9]+|0x[0-9a-f]+', '', str(error))}"


@needs_nvcc
@pytest.mark.slow
def test_it_is_called_and_answers_as_with_torchs_own(both: tuple[ModuleType, ModuleType]) -> None:
    x = torch.arange(12.0).reshape(3, 4)
    tried: list[tuple[str, tuple[Any, ...]]] = [
        *(("described", (one,)) for one in (x, x.half().t(), x[1:, 2:], torch.zeros(2, 3, dtype=torch.double))),
        *(("made", (x, number)) for number in (3, -1)),
        ("grown", (x, x.t().contiguous(), x)),
        *(("told", (1, 2, 3.5, 4.5, True, "é")), ("told", (3,)), ("told", (1, 2**40, 3, 4, False, "")), ("told", ())),
        *(("told", (2**40, 0, 0, 0, True, "")), ("told", (1.5, 0, 0, 0, True, "")), ("told", (1, 0, "3", 0, True, ""))),
        *(("told", (1, 0, 0, 0, 1, "")), ("told", (torch.tensor(1), 0, 0, 0, True, b"bytes"))),
        *(("half", (3,)), ("half", ("3",)), ("half", (3.5,)), ("half", (None,))),
        *(("maybe", (x,)), ("maybe", (None,)), ("maybe", (1,))),
        *(("many", ([x, x + 1], (1, 0))), ("many", ([x], [3])), ("many", ([x, 1], [0])), ("many", ((x,), []))),
        *(("nothing", (x.clone(),)), ("nothing", (3,)), ("described", (None,)), ("described", (x, x))),
        *(("refused", (x, number)) for number in range(7)),
    ]
    for name, arguments in tried:
        for full in (name, f"{name}_plain"):
            bare_says, slim_says = (outcome(lambda m=m, f=full, a=arguments: getattr(m, f)(*a)) for m in both)
            assert bare_says == slim_says, full
    assert "it is zero" in outcome(lambda: both[0].refused(x, 0))
    assert "of [3, 4] on cpu: 1c2345610.11e-09 text" in outcome(lambda: both[0].refused(x, 2))
    assert outcome(lambda: both[0].refused(x, 4)) == "RuntimeError: beyond"  # By torch's own translation, and here by
    assert outcome(lambda: both[0].refused_plain(x, 4)) == "IndexError: beyond"  # pybind11's.
    assert "incompatible function arguments" in outcome(lambda: both[0].half("3"))


@needs_nvcc
@pytest.mark.slow
def test_modules_and_functions_are_described_as_pybind11_does(both: tuple[ModuleType, ModuleType]) -> None:
    bare_one, slim_one = both
    assert [name for name in dir(bare_one) if not name.startswith("_")] == sorted(
        {*NAMES, *(f"{name}_plain" for name in NAMES)}
    )
    for name in dir(slim_one):
        assert getattr(bare_one, name).__doc__ == getattr(slim_one, name).__doc__, name
    assert "Overloaded function" in bare_one.told.__doc__
    for named in ({"x": 3}, {"arg0": 3}):
        assert outcome(lambda n=named: bare_one.half(**n)) == outcome(lambda n=named: slim_one.half(**n))


@needs_nvcc
@pytest.mark.slow
def test_nothing_is_kept(both: tuple[ModuleType, ModuleType]) -> None:
    for module in both:
        x = torch.zeros(2, 2)
        end = weakref.ref(x)
        given = [x, x, module.many([x, x], [0, 1]), module.grown(x, x, x), module.nothing(x), module.maybe(x)]
        with pytest.raises(RuntimeError):
            module.refused(x, 0)
        with pytest.raises(TypeError):
            module.described(x, x)
        del x, given
        assert end() is None


@needs_nvcc
@pytest.mark.slow
def test_of_what_bare_headers_declare_nothing_is_missing(made: Precompiled, tmp_path: Path) -> None:
    tools = toolchain.find((9, 0))
    source, target = tmp_path / "plain.cu", tmp_path / "plain.o"
    source.write_text(PLAIN_ON_DEVICE + PLAIN_ON_HOST)
    includes = [f"-I{one}" for one in (made.bare, headers.BARE, headers.BRIEF)]
    run(tools.nvcc_command("plain", source, target, [*includes, *tools.include_flags()]))

    there = names(made.brief_object, "--defined-only")
    for library in ("c10", "torch_cpu", "c10_cuda", "torch_cuda"):
        if (path := TORCH / "lib" / f"lib{library}.so").exists():
            there |= names(path, "-D", "--defined-only")
    missing = {name for name in names(target, "-u") - there if re.match(r"_ZNK?(?:2at|3c10|4dojo|6caffe2)", name)}
    if torch.version.cuda is None:  # Libraries that are not here.
        missing -= {name for name in missing if re.match(r"_ZNK?3c104cuda|_ZN2at4cuda", name)}
    assert missing == set()


@needs_nvcc
@pytest.mark.parametrize(
    ("message", "is_known"),
    [("y.sizes()", True), ("y.device()", True), ("n", True), ("y.data_ptr()", False), ("y", False)],
)
def test_what_has_no_text_is_in_no_message(made: Precompiled, tmp_path: Path, message: str, is_known: bool) -> None:
    """A pointer is no bool, as which it would be written if it could."""
    (tmp_path / "work.cpp").write_text(
        f'#include <torch/extension.h>\nvoid f(torch::Tensor y, int n) {{ TORCH_CHECK(n, "at ", {message}); }}\n'
    )
    tools = toolchain.find((9, 0))
    includes = [*(f"-I{one}" for one in (made.bare, headers.BARE, headers.BRIEF)), *tools.include_flags()]
    command = tools.cxx_command("any", tmp_path / "work.cpp", tmp_path / "work.o", [*includes, "-fsyntax-only"])
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert (done.returncode == 0) == is_known, done.stderr
    assert is_known or "deleted function" in done.stderr


@needs_nvcc
@pytest.mark.slow
def test_both_halves_fit_together(made: Precompiled, tried: list[str], tmp_path: Path) -> None:
    """Where there are none, empty libraries stand in for CUDA's: a shared library may lack what they would have."""
    for name in ("c10_cuda", "torch_cuda", "cudart"):
        run(["gcc", "-shared", "-x", "c", "/dev/null", "-o", str(tmp_path / f"lib{name}.so")])
    unit, main = Unit(tmp_path / "cuda.cu", is_cuda=True), Unit(tmp_path / "main.cpp", is_cuda=False)
    unit.path.write_text(PLAIN_ON_DEVICE)
    main.path.write_text(BINDINGS.format(declarations="at::Tensor run(at::Tensor x);", bindings='m.def("run", &run);'))
    tools = replace(toolchain.find((9, 0)), can_link=True)
    flags = Flags.of({"extra_ldflags": [f"-L{tmp_path}"]})
    library = Compiler(tools, made).build("plain", [unit, main], flags, tmp_path)
    assert sorted(tried) == ["bare.cpp", "bare.cu"]
    assert {"PyInit_plain", "_ZN2at6TensorD1Ev"} <= names(library, "--defined-only")


@pytest.mark.parametrize(
    ("source", "suits"),
    [
        (PLAIN_ON_DEVICE, True),
        (PLAIN_ON_HOST, True),
        (ON_DEVICE, False),
        ("torch::Tensor f(torch::Tensor x) { return torch::relu(x); }", True),
        ("torch::Tensor f(torch::Tensor x) { return torch::softmax(x, 0); }", False),
        ("void f(torch::Tensor x) { x.fill_(0); }", False),
        ("float f(torch::Tensor x) { return x.item<float>(); }", False),
        ("void f(torch::Tensor x) { auto a = x.packed_accessor32<float, 2>(); }", False),
        ("void f(at::Half x);", False),
        ('TORCH_WARN("a")', False),
        ('AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "f", [] {})', False),
        ("AT_CUDA_CHECK(cudaGetLastError()); C10_CUDA_CHECK(cudaGetLastError());", True),
        ("#include <ATen/Dispatch.h>", True),
        ("#include <c10/util/Half.h>", False),
        ("at::cuda::getCurrentCUDAStream(); c10::cuda::CUDAGuard g(x.device());", True),
        ("at::cuda::getCurrentCUDABlasHandle();", False),
    ],
)
def test_what_needs_more_says_so(source: str, suits: bool) -> None:
    assert headers.suits_bare(source) == suits


@pytest.mark.parametrize(
    ("source", "suits"),
    [
        (BINDINGS.format(declarations="at::Tensor f(at::Tensor x);", bindings='m.def("f", &f);'), True),
        ("\n".join(["#include <torch/extension.h>", *_bindings(["f"], handled=True)]), True),
        (BINDINGS.format(declarations="", bindings='m.def("f", &f, py::arg("x"));'), False),
        (BINDINGS.format(declarations="", bindings='pybind11::class_<A>(m, "A");'), False),
        ("#include <pybind11/stl.h>\nPYBIND11_MODULE(a, m) {}", False),
    ],
)
def test_who_binds_more_than_functions_says_so(source: str, suits: bool) -> None:
    assert headers.binds_bare(source) == suits


def test_another_torch_is_told_from_a_known_one(tmp_path: Path) -> None:
    folder = tmp_path / "torch/headeronly/core"
    folder.mkdir(parents=True)
    for name in ("DeviceType", "Layout", "MemoryFormat", "ScalarType"):
        (folder / f"{name}.h").write_text("enum Something {};\n")
    with pytest.raises(LookupError, match="do not declare DeviceType"):
        bare.kinds(tmp_path)


@pytest.mark.gpu
@pytest.mark.slow
def test_a_plain_extension_runs(made: Precompiled, tried: list[str], tmp_path: Path) -> None:
    unit, main = Unit(tmp_path / "cuda.cu", is_cuda=True), Unit(tmp_path / "main.cpp", is_cuda=False)
    unit.path.write_text(PLAIN_ON_DEVICE)
    main.path.write_text(BINDINGS.format(declarations="at::Tensor run(at::Tensor x);", bindings='m.def("run", &run);'))
    compiler = Compiler(toolchain.find(torch.cuda.get_device_capability()), made)
    module = loaded("plain", compiler.build("plain", [unit, main], Flags.of({}), tmp_path))
    assert sorted(tried) == ["bare.cpp", "bare.cu"]
    x = torch.randn(1000, device="cuda")
    assert torch.equal(module.run(x), 2 * x)
    with torch.cuda.stream(torch.cuda.Stream()):
        assert torch.equal(module.run(x[:6].reshape(2, 3)), 2 * x[:6].reshape(2, 3))
    with pytest.raises(RuntimeError, match="a contiguous tensor on a GPU, not cpu"):
        module.run(x.cpu())
