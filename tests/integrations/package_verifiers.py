"""Run by a Python that has verifiers: episodes of the taskset with an endpoint of our own; prints what was recorded.

The endpoint speaks the chat protocol over real HTTP and answers each conversation by the number of its turns; all else
is theirs: the loader, the environment, the harness program in its own process, the interception server, the trace.
"""

from __future__ import annotations

import asyncio
import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import verifiers.v1 as vf
from verifiers.v1.clients import EvalClientConfig, ModelContext
from verifiers.v1.utils.loaders import load_environment, resolve_env_config

ANSWERS = {
    "climb": ["no code here", "```python\nincorrect one\n```", "```python\npassed two\n```"],
    "cheat": ["```python\npassed one\n```", "```python\nexploit two\n```", "```python\ncompile_error three\n```"],
    "cut": ["```python\npassed one\n```"] * 3,
    "fault": ["```python\ninfrastructure_error one\n```"],
}


PROMPTS: list[list[dict]] = []


class Endpoint(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        PROMPTS.append(asked["messages"])
        turn = sum(message["role"] == "assistant" for message in asked["messages"])
        finish = "length" if asked["model"] == "cut" else "stop"
        head = {"id": "x", "created": 0, "model": asked["model"]}
        message = {"role": "assistant", "content": ANSWERS[asked["model"]][turn]}
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        if asked.get("stream"):
            deltas = [
                {"index": 0, "delta": message, "finish_reason": None},
                {"index": 0, "delta": {}, "finish_reason": finish},
            ]
            chunks = [head | {"object": "chat.completion.chunk", "choices": [delta]} for delta in deltas]
            chunks[-1]["usage"] = usage
            text = "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks) + "data: [DONE]\n\n"
            self.reply(text, "text/event-stream")
            return
        choice = {"index": 0, "message": message, "finish_reason": finish}
        self.reply(
            json.dumps(head | {"object": "chat.completion", "choices": [choice], "usage": usage}), "application/json"
        )

    def reply(self, text: str, media: str) -> None:
        body = text.encode()
        self.send_response(200)
        self.send_header("Content-Type", media)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


async def main(url: str) -> dict:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Endpoint)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    client = EvalClientConfig(base_url=f"http://127.0.0.1:{server.server_address[1]}/v1", api_key_var="NO_SUCH_KEY")
    told = {"taskset": {"id": "kerneldojo-verifiers", "suites": ["katas:1"], "url": url, "play": {"device": "cpu"}}}
    env = load_environment(resolve_env_config(told))
    tasks = list(env.taskset)
    found: dict = {
        "environment": type(env).__name__,
        "num_tasks": len(tasks),
        "names": [t.data.name for t in tasks[:2]],
    }
    async with env.serving():
        for model in ANSWERS:
            context = ModelContext(client=client, model=model, sampling=vf.SamplingConfig())
            (slot,) = env.slots(tasks[0])
            episode = await env.run_slot(slot, context)
            trace = episode.traces[0] if episode.traces else None
            found[model] = {
                "ok": episode.ok,
                "errors": [f"{error.type}: {error.message}" for error in episode.errors],
                "reward": trace and trace.reward,
                "rewards": trace and sorted(trace.rewards),
                "metrics": trace and trace.metrics,
                "info": trace and trace.info.get("kerneldojo"),
                "stop": trace and trace.stop_condition,
                "trace_errors": trace and [f"{error.type}: {error.message}" for error in trace.errors],
            }
    found["prompts"] = [[message["content"][:400] for message in prompt] for prompt in PROMPTS[:3]]
    found["wire"] = json.loads(tasks[0].data.model_dump_json())["problem"]["name"]
    server.shutdown()
    return found


if __name__ == "__main__":
    print(json.dumps(asyncio.run(main(sys.argv[1]))))
