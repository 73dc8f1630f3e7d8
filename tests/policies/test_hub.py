"""A name that no model has costs the hub one question; a hub that is not there is told in one line."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from test_local import words_tokenizer
from tiny_models import tiny

OPEN = """
from kerneldojo.policies import open_policy
try:
    print("opened", open_policy({spec!r}, **{settings!r}).name)
except ValueError as error:
    print(error)
"""


@contextmanager
def hub_without_models() -> Generator[tuple[str, list[str]]]:
    """Its address, and the paths that it was asked for."""
    asked: list[str] = []

    class Refusing(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(404)
            self.send_header("X-Error-Code", "RepoNotFound")
            self.send_header("Content-Length", "0")
            self.end_headers()

        do_HEAD = do_GET

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Refusing)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", asked
    finally:
        server.shutdown()
        server.server_close()


def opened(spec: str, hub: str, home: Path, **settings: str) -> str:
    """What a process says that opens the policy, all of it: output and errors."""
    environment = os.environ | {"HF_ENDPOINT": hub, "HF_HOME": str(home), "HF_HUB_OFFLINE": "0"}
    script = OPEN.format(spec=spec, settings=settings)
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def test_a_model_that_the_hub_has_not_is_asked_for_once(tmp_path: Path) -> None:
    with hub_without_models() as (address, asked):
        told = opened("hf:nope", address, tmp_path)
    assert told == "cannot load hf:nope: there is no folder nope, and the hub has no such model, or not for you\n"
    assert [path for path in asked if "nope" in path] == ["/api/models/nope"]  # beside what the library asks for itself


def test_a_hub_that_is_not_there_is_told_in_one_line(tmp_path: Path) -> None:
    told = opened("hf:owner/nope", "http://127.0.0.1:9", tmp_path)
    assert told.startswith("cannot load hf:owner/nope: there is no folder owner/nope, and the hub cannot be asked: ")
    assert told.count("\n") == 1 and "Retrying" not in told


def test_what_the_cache_has_is_opened_without_the_hub(tmp_path: Path) -> None:
    cache = tmp_path / "hub" / "models--owner--tiny"
    snapshot = cache / "snapshots" / ("0" * 40)
    tiny("llama").save_pretrained(snapshot)
    words_tokenizer().save_pretrained(snapshot)
    (cache / "refs").mkdir()
    (cache / "refs" / "main").write_text("0" * 40)
    told = opened("hf:owner/tiny", "http://127.0.0.1:9", tmp_path, device="cpu")
    assert "opened hf:tiny\n" in told and "Retrying" not in told
