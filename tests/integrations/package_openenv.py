"""Run by a Python that has openenv: episodes with its own client, awaiting and blocking; prints what it saw."""

from __future__ import annotations

import asyncio
import json
import sys

from openenv.core.generic_client import GenericAction, GenericEnvClient

PROBLEM = "softmax_rows"


def told(result) -> list:
    seen = result.observation
    return [result.reward, result.done, seen["status"], seen["turn"]]


async def episode(url: str, headers: dict[str, str], code: str) -> list:
    async with GenericEnvClient(base_url=url, headers=headers) as env:
        first = await env.reset(seed=5, episode_id=code, problem=PROBLEM)
        found = [
            told(first),
            told(await env.step({"answer": "no code"})),
            told(await env.step(GenericAction(code=code))),
        ]
        state = await env.state()
        found.append([state["episode_id"], state["step_count"]])
        try:
            await env.step({"porblem": 1})
        except RuntimeError as error:
            found.append(str(error))
        found.append(told(await env.step({"code": "exploit last"})))
        return found


async def several(url: str, headers: dict[str, str]) -> list:
    return await asyncio.gather(
        *(episode(url, headers, code) for code in ("passed one", "sleep 0.2 two", "incorrect 3"))
    )


def blocking(url: str, headers: dict[str, str]) -> list:
    with GenericEnvClient(base_url=url, headers=headers).sync() as env:
        found = [told(env.reset(problem=PROBLEM, num_turns=1))]
        found.append(told(env.step({"code": "passed sync"})))
        found.append(told(env.reset(num_turns=2)))
        return found


def unwelcome(url: str) -> str:
    try:
        with GenericEnvClient(base_url=url).sync() as env:
            env.reset()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "let in"


if __name__ == "__main__":
    url, token = sys.argv[1:]
    headers = {"Authorization": f"Bearer {token}"}
    found = {"several": asyncio.run(several(url, headers)), "sync": blocking(url, headers), "stranger": unwelcome(url)}
    print(json.dumps(found))
