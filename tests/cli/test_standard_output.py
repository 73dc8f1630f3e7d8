from __future__ import annotations

import json
import subprocess
import sys

from evaluations import HOSTILE, hostile

NOISY = """
import os, subprocess, sys
from kerneldojo.cli.streams import own_standard_output
with own_standard_output() as output:
    print("python noise")
    os.write(1, b"descriptor noise\\n")
    subprocess.run([sys.executable, "-c", "print('child noise')"], check=True)
    output.write("the answer\\n")
print("afterwards")
"""


def test_only_the_command_itself_writes_to_standard_output() -> None:
    done = subprocess.run([sys.executable, "-c", NOISY], capture_output=True, text=True, check=True)
    assert done.stdout == "the answer\nafterwards\n"
    for noise in ("python noise", "descriptor noise", "child noise"):
        assert noise in done.stderr


def test_no_child_inherits_the_real_standard_output() -> None:
    program = (
        "import os, subprocess, sys\n"
        "from kerneldojo.cli.streams import own_standard_output\n"
        'child = \'import os; print([os.readlink(f"/proc/self/fd/{n}") for n in os.listdir("/proc/self/fd")'
        ' if os.path.exists(f"/proc/self/fd/{n}")])\'\n'
        "ours = os.readlink('/proc/self/fd/1')\n"
        "with own_standard_output() as output:\n"
        "    done = subprocess.run([sys.executable, '-c', child], stdout=subprocess.PIPE, close_fds=False, text=True)\n"
        "    output.write(str(ours in done.stdout))\n"
    )
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout == "False"


def test_json_is_one_line_of_ascii_that_any_reader_takes() -> None:
    import io

    from kerneldojo.cli.streams import print_json

    stream = io.StringIO()
    print_json(hostile(), stream)
    text = stream.getvalue()
    assert text.isascii()
    assert text.count("\n") == 1
    assert all(character.isprintable() for character in text.rstrip("\n"))
    loaded = json.loads(text)
    assert loaded["device"] == HOSTILE
    assert loaded["message"] == (HOSTILE[:-1] + "\ufffd") * 3, "no file holds half a character"
    assert loaded["max_error"] is None


def test_an_output_that_takes_nothing_is_told_in_one_line() -> None:
    command = f"{sys.executable} -m kerneldojo.cli problems show softmax_rows"
    for target, code, words in (("/dev/full", 3, "No space left on device"), ("&-", 2, "standard output is closed")):
        done = subprocess.run(["sh", "-c", f"{command} >{target}"], stderr=subprocess.PIPE, text=True, check=False)
        assert (done.returncode, done.stderr.count("\n")) == (code, 1), done.stderr
        assert words in done.stderr
