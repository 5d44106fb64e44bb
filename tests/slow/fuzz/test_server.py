"""Requests made from our own OpenAPI, valid and broken: the server answers none with an error of its own.

`make trust` sends thousands: FUZZ_REQUESTS sets how many.
"""

import json
import os
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from rating_plans import make_plan, serving_plan
from repository import TESTS
from served import serving

from empathy_judge.judge.base import load_judge

schemathesis = pytest.importorskip("schemathesis")
sys.path.insert(0, str(TESTS / "fuzz"))

from fuzz import mutate  # noqa: E402  # needs the line above

REQUESTS = int(os.environ.get("FUZZ_REQUESTS", "0"))
CHECKED = {
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_schema_conformance",
}
ROW = {"prompt": "I lost my dog.", "response": "Oh no! \u00e9 \U0001f600", "dialogue": [], "id": 7}
BODIES: dict[str, dict[str, Any]] = {
    "/v1/score": {"exchanges": [ROW, {**ROW, "id": 8}], "explain": True},
    "/v1/chat/completions": {
        "model": "length",
        "messages": [{"role": "user", "content": json.dumps(ROW)}],
        "response_format": {"type": "json_object"},
    },
}


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with serving(load_judge("length")) as url:
        yield url


@pytest.mark.parametrize("mode", list(schemathesis.GenerationMode), ids=lambda mode: mode.value)
def test_requests_made_from_the_description_meet_what_it_says(server: str, mode: Any) -> None:
    schema = schemathesis.openapi.from_dict(httpx.get(f"{server}/openapi.json").json())
    schema.config.update(base_url=server)
    checks = [check for check in schemathesis.checks.CHECKS.get_all() if check.__name__ in CHECKED]
    operations = [found.ok() for found in schema.get_all_operations()]
    posts = [operation for operation in operations if operation.method.upper() == "POST"]
    statuses: Counter[int] = Counter()
    for operation in posts:

        @seed(0)
        @settings(
            max_examples=max(10, REQUESTS // len(posts)),
            deadline=None,
            database=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(operation.as_strategy(generation_mode=mode))
        def send(case: Any) -> None:
            answer = case.call()
            statuses[answer.status_code] += 1
            case.validate_response(answer, checks=checks)

        send()
    assert len(checks) == len(CHECKED) and statuses


def test_broken_bodies_are_refused(server: str, tmp_path: Path) -> None:
    plan = make_plan(tmp_path / "plan")
    token, rater = next(iter(plan.raters.items()))
    act = {"index": 0, "key": rater.order[0], "n": 1, "label": "Good", "reason": "kind"}
    with httpx.Client(base_url=server, timeout=60) as judge, serving_plan(tmp_path / "plan") as page:
        send_broken(judge, BODIES)
        send_broken(page, {f"/r/{token}/ratings": act})


def send_broken(client: httpx.Client, bodies: dict[str, dict[str, Any]]) -> None:
    """Send changed bodies; some are taken, and the others refused."""
    chance, statuses = Random(0), Counter[int]()
    for _ in range(max(300, REQUESTS)):
        path = chance.choice(list(bodies))
        body = mutate([json.dumps(bodies[path]).encode()], chance)
        answer = client.post(path, content=body, headers={"Content-Type": "application/json"})
        statuses[answer.status_code] += 1
    assert statuses[200] and statuses[400]
    assert set(statuses) <= {200, 400, 404, 409, 413, 422, 503}
