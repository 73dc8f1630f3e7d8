"""Request bodies and the description of the API.

Bodies are parsed by pydantic straight from bytes: one strict parser (bounded depth, no NaN, no lone surrogates) that
is several times faster than parsing to dictionaries first. The price is that the request bodies' schemas are put into
the OpenAPI description here, by hand.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any, TypeVar, cast

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ValidationError
from pydantic.json_schema import models_json_schema
from starlette.exceptions import HTTPException

BODY_SECONDS = 60.0
"""How long a client may take to send a body."""

MAX_ERRORS = 5
"""Mistakes that one answer names."""

MAX_BUILT_ERRORS = 100
"""Mistakes that are looked at to name some of them: pydantic builds all of them or none, a kilobyte each."""

MAX_VALUES = 100_000
"""Values that one body holds, at most; a full batch has a quarter of them.

Parsed, a value of two bytes is 32, and as a mistake some hundred more: what is small on the wire would be no more.
"""

Model = TypeVar("Model", bound=BaseModel)


async def read_body(request: Request, model: type[Model]) -> Model:
    """The request's body as a `model`.

    Raises:
        HTTPException: 400 not JSON, 408 too slow, 413 too many values, 415 not said to be plain JSON, 422 not a
            `model`.
    """
    media = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media != "application/json":
        raise HTTPException(415, "the body must be application/json")
    if (encoding := request.headers.get("content-encoding", "identity").strip().lower()) not in ("", "identity"):
        raise HTTPException(415, f"the body must be sent as it is, not as {encoding[:20]!r}")
    try:
        data = await asyncio.wait_for(request.body(), BODY_SECONDS)
    except TimeoutError:
        raise HTTPException(408, "the body took too long", {"Connection": "close"}) from None
    if has_too_many_values(data):
        raise HTTPException(413, f"a body holds at most {MAX_VALUES} values")
    try:
        return model.model_validate_json(data)
    except ValidationError as error:
        raise HTTPException(422 if is_json(error) else 400, mistakes(error)) from None


def has_too_many_values(data: bytes) -> bool:
    """Whether JSON holds more than `MAX_VALUES`, found by counting: parsing is what costs.

    Each value but the first of a list or of an object has a comma before it, and each of these a bracket.
    """
    if _num_marks(data) <= MAX_VALUES:
        return False
    # Most marks of a batch are in the text of its sources. Without the escapes, quotes are the ends of strings.
    plain = data.replace(rb"\\", b"").replace(rb"\"", b"")
    if plain.count(b'"') > 4 * MAX_VALUES:  # A key and a value at each mark.
        return True
    return _num_marks(b"".join(plain.split(b'"')[::2])) > MAX_VALUES


def _num_marks(data: bytes) -> int:
    return data.count(b",") + data.count(b"[") + data.count(b"{")


def is_json(error: ValidationError) -> bool:
    """Whether what was refused was JSON at all; what is none has that one mistake."""
    return error.error_count() > 1 or error.errors(include_url=False, include_input=False)[0]["type"] != "json_invalid"


def mistakes(error: ValidationError) -> str:
    """The mistakes that pydantic found, as one line."""
    if error.error_count() > MAX_BUILT_ERRORS:
        return f"body: {error.error_count()} mistakes, too many to be named"
    return one_line(error.errors(include_url=False, include_input=False, include_context=False))


def one_line(details: Iterable[Any]) -> str:
    """Mistakes as one line: where, and what; never the input, which may be long or secret."""
    found = list(details)
    # A list whose every element is wrong is found to be empty as well, which it is not.
    listed = [one for one in found if one["type"] != "too_short" or not any(_lies_in(other, one) for other in found)]
    words = [f"{'.'.join(str(part) for part in detail['loc']) or 'body'}: {detail['msg']}" for detail in listed]
    more = f"; and {len(words) - MAX_ERRORS} more" if len(words) > MAX_ERRORS else ""
    line = "; ".join(words[:MAX_ERRORS]) + more
    return line.encode("ascii", "backslashreplace").decode()[:1000]


def _lies_in(detail: Any, other: Any) -> bool:
    place = other["loc"]
    return detail["loc"] != place and detail["loc"][: len(place)] == place


def validation_line(error: RequestValidationError) -> str:
    """The same for what FastAPI found in a path or a query."""
    return one_line(error.errors())


def body_of(model: type[BaseModel]) -> dict[str, Any]:
    """`openapi_extra` of a route that reads a `model`."""
    schema = {"$ref": f"#/components/schemas/{model.__name__}"}
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


def describe(app: FastAPI, models: Iterable[type[BaseModel]]) -> None:
    """Make `app.openapi()` know the models that bodies are read as."""
    build = app.openapi

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            schema = build()
            _, found = models_json_schema(
                [(model, "validation") for model in models], ref_template="#/components/schemas/{model}"
            )
            components = cast("dict[str, Any]", schema.setdefault("components", {}).setdefault("schemas", {}))
            for name, definition in found.get("$defs", {}).items():
                # What is stored is sent, and fields that are computed from others are not stored.
                components[name] = definition
            app.openapi_schema = schema
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]
