"""The description of the routes: bodies are read by hand, so their schemas are added by hand, too."""

from collections.abc import Sequence
from dataclasses import fields
from typing import Any, Final

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel, TypeAdapter
from pydantic.json_schema import models_json_schema

from data.records import Exchange
from data.tables import MAX_TEXT

PLACE: Final = "#/components/schemas/{model}"
REFUSALS: Final = {
    400: "The body is no JSON, or a field or a question is not one we take; the message names it.",
    401: "The key is missing or wrong.",
    404: "There is no such model.",
    408: "The body did not arrive in time.",
    413: "The body is too large.",
    415: "The body is not sent as JSON.",
    421: "The request was meant for another host.",
    502: "The judge's own server failed.",
    503: "Too many exchanges are waiting; Retry-After says for how many seconds.",
}


class Complaint(BaseModel):
    """What was wrong."""

    message: str
    type: str
    param: str | None
    code: str | None


class Refusal(BaseModel):
    """The answer to every request that gets none."""

    error: Complaint


def takes(body: type[BaseModel], answer: type[BaseModel]) -> dict[str, Any]:
    """The options of a route that takes such a body and gives such an answer."""
    schema = {"$ref": PLACE.format(model=body.__name__)}
    content = {"application/json": {"schema": schema}}
    refusals = {
        status: {"model": Refusal, "description": description} for status, description in REFUSALS.items()
    }
    return {
        "openapi_extra": {"requestBody": {"required": True, "content": content}},
        "responses": {200: {"model": answer}, **refusals},
        "response_model": None,
    }


def describe(app: FastAPI, bodies: Sequence[type[BaseModel]], *, model: str) -> None:
    """Have the application describe itself with these bodies, about the one model it has."""
    described: dict[str, Any] = {}

    def write() -> dict[str, Any]:
        if not described:
            described.update(get_openapi(title=app.title, version=app.version, routes=app.routes))
            _, found = models_json_schema([(body, "validation") for body in bodies], ref_template=PLACE)
            schemas = described["components"]["schemas"]
            schemas.update(found["$defs"])
            schemas["Exchange"] = exchange_schema(schemas)
            schemas["ScoreRequest"]["properties"]["exchanges"]["items"] = {
                "$ref": PLACE.format(model="Exchange")
            }
            for body in bodies:
                if "model" in body.model_fields:
                    schemas[body.__name__]["properties"]["model"]["enum"] = [model]
        return described

    app.openapi = write  # type: ignore[method-assign]


def exchange_schema(schemas: dict[str, Any]) -> dict[str, Any]:
    """An exchange as a request brings it: the id may be left out, other keys are kept."""
    schema: dict[str, Any] = TypeAdapter(Exchange).json_schema(ref_template=PLACE)
    schemas.update(schema.pop("$defs", {}))
    schema["required"] = ["prompt", "response"]
    schema["properties"].pop("extra")
    for name in ("prompt", "response"):
        schema["properties"][name] |= {"minLength": 1, "maxLength": MAX_TEXT}
    assert set(schema["properties"]) == {item.name for item in fields(Exchange)} - {"extra"}
    return schema
