"""The dashboard in a real browser, looking at a real server."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from dashboard_server import ShownExecutor, served

from browser import Browser, needs_chromium
from kerneldojo.pool.executor import DeviceState
from kerneldojo.schema import Evaluation, Exploit, KernelTime, ProtocolRecord, Roofline, Status, Timing, Unverified
from kerneldojo.schema.evaluation import CAUSE_UNSHOWN
from kerneldojo.service import native
from kerneldojo.service.tokens import parse_tokens

SECRET = "correct-horse-battery"
HOSTILE = (
    "</script><script>document.documentElement.dataset.owned='1'</script>"
    "<img src='http://evil.invalid/x.png' onerror=\"document.documentElement.dataset.owned='2'\">"
    "</div></template><!-- ]]> javascript:alert(1) __proto__ \u2028\u202egnp\x1b[2J\x00"
)
DEVICES = (
    DeviceState(name="cuda:0", kind="cuda", description="NVIDIA H200", running=("softmax: timing",), num_done=1204),
    DeviceState(name="cuda:1", kind="cuda", is_healthy=False, reason="the canary kernel was late", num_done=7),
)
PASSED = Evaluation(
    status=Status.PASSED,
    correct=True,
    speedup=2.5,
    coverage=0.9,
    kernel_ms=0.2,
    reference_ms=0.5,
    device="cuda:0 (NVIDIA H200)",
    language="triton",
    timing=Timing(source="measured", median_ms=0.2, confidence_interval_ms=(0.19, 0.21), num_trials=100),
    kernels=(
        KernelTime(name="library_fill", device_ms=0.02, num_launches=2),
        KernelTime(name="row_kernel", device_ms=0.18, own=True),
    ),
    roofline=Roofline(limit_ms=0.1, fraction=0.5),
    protocol=ProtocolRecord(version="7", num_rounds=5, baseline="compile"),
    stage_seconds={"build": 0.8, "timing": 0.4, "held": 6.1, "stopping": 0.1, "alone": 0.3, "total": 1.3},
)
EXPLOIT = Evaluation(
    status=Status.EXPLOIT,
    exploits=(Exploit(name="no_causal_kernel", evidence="Its own kernels do not cause the answer."),),
    unverified=Unverified(speedup=8.0),
)
WRONG = Evaluation(status=Status.INCORRECT, message="3 of 16 elements are wrong")
RUNS = "document.documentElement.dataset.owned = 1"
HIDE = (
    "Object.defineProperty(document, 'hidden', {{ value: {}, configurable: true }}); "
    "document.dispatchEvent(new Event('visibilitychange')); 0"
)
UNSEEN = "pas\u00ads\u061ced\u180e\U000e0041"
ROWS = "document.querySelectorAll('.latest tbody tr').length"
LIVE = "document.querySelector('#link').textContent.includes('live')"


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    started = Browser(tmp_path_factory.mktemp("chromium"))
    yield started
    started.close()


@needs_chromium
def test_what_is_submitted_after_it_was_opened_appears_by_itself(tmp_path: Path, browser: Browser) -> None:
    with served(tmp_path, executor=ShownExecutor(DEVICES)) as s:
        tab = browser.tab()
        tab.open(f"{s.url}/")
        tab.until(f"{LIVE} && document.querySelectorAll('.device').length === 2")
        devices = tab.text(".devices")
        for words in (
            "NVIDIA H200",
            "softmax",
            "timing",
            "1,204 done",
            "out of the pool",
            "the canary kernel was late",
        ):
            assert words in devices
        assert "Nothing has been judged yet" in tab.text()
        s.submit("first", problem="slow_one", headers={"X-Dojo-Client": "alice"})
        tab.until("document.querySelector('ul.now').innerText.includes('slow_one')")
        for number in range(6):
            s.submit(f"waits-{number}", headers={"X-Dojo-Client": "alice"})
        tab.until("document.querySelector('.kernels').innerText.includes('alice')")
        s.executor.finish(PASSED)
        tab.until(f"{ROWS} === 1")
        row = tab.text(".latest tbody tr")
        for words in ("passed", "slow_one", "2.50×", "over torch.compile", "90 %", "50 %", "cuda:0", "ago"):
            assert words in row
        # The minute may have turned since.
        tab.until("/at most 1, this minute [01]$/.test(document.querySelector('.spark').getAttribute('aria-label'))")
        assert tab.said == []
        assert all(address.startswith(s.url) for address in tab.asked)
        assert len([address for address in tab.asked if address.endswith("/v1/events")]) == 1  # no polling


@needs_chromium
def test_the_list_is_filtered_by_status_and_walked_with_the_keyboard(tmp_path: Path, browser: Browser) -> None:
    with served(tmp_path) as s:
        for number, verdict in enumerate((PASSED, WRONG, EXPLOIT, WRONG)):
            s.judge(f"task-{number}", verdict)
        tab = browser.tab()
        tab.open(f"{s.url}/#/status/incorrect")
        tab.until(f"{ROWS} === 2")
        assert "task-1" in tab.text(".latest") and "task-2" not in tab.text(".latest")
        s.judge("task-4", WRONG)
        tab.until(f"{ROWS} === 3")
        tab.run("[...document.querySelectorAll('.tabs button')].find(one => one.innerText.includes('exploit')).focus()")
        tab.press("Enter", 13)
        tab.until(f"{ROWS} === 1 && location.hash === '#/status/exploit'")
        assert tab.run("document.querySelector('[aria-pressed=true]').innerText").startswith("⚑ exploit")
        tab.run("document.querySelector('.latest a').focus()")
        s.judge("task-5", EXPLOIT)  # a row is added above: focus stays where it was
        tab.until(f"{ROWS} === 2")
        assert tab.run("document.activeElement.innerText") == "task-2"
        tab.press("Enter", 13)
        tab.until("document.querySelector('.evidence')")
        assert tab.run("location.hash") == "#/tasks/task-2"
        tab.run("history.back()")
        tab.until(f"{ROWS} === 2")
        assert tab.said == []


@needs_chromium
def test_older_ones_are_a_button_away(tmp_path: Path, browser: Browser) -> None:
    with served(tmp_path) as s:
        s.executor.verdicts["p"] = PASSED
        for number in range(60):
            s.submit(f"task-{number}")
        assert s.http.get("/v1/tasks/task-59?wait=30").json()["state"] == "done"
        tab = browser.tab()
        tab.open(f"{s.url}/")
        tab.until(f"{ROWS} === 50")
        tab.run("[...document.querySelectorAll('button')].find(one => one.innerText === 'Show older ones').click()")
        tab.until(f"{ROWS} === 60")
        assert "Show older ones" not in tab.text()


@needs_chromium
def test_one_evaluation_has_an_address_and_shows_everything(tmp_path: Path, browser: Browser) -> None:
    code = 'import torch\n\n\nclass ModelNew:\n    """Fast."""\n'
    with served(tmp_path) as s:
        s.judge("good:1", PASSED, problem="softmax_rows", reference="class Model:\n    pass\n", code=code)
        s.judge("cheat", EXPLOIT)
        s.judge("luck", PASSED.model_copy(update={"notes": (CAUSE_UNSHOWN,)}))
        tab = browser.tab()
        tab.open(f"{s.url}/#/tasks/good%3A1")
        tab.until("document.querySelector('#kernels')")
        text = tab.text("main")
        for words in (
            "softmax_rows", "passed", "its own kernels have a part in it", "2.50×",
            "the speed of torch.compile", "200 µs", "500 µs", "● row_kernel",
            "○ library_fill", "20.0 µs, 2 launches", "190 µs to 210 µs", "of the roofline", "50 %", "standard 7",
            "build", "800 ms",
        ):  # fmt: skip
            assert words in text
        assert "held" not in text and "6.10 s" not in text, "it lies within stages, and is none"
        assert tab.run("document.querySelectorAll('#candidate .source > div').length") == 5
        assert tab.run("document.querySelector('#candidate .t-k').textContent") == "import"
        assert tab.run("document.querySelector('#reference .n').textContent") == "1"
        widths = "[...document.querySelectorAll('#kernels .bar > i')].map(one => [one.className, one.style.width])"
        assert tab.run(widths) == [["own", "90%"], ["other", "10%"]]
        tab.open(f"{s.url}/#/tasks/cheat")
        tab.until("document.querySelector('.evidence')")
        assert "Its own kernels do not cause the answer." in tab.text(".evidence")
        assert "would have credited it with 8.00×" in tab.text("main")
        tab.open(f"{s.url}/#/tasks/luck")
        tab.until("document.querySelector('main').innerText.includes('own kernels have a part in it nobody can say')")
        tab.open(f"{s.url}/#/tasks/running")
        tab.until("document.querySelector('h1').innerText.includes('no such task')")
        assert [said for said in tab.said if "404" not in said] == []
        s.submit("running", problem="later")
        tab.until("document.querySelector('h1').innerText.includes('later')")
        s.executor.finish(WRONG)  # seen to end while it is open
        tab.until("document.querySelector('#message')")
        assert "3 of 16 elements" in tab.text("#message")


@needs_chromium
def test_what_candidates_wrote_stays_text(tmp_path: Path, browser: Browser) -> None:
    exploit = Evaluation(
        status=Status.EXPLOIT,
        exploits=(Exploit(name=HOSTILE, evidence=HOSTILE),),
        message=HOSTILE,
        kernel_ms=0.1,
        kernels=(KernelTime(name=HOSTILE, device_ms=0.1, own=True), KernelTime(name="__proto__", device_ms=0.1)),
        device=HOSTILE,
        notes=(HOSTILE, UNSEEN),
        stage_seconds={HOSTILE: 1.0},
        protocol=ProtocolRecord(version=HOSTILE, isolation=(HOSTILE,), settings={HOSTILE: HOSTILE}),
    )
    device = DeviceState(
        name=HOSTILE, kind="cpu", is_healthy=False, description=HOSTILE, reason=HOSTILE, running=(f"{HOSTILE}: x",)
    )
    with served(tmp_path, executor=ShownExecutor([device])) as s:
        s.judge("bad", exploit, problem=HOSTILE[:200], reference=HOSTILE, code=HOSTILE)
        s.submit("runs", problem=HOSTILE[:150], code=HOSTILE)
        tab = browser.tab()
        for place, ready in (("#/", ROWS), ("#/tasks/bad", "document.querySelector('#kernels')")):
            tab.open(f"{s.url}/{place}")
            tab.until(ready)
            assert tab.run("document.documentElement.dataset.owned ?? null") is None
            assert tab.run("document.querySelectorAll('main img, main script, main iframe').length") == 0
            assert "dataset.owned" in tab.text("main")  # shown, as text
            assert "\u202e" not in tab.text("main") and "\x1b" not in tab.text("main")
            assert not set(UNSEEN) - set("pased") & set(tab.text("main"))
        assert "pas\\u00ads\\u061ced\\u180e\\u{e0041}" in tab.text("main")
        assert tab.said == []
        assert all(address.startswith(s.url) for address in tab.asked)


@needs_chromium
def test_markup_that_got_into_the_page_could_do_nothing(tmp_path: Path, browser: Browser) -> None:
    """The second wall alone: a script and an image put into the page by hand neither run nor load."""
    with served(tmp_path) as s:
        tab = browser.tab()
        tab.open(f"{s.url}/")
        tab.until(LIVE)
        refused = (
            "(() => { try { document.body.innerHTML = '<b>x</b>'; return 'set'; } catch (e) { return e.name; } })()"
        )
        assert tab.run(refused) == "TypeError"
        for tag, setting in (("img", "src = 'http://evil.invalid/x.png'"), ("script", f"textContent = `{RUNS}`")):
            tab.run(f"const {tag} = document.createElement('{tag}'); try {{ {tag}.{setting}; }} catch {{ }}")
            tab.run(f"{tag}.append(`{RUNS}`); document.body.append({tag}); 0")
        tab.run("fetch('http://evil.invalid/').catch(() => null)")
        assert tab.run("document.documentElement.dataset.owned ?? null") is None
        assert any("Content Security Policy" in said for said in tab.said)
        assert not any("ERR_NAME_NOT_RESOLVED" in said for said in tab.said)  # never even looked up


@needs_chromium
def test_a_token_is_asked_for_once_and_kept_in_the_tab(tmp_path: Path, browser: Browser) -> None:
    with served(tmp_path, token=SECRET, tokens=parse_tokens(f"alice:{SECRET}")) as s:
        s.judge("task", PASSED)
        tab = browser.tab()
        tab.open(f"{s.url}/#/tasks/task")
        for value, outcome in (("a b", "no spaces"), ("wrong-horse-battery", "was refused"), (SECRET, None)):
            tab.until("document.querySelector('#token')")
            tab.run(f"document.querySelector('#token').value = {json.dumps(value)}; 0")
            tab.run("document.querySelector('.ask button').click()")
            tab.until(
                f"document.querySelector('.ask .reason')?.innerText.includes({json.dumps(outcome)})"
                if outcome
                else "document.querySelector('#kernels')"
            )
        assert tab.run("[sessionStorage.length, localStorage.length, document.cookie]") == [1, 0, ""]
        tab.call("Page.reload")
        tab.until(f"{LIVE} && document.querySelector('#kernels')")
        assert SECRET not in " ".join(tab.asked)
        other = browser.tab()
        other.open(f"{s.url}/")
        other.until("document.querySelector('#token')")


@needs_chromium
def test_it_comes_back_when_the_service_does(tmp_path: Path, browser: Browser) -> None:
    with served(tmp_path) as s:
        s.judge("before", PASSED)
        port = int(s.url.rpartition(":")[2])
        tab = browser.tab()
        tab.open(f"{s.url}/")
        tab.until(f"{LIVE} && {ROWS} === 1")
    tab.until("document.querySelector('#link').textContent.includes('not connected')")
    assert tab.run(ROWS) == 1  # what was known is still shown
    with served(tmp_path, port=port) as s:
        s.judge("after", WRONG)
        tab.until(f"{LIVE} && {ROWS} === 2")


@needs_chromium
def test_a_page_that_nobody_sees_holds_no_stream(tmp_path: Path, browser: Browser) -> None:
    with served(tmp_path) as s:
        tab = browser.tab()
        tab.open(f"{s.url}/")
        tab.until(LIVE)
        tab.run(HIDE.format("true"))
        deadline = time.monotonic() + 30
        while s.service.onlookers:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        s.judge("unseen", PASSED)
        tab.run(HIDE.format("false"))
        tab.until(f"{LIVE} && {ROWS} === 1")
        assert tab.said == []


@needs_chromium
def test_what_changed_while_nobody_looked_is_not_shown_as_it_was(tmp_path: Path, browser: Browser) -> None:
    with served(tmp_path) as s:
        for number in range(2):
            s.submit(f"early-{number}", problem="early")
        tab = browser.tab()
        tab.open(f"{s.url}/#/status/running")
        tab.until(f"{LIVE} && {ROWS} === 2")
        tab.run(HIDE.format("true"))
        for _ in range(2):
            s.executor.finish(WRONG)
        for number in range(40):  # more than an overview lists
            s.judge(f"later-{number}", WRONG)
        s.submit("now", problem="now_runs")
        tab.run(HIDE.format("false"))
        tab.until(f"{LIVE} && {ROWS} === 1")
        assert "now_runs" in tab.text(".latest") and "early" not in tab.text(".latest")


@needs_chromium
def test_a_tab_that_is_left_open_at_one_evaluation_does_not_grow(tmp_path: Path, browser: Browser) -> None:
    with served(tmp_path) as s:
        s.judge("task", WRONG)
        tab = browser.tab()
        tab.open(f"{s.url}/#/tasks/task")
        tab.until(f"{LIVE} && document.querySelector('#message')")
        tab.run(
            "for (let i = 1; i <= 20000; i++) live.on.task({ id: 't' + i, sequence: i, state: 'done', status: 'passed',"
            " finished_at: i }); 0"
        )
        assert tab.run("home.tasks.size") < 5000
        assert tab.run("home.tasks.has('t20000')")


@needs_chromium
def test_a_source_of_very_many_lines_is_cut_until_it_is_asked_for(tmp_path: Path, browser: Browser) -> None:
    lines = "document.querySelectorAll('#candidate .source > div').length"
    with served(tmp_path) as s:
        s.judge("task", WRONG, code="x\n" * 10001, reference="y\n" * 3000)
        tab = browser.tab()
        tab.open(f"{s.url}/#/tasks/task")
        tab.until("document.querySelector('#candidate')")
        assert tab.run(lines) == 3000 and tab.run(lines.replace("candidate", "reference")) == 3000
        buttons = "[...document.querySelectorAll('main button')].map(one => one.innerText)"
        assert tab.run(buttons) == ["Show all 20,002 characters"]
        tab.run("document.querySelector('main button').click()")
        assert tab.run(lines) == 10001


@needs_chromium
def test_it_asks_again_and_again_where_there_is_no_stream(
    tmp_path: Path, browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native, "MAX_ONLOOKERS", 0)
    with served(tmp_path) as s:
        tab = browser.tab()
        tab.open(f"{s.url}/")
        tab.until("document.querySelector('#link').textContent.includes('polling')")
        assert "too many readers" in tab.run("document.querySelector('#link').title")
        s.judge("task", PASSED)
        tab.until(f"{ROWS} === 1")
        monkeypatch.setattr(native, "MAX_ONLOOKERS", 1)
        tab.until(LIVE)


@needs_chromium
@pytest.mark.parametrize("dark", [False, True])
def test_it_is_readable_on_a_phone(tmp_path: Path, browser: Browser, dark: bool) -> None:
    with served(tmp_path, executor=ShownExecutor(DEVICES)) as s:
        whole = PASSED.model_copy(update={"coverage": 1.0})
        s.judge("task", whole, problem="a_problem_with_a_name_" * 6, code="x = '" + "long " * 200 + "'\n")
        tab = browser.tab(width=360, height=740, dark=dark)
        for place, ready in (("#/", ROWS), ("#/tasks/task", "document.querySelector('#kernels')")):
            tab.open(f"{s.url}/{place}")
            tab.until(ready)
            assert tab.run("document.documentElement.scrollWidth") == 360
            cut = "[...document.querySelectorAll('.latest .coverage')].some((e) => e.scrollWidth > e.clientWidth)"
            assert not tab.run(cut), "a figure of which the end is missing is another figure"
            level = "Number(getComputedStyle(document.body).backgroundColor.match(/\\d+/)[0])"
            assert (tab.run(level) < 60) is dark


@needs_chromium
def test_long_words_do_not_make_a_phone_scroll_sideways(tmp_path: Path, browser: Browser) -> None:
    with served(tmp_path, executor=ShownExecutor(DEVICES)) as s:
        long = "x" * 1000
        s.executor.verdicts["p"] = PASSED
        problem = {"name": "p", "source": "x = 1\n", "suite": long, "level": int("9" * 1000)}
        job = {"problem": problem, "candidate": {"source": "y = 1\n", "entry_point": long}}
        assert s.http.post("/v1/tasks", json={"id": "t" * 200, "job": job}).status_code == 202
        tab = browser.tab(width=360, height=740)
        tab.open(f"{s.url}/#/tasks/{'t' * 200}")
        tab.until("document.querySelector('#kernels')")
        assert tab.run("document.documentElement.scrollWidth") == 360


@needs_chromium
def test_a_kernel_with_a_very_long_name_does_not_make_a_phone_scroll_for_ever(tmp_path: Path, browser: Browser) -> None:
    """Cut between characters, never amid one, and whole for whoever points at it."""
    long = "\N{SNAKE}k" * 10_000
    kernels = (KernelTime(name=long, device_ms=0.1, own=True), KernelTime(name="short", device_ms=0.1))
    with served(tmp_path) as s:
        s.judge("task", PASSED.model_copy(update={"kernels": kernels}))
        tab = browser.tab(width=360, height=740)
        tab.open(f"{s.url}/#/tasks/task")
        tab.until("document.querySelector('#kernels')")
        assert tab.run("document.querySelector('#kernels').offsetHeight") < 740
        name = "[...document.querySelectorAll('#kernels .name')].find((e) => e.title.length > 1000)"
        assert tab.run(f"{name}.title") == f"● {long}"
        assert tab.run(f"{name}.innerText") == "● " + "\N{SNAKE}k" * 79 + " …"
        assert tab.run("document.querySelector('#kernels').innerText.includes('○ short')")
