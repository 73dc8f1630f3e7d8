"""Which options of a candidate's are known to be harmless: everything else is taken to be harmful."""

from __future__ import annotations

import json

import pytest

from kerneldojo.devices.cuda import toolchain
from kerneldojo.devices.cuda.flags import Flags


@pytest.mark.parametrize(
    "flags",
    [
        Flags(),
        Flags.of({"extra_cflags": ["-O3 -march=native -std=c++17", ""], "extra_ldflags": ["-lcublas", ""]}),
        Flags.of({"extra_cuda_cflags": ["-O3", "--use_fast_math", "-lineinfo", "-gencode=arch=compute_80,code=sm_80"]}),
        Flags.of({"extra_cuda_cflags": ["-Xptxas -v,-O3", "-Xcompiler=-fPIC,-O3", "-maxrregcount=64", "-std=c++17"]}),
        Flags.of(
            {"extra_cuda_cflags": ["--ptxas-options=-v", "--expt-relaxed-constexpr", "-U__CUDA_NO_HALF_OPERATORS__"]}
        ),
        Flags.of({"extra_cuda_cflags": "-arch sm_90", "with_cuda": True}),
        Flags.of({"extra_cflags": ["-lcublas"], "extra_cuda_cflags": ["-Xcompiler -lm"], "extra_ldflags": "-lcublas"}),
        Flags.of({"extra_cflags": ["-fopenmp"], "extra_ldflags": ["-fopenmp", "-lgomp"]}),
    ],
)
def test_usual_options_are_plain(flags: Flags) -> None:
    assert flags.are_plain
    assert Flags.read(json.loads(json.dumps(flags.as_json()))) == flags


HARMFUL = """
-fplugin=x.so -fplugin-arg-x-y -wrapper -wrapper,sh -B. -B/tmp -specs=x -specs @file @/tmp/file -Wl,-plugin,x.so -Wp,-v
-Wa,-o,x -Xlinker -Xassembler -Xpreprocessor -x -include -imacros -idirafter -isystem -I. -I/tmp -L/tmp -o -ox -c -E -S
-ccbin=x --compiler-bindir -dryrun --dryrun --options-file -optf --keep --keep-dir=/tmp -save-temps -fdump-tree-all
-flto -fuse-ld=gold -fuse-linker-plugin -fprofile-use=x -fprofile-generate --coverage -fmodules-ts -fpreprocessed -MD
-MF /tmp/x x.o main.cpp -T -Tx.ld --sysroot=/tmp -no-canonical-prefixes -lx -l:x.so -l../x -DX=$(id) -DX=`id` -DX=a;b
-DX="y -D -U -run --run -ldir -prebuild -Xnvlink -Xfatbinary -Xarchive --nvlink-options=x -std=$(id) -O3;id -Wno-x;id
-march=$(id) -ffile-prefix-map=a=b -Xcompiler=-fplugin=x -Xptxas=--options-file,x -Xcompiler=-O3,-wrapper,x -idp --ctadp
--use-local-env -cudafe++ -Xcudafe -Xcicc
"""


@pytest.mark.parametrize("word", [*HARMFUL.split(), "-O3\n-fplugin=x", "-O3 -fplugin=x", "-DX=\n", "-O\uff13"])
def test_what_is_not_known_to_be_harmless_is_not_plain(word: str) -> None:
    assert not Flags(cxx=(word,)).are_plain
    assert not Flags(cxx=("-O3", word)).are_plain
    is_used = toolchain.without_architectures([word]) == [word]
    for option in ("-O3", "-Xcompiler", "-Xptxas"):
        assert not Flags(cuda=(option, word)).are_plain or (option == "-O3" and not is_used)
    assert not Flags(link=("-O3", word)).are_plain or not is_used


def test_an_option_without_its_value_is_not_plain() -> None:
    for option in ("-Xptxas", "-Xcompiler", "-maxrregcount", "-std", "-t", "-Xptxas=", "-Xcompiler=", "-Xptxas=-v,"):
        assert not Flags(cuda=(option,)).are_plain
