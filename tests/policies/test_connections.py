"""Clients that share the requests to one endpoint."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack

from policy_requests import request

from endpoint_server import EndpointServer, running
from kerneldojo.policies.connections import REQUESTS_PER_CLIENT, Clients
from kerneldojo.policies.endpoint import EndpointConfig, EndpointPolicy


def test_clients_are_made_as_they_are_needed_and_none_has_too_many_requests() -> None:
    async def play() -> None:
        clients = Clients(api_key="none", base_url="http://127.0.0.1:1/v1", max_retries=0)
        with clients.one() as first, clients.one() as second:
            assert first is second
        with ExitStack() as stack:
            lent = [stack.enter_context(clients.one()) for _ in range(2 * REQUESTS_PER_CLIENT + 1)]
        assert {lent.count(client) for client in set(lent)} == {REQUESTS_PER_CLIENT, 1}
        with ExitStack() as stack:
            assert set(lent) == {stack.enter_context(clients.one()) for _ in range(2 * REQUESTS_PER_CLIENT + 1)}
        await clients.close()
        assert all(client.is_closed() for client in lent)

    asyncio.run(play())


KEPT_BY_ONE_CLIENT = 100
"""Idle connections; a client of the package closes those beyond."""


def test_connections_are_used_again_however_many_there_are() -> None:
    """More of them than one client of the package would keep; on a slow machine some may idle too long, and close."""
    num_requests, server, ports = 150, EndpointServer(), set[int]()
    num_times_again = 2

    @server.app.middleware("http")
    async def note(asked, answered):
        ports.add(asked.client.port)
        return await answered(asked)

    async def play(address: str) -> None:
        policy = EndpointPolicy("m", f"{address}/v1", EndpointConfig(concurrency=num_requests))
        for _ in range(1 + num_times_again):
            server.plan[:] = [{"sleep": 0.2}] * num_requests
            answers = await asyncio.gather(*(policy.answer(request()) for _ in range(num_requests)))
            assert all(answer.finish == "stop" for answer in answers)
        await policy.close()

    with running(server) as address:
        asyncio.run(play(address))
    made_by_one_client = num_requests + num_times_again * (num_requests - KEPT_BY_ONE_CLIENT)
    assert len(ports) < made_by_one_client
