"""On CUDA a source is read before a context is made: one that is not Python costs none."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from kerneldojo.contestant.runner import Runner
from kerneldojo.contestant.source import as_bytes, parse
from kerneldojo.contestant.wire import Channel, ChannelClosed, channel_pair

RUNNER = """
import sys
from pathlib import Path
from kerneldojo.contestant.serving import main
main("cuda", int(sys.argv[1]), [], Path(sys.argv[2]), "cuda:0")  # Without an arena, nothing can be opened.
"""


def start(scratch: Path) -> tuple[Channel, subprocess.Popen[bytes]]:
    channel, theirs = channel_pair()
    scratch.mkdir()
    process = subprocess.Popen(
        [sys.executable, "-c", RUNNER, str(theirs.fileno()), str(scratch)],
        pass_fds=[theirs.fileno()],
        stderr=subprocess.PIPE,
    )
    theirs.close()
    return channel, process


def test_nothing_is_opened_for_a_source_that_is_not_python(tmp_path: Path) -> None:
    bad, its_process = start(tmp_path / "bad")
    good, other_process = start(tmp_path / "good")
    bad.send({"op": "parse", "number": 1, "source": "class ModelNew(:\n", "entry_point": "ModelNew"})
    good.send({"op": "parse", "number": 1, "source": "raise RuntimeError('it ran')\n", "entry_point": "ModelNew"})
    answer = bad.receive(120)
    assert answer["number"] == 1
    assert (answer["failure"]["kind"], answer["failure"]["line"]) == ("compile_error", 1)
    assert answer["failure"]["text"].startswith("SyntaxError")
    assert its_process.communicate()[1] == b""
    assert its_process.returncode == 0
    assert "failure" not in good.receive(120)
    with pytest.raises(ChannelClosed):
        good.receive(120)
    other_process.communicate()
    assert other_process.returncode != 0, "it went on to open its device, and had none"
    bad.close()
    good.close()


@pytest.mark.parametrize(
    "source",
    [
        "class ModelNew(:\n",
        "x = 1\nreturn x\n",
        "x = '\0'\n",
        "x = '\ud800'\n",
        "# -*- coding: nonsense -*-\n",
        "# -*- coding: latin-1 -*-\nx = 'é'\n",
        "\t\tx = 1\n y = 2\n",
        "(" * 300,
        "-" * 100_000 + "1",
        "from __future__ import nothing\n",
        "import torch\nclass ModelNew(torch.nn.Module): pass\n",
    ],
)
def test_reading_says_what_importing_would(source: str, tmp_path: Path) -> None:
    from kerneldojo.contestant.arena import HostArena
    from kerneldojo.contestant.host_platform import HostPlatform

    arena = HostArena.create(1 << 16)
    command = {"op": "load", "number": 3, "source": source, "entry_point": "ModelNew"}
    read = parse(command, str(tmp_path / "candidate.py"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path))
        patch.delitem(sys.modules, "candidate", raising=False)
        imported = Runner(HostPlatform([arena.fd]), tmp_path).answer(command)
    assert (tmp_path / "candidate.py").read_bytes() == as_bytes(source)
    assert read.get("failure") == imported.get("failure") or "defines no class" in imported["failure"]["text"]
    arena.close()
