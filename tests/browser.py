"""A real headless Chromium, driven over its DevTools socket: what it shows, says and asks for."""

from __future__ import annotations

import base64
import itertools
import json
import re
import shutil
import subprocess
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="needs chromium (apt-get install chromium)")


class Browser:
    """One browser process; close it."""

    def __init__(self, folder: Path) -> None:
        from websockets.sync.client import connect

        assert CHROMIUM is not None
        command = [
            CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-extensions",
            "--disable-background-networking", "--no-first-run", "--remote-debugging-port=0",
            f"--user-data-dir={folder}", "about:blank",
        ]  # fmt: skip
        self._process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        assert self._process.stderr is not None
        address = ""
        for line in self._process.stderr:
            if found := re.search(r"DevTools listening on (ws://\S+)", line):
                address = found.group(1)
                break
        if not address:
            raise RuntimeError("chromium did not start")
        self._stack = ExitStack()
        self._socket = self._stack.enter_context(connect(address, max_size=None))
        self._numbers = itertools.count(1)
        self._tabs: dict[str, Tab] = {}

    def tab(self, *, width: int = 1280, height: int = 900, dark: bool = False) -> Tab:
        """A tab of its own storage, as wide as asked."""
        context = self.call("Target.createBrowserContext")["browserContextId"]
        target = self.call("Target.createTarget", url="about:blank", browserContextId=context)["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        tab = self._tabs[session] = Tab(self, session)
        for domain in ("Page", "Runtime", "Network", "Log"):
            tab.call(f"{domain}.enable")
        tab.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        tab.call("Emulation.setEmulatedMedia", features=[scheme])
        return tab

    def call(self, method: str, session: str | None = None, **parameters: Any) -> Any:
        number = next(self._numbers)
        message: dict[str, Any] = {"id": number, "method": method, "params": parameters}
        if session is not None:
            message["sessionId"] = session
        self._socket.send(json.dumps(message))
        while True:
            answer = json.loads(self._socket.recv(timeout=60))
            if answer.get("id") == number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]
            if (tab := self._tabs.get(answer.get("sessionId", ""))) is not None:
                tab.heard(answer["method"], answer["params"])

    def close(self) -> None:
        try:
            self.call("Browser.close")
            self._stack.close()
            self._process.wait(20)
        finally:
            self._process.kill()
            self._process.wait()
            assert self._process.stderr is not None
            self._process.stderr.close()


class Tab:
    """One page: `said` is what its console and its faults said, `asked` the addresses that it asked for."""

    def __init__(self, browser: Browser, session: str) -> None:
        self._browser = browser
        self._session = session
        self.said: list[str] = []
        self.asked: list[str] = []

    def heard(self, event: str, data: dict[str, Any]) -> None:
        if event == "Runtime.consoleAPICalled":
            self.said.append(" ".join(str(one.get("value", one.get("description"))) for one in data["args"]))
        elif event == "Runtime.exceptionThrown":
            details = data["exceptionDetails"]
            self.said.append(details.get("exception", {}).get("description", details["text"]))
        elif event == "Log.entryAdded":
            self.said.append(f"{data['entry']['text']} {data['entry'].get('url', '')}")
        elif event == "Network.requestWillBeSent":
            self.asked.append(data["request"]["url"])

    def call(self, method: str, **parameters: Any) -> Any:
        return self._browser.call(method, self._session, **parameters)

    def open(self, url: str) -> None:
        self.call("Page.navigate", url=url)

    def run(self, script: str) -> Any:
        """Value of an expression in the page."""
        found = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in found:
            raise RuntimeError(found["exceptionDetails"])
        return found["result"].get("value")

    def until(self, script: str, seconds: float = 40.0) -> None:
        """Return as soon as an expression is true in the page."""
        deadline = time.monotonic() + seconds
        while not self._is_true(script):
            if time.monotonic() > deadline:
                raise AssertionError(f"never true: {script}\n{self.said}\n{self.text()}")
            time.sleep(0.1)

    def _is_true(self, script: str) -> bool:
        try:
            return self.run(f"(() => {{ try {{ return Boolean({script}); }} catch {{ return false; }} }})()")
        except RuntimeError:  # the page is being replaced by another
            return False

    def text(self, selector: str = "body") -> str:
        """Text as it is shown, without what is hidden."""
        return self.run(f"document.querySelector({json.dumps(selector)})?.innerText ?? ''")

    def press(self, key: str, code: int) -> None:
        for kind in ("keyDown", "keyUp"):
            typed = {"text": "\r"} if key == "Enter" and kind == "keyDown" else {}
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code, **typed)

    def picture(self, path: Path) -> None:
        """The whole page as a PNG."""
        shot = self.call("Page.captureScreenshot", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(shot["data"]))
