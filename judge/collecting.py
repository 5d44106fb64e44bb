"""From the files a batch ended with to judgments: every request gets one, or a reason why it has none."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from data.files import disk_errors
from data.records import Exchange, Judgment
from judge.endpoint import RAW, CallFailed, Endpoint, Reply
from judge.parts import Part
from judge.prices import read_usage
from judge.wire import complaint

Replies = dict[int, Reply | CallFailed]


def collect_part(
    judge: Any,
    part: Part,
    left: Mapping[int, Exchange],
    files: Sequence[Path],
    *,
    hide: Callable[[Any], Any],
    discount: float,
) -> Iterator[tuple[int, Judgment]]:
    """The judgments of a part, with their positions; `left` loses what the caller has kept meanwhile.

    Files may be large (log-probabilities are), so they are read line by line, and only replies whose fellows
    have not come yet are kept in memory. Lines that are spoilt, that come twice or that nobody asked for are
    passed over; where that leaves a request without a reply, it has none.
    """
    expected = sorted(position for position in left if part.first <= position <= part.last)
    numbers = range(len(judge.write_requests(left[expected[0]])) if expected else 0)
    waiting: dict[int, Replies] = {}
    missing = CallFailed(f"batch {part.status}: this request is in none of its files")
    for path in files:
        for row in _rows(path, hide):
            place = _place(row, left, part)
            if place is None:
                continue
            position, number = place
            replies = waiting.setdefault(position, {})
            replies.setdefault(number, _reply(row, judge.endpoint, discount))
            wanted = len(judge.write_requests(left[position]))
            if len(replies) >= wanted:
                del waiting[position]
                yield (
                    position,
                    judge.read_replies(left[position], [replies[n] for n in sorted(replies)][:wanted]),
                )
    for position in expected:
        if position in left:
            replies = waiting.get(position, {})
            yield position, judge.read_replies(left[position], [replies.get(n, missing) for n in numbers])


def _rows(path: Path, hide: Callable[[Any], Any]) -> Iterator[dict[str, Any]]:
    with disk_errors(path), path.open("rb") as lines:
        for line in lines:
            try:
                row = hide(json.loads(line))
            except (ValueError, RecursionError):
                continue
            if isinstance(row, dict):
                yield row


def _place(row: Mapping[str, Any], left: Mapping[int, Exchange], part: Part) -> tuple[int, int] | None:
    """The position and sample a line answers, if it was asked and the exchange is still the same."""
    words = str(row.get("custom_id")).split("-")
    if len(words) != 3 or not (words[0].isdecimal() and words[2].isdecimal()):
        return None
    position, number = int(words[0]), int(words[2])
    if position not in left or not part.first <= position <= part.last:
        return None
    return (position, number) if left[position].content == words[1] else None


def _reply(row: Mapping[str, Any], endpoint: Endpoint, discount: float) -> Reply | CallFailed:
    response, error = row.get("response"), row.get("error")
    raw = json.dumps(row, ensure_ascii=False)[:RAW]
    if isinstance(error, dict) and error:
        return CallFailed(f"batch: {error.get('code')}: {str(error.get('message') or '')[:160]}", raw)
    if not isinstance(response, dict):
        return CallFailed("batch: a line without an answer", raw)
    body, status = response.get("body"), response.get("status_code")
    if status != 200:
        said = complaint(body)[:160]
        return CallFailed(f"HTTP {status}: {said}" if said else f"HTTP {status}", raw)
    if not isinstance(body, dict):
        return CallFailed("not JSON: a line without an object", raw)
    used = read_usage(body)
    usage: dict[str, float] = {}
    if used is not None:
        usage = {"input_tokens": used.input, "output_tokens": used.output}
        if endpoint.prices:
            usage["cost"] = round(discount * endpoint.prices.cost(used), 9)
    return Reply(body, usage)
