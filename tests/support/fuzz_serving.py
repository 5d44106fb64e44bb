"""Requests made up from our own OpenAPI, valid and broken, against a running server: counts by status.

fuzz_serving.py [--requests 10000] [--corrupted 10000] [--seed 0] [--json FILE] starts the server itself, with
the length judge, and ends with 1 if it ever answered with an error of its own other than 503. Making up a
request takes about 0.1 s, corrupting one next to nothing.
"""

import argparse
import json
import random
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

import httpx
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from repository import ROOT
from schemathesis import Case, GenerationMode
from schemathesis.checks import CHECKS

CHECKED = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_schema_conformance",
)
MODES = (GenerationMode.POSITIVE, GenerationMode.NEGATIVE)


def fuzz(
    url: str, requests: int, *, start: int = 0, on_part: Callable[[str], object] = lambda said: None
) -> Counter[int]:
    """Send about so many requests, shared out evenly over routes and modes; how often each status came.

    Fails on an answer that the description does not allow, which an error of the server's own never is.
    """
    described = httpx.get(f"{url}/openapi.json").json()
    schema = schemathesis.openapi.from_dict(described)
    schema.config.update(base_url=url)
    operations = [found.ok() for found in schema.get_all_operations()]
    statuses: Counter[int] = Counter()
    checks = [check for check in CHECKS.get_all() if check.__name__ in CHECKED]
    assert len(checks) == len(CHECKED)
    pairs = [(operation, mode) for operation in operations for mode in MODES]
    pairs = [pair for pair in pairs if pair[0].method.upper() == "POST" or pair[1] is MODES[0]]
    posts = [pair for pair in pairs if pair[0].method.upper() == "POST"]
    for operation, mode in pairs:
        # The routes without a body have next to nothing to vary.
        count = requests // len(posts) if (operation, mode) in posts else min(20, requests // len(pairs))
        if not count:
            continue
        _send(operation.as_strategy(generation_mode=mode), count, start, statuses, checks)
        on_part(f"{operation.method.upper()} {operation.path}, {mode.value}: {dict(statuses)} so far")
    return statuses


def _send(cases: Any, count: int, start: int, statuses: Counter[int], checks: Any) -> None:
    @seed(start)
    @settings(
        max_examples=count,
        deadline=None,
        database=None,
        derandomize=False,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(cases)
    def send(case: Case) -> None:
        answer = case.call()
        statuses[answer.status_code] += 1
        case.validate_response(answer, checks=checks)

    send()


def corrupted(seed_number: int, count: int) -> Iterator[tuple[str, bytes]]:
    """Routes, and valid bodies for them with bytes changed, cut, doubled: what no schema would think of."""
    chance = random.Random(seed_number)
    row = {"prompt": "I lost my dog.", "response": "Oh no! \u00e9 \U0001f600", "dialogue": [], "id": 7}
    levels = [{"label": label} for label in ("Bad", "Okay", "Good")]
    question = {"type": "score", "instructions": "?", "levels": levels}
    bodies: dict[str, dict[str, Any]] = {
        "/v1/score": {"exchanges": [row, {**row, "id": 8}], "explain": True},
        "/v1/decisions": {"model": "length", "input": json.dumps(row), "questions": [question]},
        "/v1/chat/completions": {
            "model": "length",
            "messages": [{"role": "user", "content": json.dumps(row)}],
            "response_format": {"type": "json_object"},
        },
    }
    for _ in range(count):
        path = chance.choice(list(bodies))
        body = bytearray(json.dumps(bodies[path], ensure_ascii=chance.random() < 0.5).encode())
        for _ in range(chance.randint(0, 4)):
            place = chance.randrange(len(body))
            kind = chance.randrange(4)
            if kind == 0:
                body[place] = chance.randrange(256)
            elif kind == 1:
                del body[place : place + chance.randint(1, 20)]
            elif kind == 2:
                body[place:place] = body[place : place + chance.randint(1, 20)]
            else:
                body[place:place] = chance.choice(
                    [b"null", b"1e999", b"NaN", b"[", b"{}", b'"', b"\\ud800", b"\x00"]
                )
            body = body or bytearray(b"{")
        yield path, bytes(body)


def send_corrupted(url: str, count: int, *, start: int = 0) -> Counter[int]:
    """The same for broken bodies."""
    statuses: Counter[int] = Counter()
    with httpx.Client(base_url=url, headers={"Content-Type": "application/json"}, timeout=60) as client:
        for path, body in corrupted(start, count):
            statuses[client.post(path, content=body).status_code] += 1
    return statuses


def count_failures(statuses: Counter[int]) -> int:
    """Errors of the server's own: all but "come again later"."""
    return sum(count for status, count in statuses.items() if status >= 500 and status != 503)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--corrupted", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path)
    told = parser.parse_args()
    sys.path.insert(0, str(ROOT))  # as a script, Python looks for modules beside it only
    from served import serving

    from judge.base import load_judge

    began = perf_counter()
    with serving(load_judge("length")) as url:
        broken = send_corrupted(url, told.corrupted, start=told.seed)
        print(f"corrupted: {dict(broken)}", file=sys.stderr, flush=True)
        say = partial(print, file=sys.stderr, flush=True)
        made = fuzz(url, told.requests, start=told.seed, on_part=say)
    found = {
        "requests": sum(made.values()) + sum(broken.values()),
        "seconds": round(perf_counter() - began, 1),
        "from_openapi": {str(status): made[status] for status in sorted(made)},
        "corrupted": {str(status): broken[status] for status in sorted(broken)},
        "server_errors": count_failures(made + broken),
    }
    print(json.dumps(found, indent=2))
    if told.json:
        told.json.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    return int(found["server_errors"] > 0)


if __name__ == "__main__":
    raise SystemExit(main())
