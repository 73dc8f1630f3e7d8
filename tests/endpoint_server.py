"""A real HTTP server that speaks OpenAI's and vLLM's protocols, and misbehaves on demand.

What it does with the next requests stands in `plan`, a list of behaviours that are used up one by one; afterwards it
behaves. Every request it gets is kept in `seen`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import threading
import time
from pathlib import Path

import uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response, StreamingResponse


class EndpointServer:
    def __init__(self):
        self.plan: list[dict] = []
        self.seen: list[dict] = []
        self.times: list[float] = []
        self.active = 0
        self.most_active = 0
        self.reply = {"content": "```python\nclass ModelNew: ...\n```", "finish_reason": "stop", "extra": {}}
        self.usage: dict | None = {"prompt_tokens": 1000, "completion_tokens": 200, "total_tokens": 1200}
        self.gives_token_ids = True
        self.app = FastAPI()
        self.app.post("/v1/chat/completions")(self.chat)
        self.app.post("/v1/completions")(self.completion)
        self.app.get("/v1/models")(self.models)
        self.app.post("/tokenize")(self.tokenize)
        self.loaded: list[str] = []
        self.takes_weights = True
        self.app.post("/collective_rpc")(self.reload)
        self.app.post("/reset_prefix_cache")(self.forget)

    async def _begin(self, request: Request) -> tuple[dict, dict]:
        body = await request.json()
        self.seen.append({**body, "_key": request.headers.get("authorization", "")})
        self.times.append(time.monotonic())
        self.active += 1
        self.most_active = max(self.most_active, self.active)
        try:
            step = self.plan.pop(0) if self.plan else {}
            await asyncio.sleep(step.get("sleep", 0))
        finally:
            self.active -= 1
        return body, step

    @staticmethod
    def _misbehaved(step: dict) -> Response | None:
        if "status" in step:
            error = {"error": {"message": step.get("message", "no"), "type": "x", "code": step.get("code")}}
            return JSONResponse(error, step["status"], headers=step.get("headers"))
        if "body" in step:
            return Response(step["body"], media_type=step.get("media_type", "application/json"))
        if step.get("drop"):

            async def broken():
                yield b'{"id": "x", "choi'
                raise ConnectionResetError("dropped on purpose")

            return StreamingResponse(broken(), media_type="application/json", headers={"content-length": "500"})
        return None

    async def chat(self, request: Request) -> Response:
        body, step = await self._begin(request)
        if (response := self._misbehaved(step)) is not None:
            return response
        head = {"id": "c1", "created": 1, "model": body["model"]}
        finish = step.get("finish_reason", self.reply["finish_reason"])
        if not body.get("stream"):
            message = {"role": "assistant", "content": self.reply["content"], **self.reply["extra"]}
            choice = {"index": 0, "message": message, "finish_reason": finish}
            whole = {**head, "object": "chat.completion", "choices": [choice], "usage": self.usage}
            return Response(json.dumps(whole), media_type="application/json")

        def event(delta, finish_reason=None, **more):
            choices = [] if delta is None else [{"index": 0, "delta": delta, "finish_reason": finish_reason}]
            chunk = {**head, "object": "chat.completion.chunk", "choices": choices, **more}
            return f"data: {json.dumps(chunk)}\n\n"

        async def pieces():
            yield event({"role": "assistant", "content": ""})
            if step.get("second_choice"):
                other = {"index": 1, "delta": {"content": "another answer"}, "finish_reason": None}
                yield f"data: {json.dumps({**head, 'object': 'chat.completion.chunk', 'choices': [other]})}\n\n"
            for field, text in self.reply["extra"].items():
                for start in range(0, len(text), 5):
                    yield event({field: text[start : start + 5]})
            for start in range(0, len(self.reply["content"]), 7):
                if step.get("break_stream") and start > 7:
                    raise ConnectionResetError("dropped on purpose")
                if step.get("end_stream") and start > 7:
                    return
                yield event({"content": self.reply["content"][start : start + 7]})
            yield event({}, finish)
            if self.usage:
                yield event(None, usage=self.usage)
            yield "data: [DONE]\n\n"

        return StreamingResponse(pieces(), media_type="text/event-stream")

    async def completion(self, request: Request) -> Response:
        """vLLM's: answers with the prompt's ids, each increased by one, and an end token 2."""
        body, step = await self._begin(request)
        if (response := self._misbehaved(step)) is not None:
            return response
        ids = [*(token + 1 for token in body["prompt"]), 2][: body["max_tokens"]]
        finish = step.get("finish_reason", "stop" if ids[-1] == 2 else "length")
        names = [f"token_id:{i}" if body.get("return_tokens_as_token_ids") else f"t{i}" for i in ids]
        logprobs = {
            "tokens": names,
            "token_logprobs": step.get("logprobs", [-0.5 - i / 1000 for i in ids]),
            "top_logprobs": [{name: -0.1} for name in names],
            "text_offset": list(range(len(ids))),
        }
        text = " ".join(str(i) for i in ids if i != 2)
        choice = {"index": 0, "text": text, "finish_reason": finish, "stop_reason": None, "logprobs": logprobs}
        if body.get("return_token_ids") and self.gives_token_ids:
            choice |= {"token_ids": step.get("token_ids", ids), "prompt_token_ids": body["prompt"]}
        if self.gives_token_ids is None:
            choice["logprobs"] = None
        usage = {"prompt_tokens": len(body["prompt"]), "completion_tokens": len(ids), "total_tokens": 0}
        head = {"id": "c1", "object": "text_completion", "created": 1, "model": body["model"]}
        text = json.dumps({**head, "choices": [choice], "usage": usage}).replace('"NaN"', "NaN")
        return Response(text, media_type="application/json")

    async def models(self) -> dict:
        return {"object": "list", "data": [{"id": "served-model", "object": "model", "created": 1, "owned_by": "vllm"}]}

    async def reload(self, request: Request) -> Response:
        """As vLLM in its development mode: the folder must be there while it is read."""
        body = await request.json()
        if not self.takes_weights:
            return JSONResponse({"detail": "Not Found"}, 404)
        assert body["method"] == "reload_weights" and list(Path(body["kwargs"]["weights_path"]).glob("*.safetensors"))
        self.loaded.append(body["kwargs"]["weights_path"])
        return JSONResponse({"results": [None]})

    async def forget(self) -> dict:
        return {"success": True}

    async def tokenize(self, request: Request) -> dict:
        body = await request.json()
        self.seen.append(body)
        return {"count": 3, "max_model_len": 100, "tokens": [5, 6, 7]}


@contextlib.contextmanager
def running(server: EndpointServer):
    """Serve in a thread; gives the address."""
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    config = uvicorn.Config(server.app, log_level="critical", lifespan="off", timeout_graceful_shutdown=1)
    service = uvicorn.Server(config)
    thread = threading.Thread(target=service.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        service.should_exit = True
        thread.join(20)
        listener.close()
