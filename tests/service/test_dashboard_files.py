"""The dashboard's files: which are served, to whom, with which headers; no browser needed."""

from __future__ import annotations

import re
from pathlib import Path

from service_app import drive, running

import kerneldojo
from kerneldojo.service.dashboard import FILES, PATHS, WEB
from kerneldojo.service.tokens import parse_tokens

TOKENS = parse_tokens("alice:correct-horse-battery")


def test_the_files_need_no_token_and_the_data_does(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path, tokens=TOKENS, host="0.0.0.0") as r:
            for path, name in FILES.items():
                found = await r.http.get(path)
                assert found.status_code == 200 and found.content == (WEB / name).read_bytes()
                assert found.headers["content-security-policy"].startswith("default-src 'self';")
                assert "unsafe" not in found.headers["content-security-policy"]
                assert found.headers["x-content-type-options"] == "nosniff"
                again = await r.http.get(path, headers={"If-None-Match": found.headers["etag"]})
                assert again.status_code == 304 and again.content == b""
                assert (await r.http.head(path)).status_code == 200
                assert (await r.http.post(path)).status_code == 405
            others = ("/v1/overview", "/v1/events", "/dashboard", "/dashboard/", "/dashboard/../v1/tasks")
            for path in (*others, "/dashboard/%2e%2e/report.html", "/dashboard/..%2f..%2f..%2fetc%2fpasswd"):
                assert (await r.http.get(path)).status_code == 401

    drive(test)


def test_the_page_is_no_part_of_the_api(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path) as r:
            assert not PATHS & set((await r.http.get("/openapi.json")).json()["paths"])
            assert (await r.http.get("/dashboard/nothing.js")).status_code == 404

    drive(test)


def test_the_page_names_no_other_host_and_holds_no_script_of_its_own() -> None:
    package = Path(kerneldojo.__file__).parent
    for name in FILES.values():
        text = (WEB / name).read_text()
        assert (WEB / name).is_relative_to(package)
        assert set(re.findall(r"https?://[^\s\"']+", text)) <= {"http://www.w3.org/2000/svg"}  # a name, not an address
    page = (WEB / FILES["/"]).read_text()
    assert "<style" not in page and not re.search(r"<script(?![^>]*\ssrc=)|\son\w+=|\sstyle=", page)
    used = re.findall(r'(?:src|href)="(dashboard/[^"]+)"', page)
    assert {f"/{path}" for path in used} | {"/"} == PATHS
