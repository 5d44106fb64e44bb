"""The judge as a child process: a JSON object a line on stdin, each answered by a line on stdout.

A request is `{"id": 1, "route": "/v1/score", "body": {"exchanges": [...]}}`, or `/v1/shares` with judgments;
the answer has its id and the body that the server gives, or `error`. The first line describes the judge.
"""

import os
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Lock
from typing import Any, BinaryIO

from empathy_judge.data.errors import UserError
from empathy_judge.data.input_limits import MOST_REQUESTS
from empathy_judge.data.readers.file_formats import parse_json
from empathy_judge.data.tables import Row, read_exchange, to_json
from empathy_judge.judge.base import load_both_units
from empathy_judge.server.served_judge import ServedJudge

Body = Mapping[str, Any]


def serve_stdio(judge_name: str, calibration: str | None) -> None:
    """Answer until stdin ends."""
    # Output of libraries must not mix with the answers.
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    judge, conversations = load_both_units(judge_name)
    served = ServedJudge(judge, calibration, conversations=conversations)
    try:
        answer_lines(served, sys.stdin.buffer, answers)
    finally:
        served.close()


def answer_lines(served: ServedJudge, lines: Iterable[bytes], answers: BinaryIO) -> None:
    """Answer every line; requests overlap, so their answers may come in another order."""
    lock = Lock()

    def send(row: Mapping[str, Any]) -> None:
        with lock:
            answers.write(to_json(row).encode() + b"\n")
            answers.flush()

    with ThreadPoolExecutor(served.judge.concurrency) as judging, ThreadPoolExecutor(MOST_REQUESTS) as asked:
        routes = {"/v1/score": partial(_score, served, judging), "/v1/shares": partial(_shares, served)}
        send({"ready": True, **served.about()})
        for line in lines:
            if line.strip():
                asked.submit(_answer, line, routes, send)


def _answer(
    line: bytes, routes: Mapping[str, Callable[[Body], Body]], send: Callable[[Mapping[str, Any]], None]
) -> None:
    identity = None
    try:
        try:
            request = parse_json(line)
        except (ValueError, RecursionError) as error:
            why = "nested too deeply" if isinstance(error, RecursionError) else error
            raise UserError(f"not a line of JSON: {why}") from None
        if not isinstance(request, dict) or not isinstance(request.get("body"), dict):
            raise UserError("a request is an object with id, route and body")
        identity = request.get("id")
        if request.get("route") not in routes:
            raise UserError(f"route: expected one of {', '.join(routes)}")
        send({"id": identity, "body": routes[request["route"]](request["body"])})
    except UserError as error:
        send({"id": identity, "error": str(error)})
    except BrokenPipeError:
        os._exit(0)  # the client has ended
    except Exception as error:  # a bug: reported on both sides; the next request may succeed
        traceback.print_exc()
        send({"id": identity, "error": f"the judge failed: {type(error).__name__}: {error}"})


def _score(served: ServedJudge, judging: ThreadPoolExecutor, body: Body) -> Body:
    served, exchanges = served.of_unit(body.get("unit")), []
    for place, row in enumerate(_rows(body, "exchanges")):
        try:
            exchanges.append(read_exchange(row, line=place + 1))
        except UserError as error:
            raise UserError(f"exchanges.{place}: {error}") from None
    rows = list(judging.map(partial(served.row, is_explained=False), exchanges))
    return {**served.about(rows), "judgments": rows}


def _shares(served: ServedJudge, body: Body) -> Body:
    seed = body.get("seed", 0)
    if not isinstance(seed, int) or seed < 0:
        raise UserError("seed: expected an integer of 0 or more")
    return served.of_unit(body.get("unit")).shares(_rows(body, "judgments"), seed=seed)


def _rows(body: Body, name: str) -> list[Row]:
    rows = body.get(name)
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise UserError(f"{name}: expected a list of objects")
    return rows
