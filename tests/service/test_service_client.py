"""Both clients against a real service, and against one that misbehaves."""

from __future__ import annotations

import asyncio
import logging
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import pytest
from service_process import ServiceProcess

from kerneldojo import AsyncClient, Candidate, Client, Problem, Status
from kerneldojo.client import (
    ClientExecutor,
    Conflict,
    NotFound,
    Overloaded,
    Refused,
    Retries,
    ServerFault,
    TaskCancelled,
    Unauthorized,
    Unreachable,
    WaitTimeout,
    pools,
    steps,
)
from kerneldojo.client import executor as executor_module
from kerneldojo.client.attempts import Send
from kerneldojo.pool.executor import Lasting, Withdrawable
from kerneldojo.schema import Job
from kerneldojo.service.records import TaskState

PROBLEM = Problem(name="p", source="x")
ONCE = Retries(give_up_seconds=0)
TOKEN = "a-token-of-some-length"


def job(source: str) -> Job:
    return Job(problem=PROBLEM, candidate=Candidate(source=source))


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:
    folder = tmp_path_factory.mktemp("service")
    with ServiceProcess(folder, env={"KERNELDOJO_TOKENS": f"me:{TOKEN}"}) as process:
        yield process
        assert process.stop() == 0
        assert TOKEN not in "".join(process.lines)


@pytest.fixture
def client(service: ServiceProcess) -> Iterator[Client]:
    with Client(service.url, token=TOKEN) as client:
        yield client


def test_judging_one_and_many(client: Client) -> None:
    evaluation = client.judge(PROBLEM, Candidate(source="passed one"), device="cpu", protocol="quick")
    assert evaluation.status is Status.PASSED and evaluation.roofline is not None
    sources = ["passed", "incorrect", "odd", "exploit"] * 40
    found = dict(client.judge_many((job(f"{word} {i}") for i, word in enumerate(sources)), window=30, prefix="many"))
    assert sorted(found) == list(range(160))
    assert [found[i].status.value for i in range(4)] == ["passed", "incorrect", "runtime_error", "exploit"]
    again = dict(client.judge_many((job(f"{word} {i}") for i, word in enumerate(sources)), prefix="many"))
    assert again == found and client.get("many-3").attempts == 1


def test_waiting_cancelling_and_looking(client: Client) -> None:
    accepted = client.submit(job("sleep 20"), id="asleep", priority="high")
    assert accepted.is_new and not client.submit(job("sleep 20"), id="asleep").is_new
    with pytest.raises(WaitTimeout):
        client.wait("asleep", timeout=0.1)
    with pytest.raises(Conflict):
        client.submit(job("something else"), id="asleep")
    with pytest.raises(NotFound):
        client.get("nobody")
    assert client.cancel("asleep").state == "cancelled"
    with pytest.raises(TaskCancelled):
        client.judge(PROBLEM, Candidate(source="sleep 20"), id="asleep")
    acks = client.submit_many([job(f"passed {i}") for i in range(450)])
    assert len({ack.id for ack in acks}) == 450
    record = client.wait(acks[-1].id)
    assert record.client == "me" and record.evaluation is not None
    assert client.get(acks[-1].id, with_job=True).job == job("passed 449")
    assert client.tasks(limit=3).tasks[0].id == acks[-1].id
    assert [task.id for task in client.tasks(state=TaskState.CANCELLED, client="me").tasks][:1] == ["asleep"]
    assert {task.status for task in client.tasks(status=Status.PASSED).tasks} == {Status.PASSED}
    assert client.tasks(client="somebody else").tasks == client.tasks(status=Status.TIMEOUT).tasks == ()
    assert client.health().status == "healthy" and client.overview().devices[0].name == "auto"


def test_the_asynchronous_client_does_the_same(service: ServiceProcess) -> None:
    async def main() -> None:
        async with AsyncClient(service.url, token=TOKEN) as client:
            evaluations = await asyncio.gather(
                *(client.judge(PROBLEM, Candidate(source=f"passed {i}")) for i in range(20))
            )
            assert all(evaluation.correct for evaluation in evaluations)
            found = {index: verdict async for index, verdict in client.judge_many([job("odd")] * 50, window=7)}
            assert len(found) == 50
            assert (await client.health()).status == "healthy"
            with pytest.raises(NotFound):
                await client.wait("nobody")

    asyncio.run(main())


def test_a_thousand_verdicts_may_be_waited_for_at_once(service: ServiceProcess) -> None:
    """With one pool of connections the client would be busy with these alone, and hear of nothing for minutes."""

    async def main() -> None:
        async with AsyncClient(service.url, token=TOKEN) as client:
            sources = [f"passed at once {i}" for i in range(1200)]
            found = await asyncio.gather(*(client.judge(PROBLEM, Candidate(source=source)) for source in sources))
            assert len(found) == 1200 and all(evaluation.correct for evaluation in found)

    asyncio.run(main())


def test_what_is_answered_at_once_does_not_wait_for_those_who_wait_for_verdicts(
    service: ServiceProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pools, "MOST_REQUESTS", 4)
    monkeypatch.setattr(pools, "MOST_WAITING", 3)

    async def main() -> None:
        async with AsyncClient(service.url, token=TOKEN) as client:
            accepted = [await client.submit(job(f"sleep 20 crowd {number}")) for number in range(12)]
            waits = [asyncio.ensure_future(client.wait(one.id)) for one in accepted]
            await asyncio.sleep(0.5)
            await asyncio.wait_for(client.overview(), 5)
            for one in accepted:
                await asyncio.wait_for(client.cancel(one.id), 5)
            assert {record.state.value for record in await asyncio.gather(*waits)} == {"cancelled"}

    asyncio.run(main())


def test_a_service_is_an_executor(service: ServiceProcess) -> None:
    with ClientExecutor(service.url, token=TOKEN) as executor:
        assert executor.num_slots == 8 and executor.devices()[0].name == "auto"
        futures = [executor.submit(job(f"passed executor {i}")) for i in range(100)]
        assert all(future.result(30).correct for future in futures)
        slow = executor.submit(job("sleep 20 executor"))
        assert slow.cancel()
        with pytest.raises(CancelledError):
            slow.result()
        executor.close()
        with pytest.raises(RuntimeError):
            executor.submit(job("late"))
    with pytest.raises(Unauthorized):
        ClientExecutor(service.url, token="not-a-token-of-theirs")


def test_an_executor_of_a_service_is_closed_with_patience_and_cancels_what_takes_longer(tmp_path: Path) -> None:
    """The service is its own: what other tests have cancelled may still have all slots of theirs."""
    with ServiceProcess(tmp_path) as own, Client(own.url) as client:
        executor = ClientExecutor(own.url)
        quick, slow = executor.submit(job("passed patience")), executor.submit(job("sleep 20 patience"))
        began = time.monotonic()
        executor.close(drain=True, patience=3.0)
        assert time.monotonic() - began < 15
        assert quick.result(0).correct and slow.cancelled()
        assert "cancelled" in {task.state for task in client.tasks(limit=3).tasks}


def test_who_asks_while_a_service_is_gone_gets_what_was_known_and_waits_no_longer_than_they_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A command that draws the devices has verdicts to record, and Ctrl-C to hear, meanwhile."""
    monkeypatch.setattr(executor_module, "LOOK_SECONDS", 0.5)
    with ServiceProcess(tmp_path) as gone, ClientExecutor(gone.url) as executor, Client(gone.url) as client:
        known = executor.devices()
        gone.kill()
        time.sleep(1.1)
        began = time.monotonic()
        assert executor.devices() == known and executor.num_slots == 8
        with pytest.raises(WaitTimeout, match="has no verdict yet: the service cannot be reached"):
            client.wait("anything", timeout=1.0)
        assert time.monotonic() - began < 10


def test_what_runs_is_not_withdrawn_from_a_service(tmp_path: Path) -> None:
    with ServiceProcess(tmp_path) as own, ClientExecutor(own.url) as executor, Client(own.url) as client:
        futures = [executor.submit(job(f"sleep 2 withdrawn {number}")) for number in range(20)]
        assert all(isinstance(future, Withdrawable) for future in futures)
        until = time.monotonic() + 20
        while (queue := client.overview().queue).running < 8 or queue.queued < 12:
            assert time.monotonic() < until
            time.sleep(0.02)
        for _ in range(3):
            for future in futures:
                future.withdraw()
        while sum(future.done() for future in futures) < 20:
            assert time.monotonic() < until
            time.sleep(0.02)
        judged = [future for future in futures if not future.cancelled()]
        assert len(judged) == 8 and {future.result().status for future in judged} == {Status.COMPILE_ERROR}
        for future in futures:
            assert client.get(future.task_id).state == ("cancelled" if future.cancelled() else "done")
        futures[0].withdraw()  # To no end.


def test_a_task_is_found_again_by_its_id_unless_it_was_cancelled(service: ServiceProcess) -> None:
    with ClientExecutor(service.url, token=TOKEN) as executor, Client(service.url, token=TOKEN) as client:
        assert isinstance(executor, Lasting)
        client.submit(job("passed found"), id="found")
        for _ in range(2):
            assert executor.submit(job("passed found"), id="found").result(30).correct
        assert client.get("found").attempts == 1
        other = executor.submit(job("passed other"), id="found").result(30)
        assert other.status is Status.INFRASTRUCTURE_ERROR
        assert "Conflict: 409: the id found belongs to another task" in other.message
        for taken in ("again", "again.1"):
            client.submit(job("sleep 1 again"), id=taken)
            assert client.cancel(taken).state == "cancelled"
        asked = executor.submit(job("sleep 1 again"), id="again")
        assert asked.result(30).status is Status.COMPILE_ERROR
        assert asked.task_id == "again.2" and client.get("again.2").state == "done"


@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGSTOP])
def test_what_a_service_that_is_gone_was_given_is_withdrawn_all_the_same(
    sent: signal.Signals, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executor_module, "CANCEL_SECONDS", 0.5)
    with ServiceProcess(tmp_path) as gone, ClientExecutor(gone.url) as executor:
        futures = [executor.submit(job(f"sleep 20 withdrawn {number}")) for number in range(200)]
        time.sleep(0.5)
        gone.process.send_signal(sent)
        began = time.monotonic()
        for future in futures:
            future.withdraw()
        for future in futures:
            with pytest.raises(CancelledError):
                future.result(10)
        executor.close(drain=True)
        assert time.monotonic() - began < 10


@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGSTOP])
def test_who_asks_an_executor_of_a_service_that_is_gone_is_told_what_was_known(
    sent: signal.Signals, tmp_path: Path
) -> None:
    """A service in front of it asks on its event loop, and nobody is left waiting when it is closed."""
    with ServiceProcess(tmp_path) as gone:
        executor = ClientExecutor(gone.url)
        gone.process.send_signal(sent)
        executor._overview_at -= 60.0
        asking = threading.Thread(target=executor.devices, daemon=True)
        began = time.monotonic()
        asking.start()
        assert executor.num_slots == 8
        executor._overview_at -= 60.0
        assert executor.devices()[0].name == "auto"
        executor.close()
        asking.join(1.0)
        assert not asking.is_alive()
        assert time.monotonic() - began < 15
        assert executor.num_slots == 8


def test_a_newer_service_may_tell_more_than_a_client_knows() -> None:
    """In what it wraps, too. Of what a client sends, a service refuses what it does not know."""
    told = {
        "/health": {"status": "healthy", "news": 3},
        "/v1/tasks/t": {
            "id": "t", "sequence": 1, "state": "done", "client": "me", "priority": "normal", "device": "cpu",
            "submitted_at": 1.0, "problem": "p", "news": 1, "evaluation": {"status": "incorrect", "news": {"a": 2}},
        },
    }  # fmt: skip
    for asked in (steps.health(), steps.get("t", ONCE)):
        request = next(asked)
        assert isinstance(request, Send)
        with pytest.raises(StopIteration) as ended:
            asked.send(httpx.Response(200, json=told[request.path]))
        assert "news" not in ended.value.value.model_dump_json()


def test_a_service_that_is_gone_is_said_once_and_waited_for_as_long_as_training_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    from kerneldojo.training.config import RLConfig
    from kerneldojo.training.judges import open_executor
    from kerneldojo.training.verdicts import Verdicts

    with ServiceProcess(tmp_path) as gone:
        judge = {"service": gone.url, "patience_s": 1.0}
        told = {"output": tmp_path / "run", "problems": ["katas:1"], "model": {"path": "nowhere"}, "judge": judge}
        executor = open_executor(RLConfig.model_validate(told))
        assert executor.submit(job("echo")).result(60).status is not Status.INFRASTRUCTURE_ERROR
        gone.kill()
        try:
            start = time.monotonic()
            verdicts = Verdicts(executor, patience=1.0)
            found = verdicts.wait([verdicts.order(job(source)) for source in ("one", "two")])
            assert {one.status for one in found.values()} == {Status.INFRASTRUCTURE_ERROR}
            assert verdicts.num_faults == 2, "each was asked for once: the client's patience is the trainer's"
            assert 0.2 < time.monotonic() - start < 10
        finally:
            executor.close(drain=False)
    said = [one.message for one in caplog.records if "cannot be reached" in one.message]
    assert len(said) == 1 and said[0].startswith(f"{gone.url}: ") and said[0].endswith("trying again for up to 1 s")


@pytest.mark.parametrize("kind", ["judge", "judge_many", "judge_many, awaited"])
def test_who_waits_for_a_service_that_is_gone_is_told_so_once(
    kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Also where the first verdicts came, and the stream of the others broke."""

    async def awaited(url: str) -> None:
        async with AsyncClient(url, retries=patience) as client:
            async for _ in client.judge_many(jobs, window=2):
                gone.kill()

    def blocking(url: str) -> None:
        with Client(url, retries=patience) as client:
            if kind == "judge":
                client.judge(PROBLEM, Candidate(source="echo"))
                gone.kill()
                client.judge(PROBLEM, Candidate(source="more"))
            for _ in client.judge_many(jobs, window=2):
                gone.kill()

    patience = Retries(give_up_seconds=1.0)
    jobs = [job("passed"), *(job(f"sleep 30 {number}") for number in range(3))]
    with ServiceProcess(tmp_path) as gone, pytest.raises(Unreachable):
        if kind.endswith("awaited"):
            asyncio.run(awaited(gone.url))
        else:
            blocking(gone.url)
    said = [one.message for one in caplog.records if "cannot be reached" in one.message]
    assert len(said) == 1 and said[0].startswith(f"{gone.url}: ") and said[0].endswith("trying again for up to 1 s")


def test_a_wrong_address_token_or_setting_says_so(service: ServiceProcess) -> None:
    for url in ("ftp://x", "nonsense", "", "http://127.0.0.1:99999"):
        with pytest.raises(ValueError, match="not the address"):
            Client(url)
    with Client(service.url, token="wrong-token", retries=ONCE) as client, pytest.raises(Unauthorized):
        client.submit(job("passed"))
    with Client("http://127.0.0.1:9", retries=ONCE) as client:
        with pytest.raises(Unreachable):
            client.submit(job("passed"))
        with pytest.raises(ValueError, match="protocol"):
            client.judge(PROBLEM, Candidate(source="x"), protocol="sloppy")


@pytest.mark.parametrize("token", ["", "a-token-of-some-length\n", "a-token of-some-length", "a-tökén-of-some-length"])
def test_what_no_header_can_hold_is_refused_at_once_and_never_told(
    token: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Not after ten minutes of trying, with the token in the log."""
    for kind in (Client, AsyncClient, ClientExecutor):
        with pytest.raises(ValueError, match="the token is empty or has") as caught:
            kind("http://127.0.0.1:9", token=token)
        assert not token or token not in str(caught.value)
        with pytest.raises(ValueError, match="a client's name"):
            kind("http://127.0.0.1:9", name=f"it {token}")
    assert not caplog.records


@pytest.mark.parametrize("kind", [Client, AsyncClient, ClientExecutor])
@pytest.mark.parametrize(
    "url",
    [
        "ftp://alice:SECRET@host",
        "alice:SECRET@host",
        "http://alice:SEC/RET@host:x",
        "http://a:SECRET@b@:1:1",
        "SECRET@",
    ],
)
def test_a_token_in_what_is_no_address_is_not_told(kind: type[Client], url: str) -> None:
    with pytest.raises(ValueError, match="not the address") as caught:
        kind(url)
    assert "SEC" not in str(caught.value) and "RET" not in str(caught.value)


def test_a_token_in_an_address_lets_in_and_is_not_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    from kerneldojo.cli.arguments import BadUsage
    from kerneldojo.cli.judges import open_executor

    caplog.set_level(logging.DEBUG)
    secret = "a-SECRET-of-some-length"
    with ServiceProcess(tmp_path, env={"KERNELDOJO_TOKENS": f"alice:{secret}"}) as guarded:
        url = guarded.url.replace("://", f"://alice:{secret}@")
        patience = Retries(give_up_seconds=0.5)
        with Client(url, retries=patience) as client, ClientExecutor(url, retries=patience) as executor:
            assert client.judge(PROBLEM, Candidate(source="passed")).status is Status.PASSED
            assert executor.submit(job("passed")).result(60).status is Status.PASSED
            guarded.kill()
            with pytest.raises(Unreachable) as gone:
                client.overview()
    with pytest.raises(BadUsage) as refused:
        open_executor(url, None, [], None, None)
    said = [one.getMessage() for one in caplog.records]
    assert any("cannot be reached" in line for line in said)
    assert "SECRET" not in "".join([*said, str(gone.value), str(refused.value), capfd.readouterr().err])


def test_an_id_that_is_none_names_no_other_task(client: Client) -> None:
    kept = client.submit(job("sleep 20 kept"), id="kept").id
    for odd in (f"{kept}?x", f"{kept}#x", f"../tasks/{kept}", f"{kept}/", ""):
        for ask in (client.get, client.cancel):
            with pytest.raises(Refused):
                ask(odd)
    assert client.cancel(kept).state == "cancelled"


@pytest.mark.parametrize("prefix", ["p" * 181, "a b", "-a", "a\n", "\N{SNOWMAN}"])
def test_a_prefix_that_begins_no_id_is_said_before_anything_is_submitted(client: Client, prefix: str) -> None:
    async def awaited() -> None:
        async with AsyncClient("http://127.0.0.1:9") as other:
            async for _ in other.judge_many([job("passed")] * 20, prefix=prefix):
                pass

    for ask in (lambda: list(client.judge_many([job("passed")] * 20, prefix=prefix)), lambda: asyncio.run(awaited())):
        with pytest.raises(ValueError, match="a prefix has letters") as caught:
            ask()
        assert "\n" not in str(caught.value) and len(str(caught.value)) < 160
    longest = "p" * 180
    found = dict(client.judge_many([job(f"passed {number}") for number in range(12)], prefix=longest))
    assert len(found) == 12 and client.get(f"{longest}-11").state == "done"


def test_half_a_character_in_a_source_is_judged_like_any_other(client: Client) -> None:
    """A model may well write one; JSON cannot hold it, and the trainer is not to fail for it."""
    assert client.judge(PROBLEM, Candidate(source="passed \ud83d")).status is Status.PASSED
    jobs = [job("incorrect \udc00"), job("passed \N{SNOWMAN}")]
    found = {index: verdict.status for index, verdict in client.judge_many(jobs)}
    assert found == {0: Status.INCORRECT, 1: Status.PASSED}


def test_half_a_character_beside_a_source_ends_no_call(client: Client) -> None:
    odd = Problem(name="\ud800", source="x", suite="\udcff", notes="\udc80")
    assert client.judge(odd, Candidate(source="passed")).status is Status.PASSED
    jobs = [
        Job(problem=odd, candidate=Candidate(source="incorrect")),
        Job(problem=PROBLEM, candidate=Candidate(source="passed 2", entry_point="\ud83d")),
        job("passed 3"),
    ]
    found = {index: verdict.status for index, verdict in client.judge_many(jobs)}
    assert found == {0: Status.INCORRECT, 1: Status.PASSED, 2: Status.PASSED}


def test_a_service_with_few_places_takes_many_tasks_in_small_batches(tmp_path: Path) -> None:
    with ServiceProcess(tmp_path, "--max-queued", "30") as small, Client(small.url) as client:
        found = dict(client.judge_many([job(f"passed {number}") for number in range(120)]))
        assert len(found) == 120 and all(verdict.correct for verdict in found.values())


class Misbehaving:
    """An HTTP server that answers as it is told, request by request."""

    def __init__(self, *answers: tuple[int, dict[str, str], bytes] | None) -> None:
        self.requests: list[bytes] = []
        script = list(answers)
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                outer.requests.append(self.rfile.read(int(self.headers["Content-Length"])))
                answer = script.pop(0)
                if answer is None:
                    self.connection.close()
                    return
                code, headers, body = answer
                self.send_response(code)
                for name, value in {"Content-Length": str(len(body)), **headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                return

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def misbehaving() -> Iterator[Callable[..., Misbehaving]]:
    servers: list[Misbehaving] = []

    def start(*answers: tuple[int, dict[str, str], bytes] | None) -> Misbehaving:
        servers.append(Misbehaving(*answers))
        return servers[-1]

    yield start
    for server in servers:
        server.close()


GOOD = (202, {}, b'{"id":"a","state":"queued","is_new":true,"error":""}')


def test_what_may_pass_is_tried_again_with_the_same_id(misbehaving: Callable[..., Misbehaving]) -> None:
    server = misbehaving(
        None, (429, {"Retry-After": "0.3"}, b"{}"), (503, {}, b"<html>proxy</html>"), (500, {}, b""), GOOD
    )
    started = time.monotonic()
    with Client(server.url, retries=Retries(first_pause=0.01)) as client:
        assert client.submit(job("passed")).id == "a"
    assert time.monotonic() - started >= 0.3
    assert len(server.requests) == 5 and len(set(server.requests)) == 1 and b'"id":"' in server.requests[0]


@pytest.mark.parametrize(
    ("code", "body", "error", "words"),
    [
        (503, b'{"detail":"about to stop","request_id":""}', Overloaded, "about to stop"),
        (500, b'{"detail":"a fault","request_id":"abc"}', ServerFault, "abc"),
        (422, b'{"detail":"job: missing","request_id":""}', Refused, "job: missing"),
        (413, b"", Refused, "413"),
        (301, b"", Refused, "redirected to nowhere"),
        (200, b"<html>hello</html>", ServerFault, "not an answer"),
    ],
)
def test_what_does_not_pass_is_one_clear_error(
    misbehaving: Callable[..., Misbehaving], code: int, body: bytes, error: type[Exception], words: str
) -> None:
    server = misbehaving((code, {}, body))
    with Client(server.url, retries=ONCE) as client, pytest.raises(error, match=words):
        client.submit(job("passed"))


ACCEPTED = (202, {}, b'{"tasks":[]}')


def test_a_stream_that_lives_ends_a_setback_though_nothing_has_ended_yet(
    misbehaving: Callable[..., Misbehaving],
) -> None:
    """Else the second of two faults that are an hour apart would look as though there had been nothing between them."""
    line = (
        b'{"id":"x-0","sequence":1,"state":"done","client":"me","priority":"normal","device":"cpu","problem":"p",'
        b'"submitted_at":1.0,"evaluation":{"status":"incorrect"}}\n'
    )
    broken = (200, {"Content-Length": "9"}, b"\n")
    server = misbehaving(ACCEPTED, (503, {}, b"{}"), broken, (200, {}, line))
    with Client(server.url, retries=Retries(give_up_seconds=1.0, first_pause=0.9)) as client:
        found = dict(client.judge_many([job("a")], prefix="x"))
    assert found[0].status is Status.INCORRECT


def test_a_stream_that_always_ends_at_once_is_given_up(misbehaving: Callable[..., Misbehaving]) -> None:
    """Nobody would hear of it: it was opened anew twice a second, for ever."""

    async def awaited(url: str) -> None:
        async with AsyncClient(url, retries=patience) as client:
            async for _ in client.judge_many([job("a")]):
                pass

    patience = Retries(give_up_seconds=0.5, first_pause=0.2)
    servers = [misbehaving(ACCEPTED, *[(200, {}, b"")] * 9) for _ in range(2)]
    with Client(servers[0].url, retries=patience) as client, pytest.raises(Overloaded, match="ended at once"):
        list(client.judge_many([job("a")]))
    with pytest.raises(Overloaded, match="ended at once"):
        asyncio.run(awaited(servers[1].url))


def test_a_stream_that_is_none_of_a_service_is_one_clear_error(misbehaving: Callable[..., Misbehaving]) -> None:
    server = misbehaving(ACCEPTED, (200, {}, b"<html>\n</html>\n"))
    with Client(server.url) as client, pytest.raises(ServerFault, match="not an answer of this service"):
        list(client.judge_many([job("a")]))


def test_health_that_is_none_and_what_cannot_be_unpacked_are_clear_errors(
    misbehaving: Callable[..., Misbehaving],
) -> None:
    asked = steps.health()
    next(asked)
    with pytest.raises(ServerFault, match="not an answer of this service"):
        asked.send(httpx.Response(200, text="<html>some other server</html>"))
    server = misbehaving((202, {"Content-Encoding": "gzip"}, b"no gzip"))
    with Client(server.url, retries=ONCE) as client, pytest.raises(Unreachable, match="DecodingError"):
        client.submit(job("passed"))


def test_batches_are_cut_by_what_is_sent() -> None:
    """A control character is six bytes of JSON; of too long a body the awaiting client hears that it was cut off."""
    orders = [steps.submission_of(job("\x01" * (1 << 20)), None, "normal", None) for _ in range(3)]
    asked = steps.submit_many(orders, ONCE)
    request = next(asked)
    assert isinstance(request, Send) and request.body is not None
    assert len(request.body.encode()) <= steps.BATCH_BYTES


def test_a_client_is_light() -> None:
    code = (
        "import sys; from kerneldojo import Client, AsyncClient; from kerneldojo.client import ClientExecutor;"
        "heavy = {'torch', 'triton', 'numpy', 'ray', 'fastapi', 'starlette', 'uvicorn'} & set(sys.modules);"
        "sys.exit(str(heavy) if heavy else 0)"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
