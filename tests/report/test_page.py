"""Reports in a real browser: what they draw, and that what candidates wrote stays text."""

from __future__ import annotations

import html
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from plays import episode, run, turn, verdict

from kerneldojo.report import MetricsConfig, compare, measure, write_comparison, write_report
from kerneldojo.schema import Candidate, Episode, Evaluation, Exploit, KernelTime, Status
from kerneldojo.search import Budget, Spent
from kerneldojo.search.record import SearchRecord

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
in_browser = pytest.mark.skipif(CHROMIUM is None, reason="needs chromium (apt-get install chromium)")
QUICK = MetricsConfig(num_draws=200)

HOSTILE = (
    "</script><script>document.documentElement.dataset.owned='1'</script>"
    "<img src='http://evil.invalid/x.png' onerror=\"document.documentElement.dataset.owned='2'\">"
    "</div><!-- ]]> \u2028 {{script}} {{data}} &lt;b&gt; \u202egnp\x1b[2J\x00"
)


def opened(page: Path, tmp_path: Path, place: str = "") -> tuple[str, str, str]:
    """The page's elements after its scripts ran, what the console said, and all requests of the browser."""
    assert CHROMIUM is not None
    log = tmp_path / "net.json"
    done = subprocess.run(
        [
            CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-extensions",
            "--enable-logging=stderr", "--virtual-time-budget=5000", f"--user-data-dir={tmp_path / 'profile'}",
            f"--log-net-log={log}", "--dump-dom", f"{page.as_uri()}{place}",
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )  # fmt: skip
    console = "\n".join(line for line in done.stderr.splitlines() if "CONSOLE" in line)
    return done.stdout, console, log.read_text() if log.exists() else ""


def report(path: Path, episodes: list[Episode], title: str = "a run") -> Path:
    write_report(path, episodes, measure(episodes, QUICK), title=title, about={"device": "model:h100"})
    return path


def visible(dom: str) -> str:
    body = dom.partition("<main")[2].partition("</main>")[0]
    return html.unescape(re.sub(r"<[^>]*>", "", body))


@in_browser
def test_the_report_draws_its_table_its_curves_and_one_episode(tmp_path: Path) -> None:
    episodes = [episode("kata", 0, ["incorrect", 2.5]), episode("kata", 1, ["exploit", "no_code"])]
    dom, console, _ = opened(report(tmp_path / "report.html", episodes), tmp_path, "#0/0/1")
    assert console == ""
    text = visible(dom)
    assert 'id="headline-eager"' in dom
    assert dom.count("<svg") == 4
    assert "fast at 1.2×" in text
    assert "katas/1/kata, sample 0" in text
    assert "2.50× as fast" in text
    assert "● scale_rows" in text
    assert "Feedback that it reads next" in text
    assert "Use larger blocks" in text
    assert 'class="t-k"' in dom  # highlighted
    assert 'class="add"' in dom  # the difference to the turn before
    assert "modelled" in text
    assert "cost4 answers, 3 verdicts, 2,700 prompt and 1,236 generated tokens" in text
    assert "correct, fast at 0×" in text


@in_browser
def test_the_report_tells_what_is_missing_and_what_searches_found(tmp_path: Path) -> None:
    played = [episode("kata", 0, [2.5]), episode("kata", 1, ["incorrect"]), episode("long", 0, [], finish="budget")]
    refused = episode("flat", 0, ["invalid_problem"])
    search = SearchRecord(
        strategy=HOSTILE,
        policy="teacher",
        problem="kata",
        problem_hash="kata",
        seed=0,
        budget=Budget(calls=None, verdicts=2, tokens=4_000),
        spent=Spent(calls=2, verdicts=2, tokens=3_600),
        speedups=(0.0, 3.25),
        speedup=3.25,
        verdicts=(1, 2),
        tokens=(1_500, 3_600),
    )
    episodes = [*played, refused]
    page = tmp_path / "report.html"
    write_report(page, episodes, measure(episodes, QUICK, against_compile={}, searches=[search]), title="a run")
    dom, console, _ = opened(page, tmp_path, "#1/0/0")
    assert console == ""
    text = visible(dom)
    for words in (
        "1 sample of 1 problem never began: not even the first prompt fits",
        "No turn was played: the first prompt does not fit. It counts as a failure.",
        "Left out for invalid problem: 1 answer to 1 problem; the first, katas/1/flat",
        "The part against torch.compile is not finished: of 1 answer that passed, 0 were judged",
        "2 verdicts, 4,000 tokens",
        "best confirmed speedup3.25×",
        "cost of the searches2 answers, 2 verdicts, 0 prompt and 3,600 generated tokens",
        "callsverdictstokens",
    ):
        assert words in text, words
    assert "data-owned" not in dom.partition("<body")[0]


@in_browser
def test_what_candidates_wrote_stays_text(tmp_path: Path) -> None:
    code = f'"""{HOSTILE}"""\nclass ModelNew: ...\n'
    exploit = Evaluation(
        status=Status.EXPLOIT,
        exploits=(Exploit(name=HOSTILE, evidence=HOSTILE),),
        kernel_ms=0.1,
        kernels=(KernelTime(name=HOSTILE, device_ms=0.1, own=True), KernelTime(name="__proto__", device_ms=0.1)),
        device=HOSTILE,
        notes=(HOSTILE,),
    )
    failed = Evaluation(status=Status.RUNTIME_ERROR, message=HOSTILE)
    turns = [
        turn(0, 1.0, code=code, text=HOSTILE).model_copy(update={"evaluation": exploit, "feedback": HOSTILE}),
        turn(1, 1.0, code=code + HOSTILE, text=HOSTILE + code).model_copy(update={"evaluation": failed}),
        turn(2, 1.0).model_copy(update={"candidate": Candidate(source="\udcff" + HOSTILE), "evaluation": verdict(1.5)}),
    ]
    played = episode("kata", 0, [], turns=tuple(turns), policy=HOSTILE)
    renamed = played.problem.model_copy(update={"name": HOSTILE, "notes": HOSTILE, "source": HOSTILE})
    page = report(tmp_path / "report.html", [played.model_copy(update={"problem": renamed})], title=HOSTILE)
    for place in ("#0/0/0", "#0/0/1", "#0/0/2"):
        dom, console, requests = opened(page, tmp_path, place)
        assert console == ""
        assert "data-owned" not in dom.partition("<body")[0]
        assert "<img" not in re.sub(r"<script.*?</script>", "", dom, flags=re.DOTALL)
        assert "evil.invalid" not in requests
        assert "document.documentElement.dataset.owned" in visible(dom)  # shown, as text
        assert "\u202e" not in visible(dom)


@in_browser
def test_the_policy_of_the_page_stops_what_its_escapes_would_let_through(tmp_path: Path) -> None:
    """The second wall alone: a script and an image put into a finished page neither run nor load."""
    page = report(tmp_path / "report.html", [episode("kata", 0, [2.0])])
    page.write_text(page.read_text().replace('<main id="page">', f'{HOSTILE.partition("</div>")[0]}<main id="page">'))
    dom, console, requests = opened(page, tmp_path)
    assert "data-owned" not in dom.partition("<body")[0]
    assert "Content Security Policy" in console
    assert "http://evil.invalid" not in requests
    assert "fast at 1.2×" in visible(dom)


@in_browser
def test_ten_thousand_turns_open(tmp_path: Path) -> None:
    some = run(42, 8, 3)
    many = [
        one.model_copy(update={"problem": one.problem.model_copy(update={"name": f"{one.problem.name}_{copy}"})})
        for copy in range(10)
        for one in some
    ]
    page = report(tmp_path / "report.html", many)
    assert page.stat().st_size < 10e6
    dom, console, _ = opened(page, tmp_path, "#400/7/2")
    assert console == ""
    assert "sample 7" in visible(dom)


@in_browser
@pytest.mark.parametrize("outcomes", [["untimed"], ["failed"], []], ids=["untimed", "failed", "too long"])
def test_a_run_without_figures_is_still_a_page(tmp_path: Path, outcomes: list[str | float]) -> None:
    played = [episode("kata", 0, outcomes, finish="turns" if outcomes else "budget")]
    dom, console, _ = opened(report(tmp_path / "report.html", played), tmp_path, "#0/0/0")
    assert console == ""
    assert "no times were taken" in visible(dom)


@in_browser
def test_a_comparison_draws_both_runs(tmp_path: Path) -> None:
    page = tmp_path / "compare.html"
    write_comparison(page, compare(run(6, 2, 2), run(6, 3, 2, boost=2.0), names=("one", HOSTILE), config=QUICK))
    dom, console, requests = opened(page, tmp_path)
    assert console == ""
    assert 'id="differences"' in dom
    assert "katas/1/kata_5" in visible(dom)
    assert "The runs differ in samples (2 against 3)." in visible(dom)
    assert "evil.invalid" not in requests
    assert "data-owned" not in dom.partition("<body")[0]


def test_a_page_names_no_other_host(tmp_path: Path) -> None:
    text = report(tmp_path / "report.html", [episode("kata", 0, [2.0])]).read_text()
    assert set(re.findall(r"https?://[^\s\"']+", text)) == {"http://www.w3.org/2000/svg"}  # a namespace, not an address
    assert "default-src 'none'" in text
