"""Bodies of 1 MB that are meant to take long: `/health` answers meanwhile, and they take no more CPU time."""

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from time import process_time

import httpx
import pytest
from served import LONGEST, get, serving
from servers import ScriptedServer, answer_chat

from empathy_judge.judge.input_checks import why_unreadable
from empathy_judge.judge.llm.prompted import PromptedJudge

SIZE = 1_000_000
MOST = 10  # times the CPU time of a harmless body of the same size
ORDINARY = "Oh no! Where did you see them last? "
# Text that a pattern with two unbounded repeats, or a loop of replacements, reads again and again.
WORST = ("\n", " ", "<", "a ", "[[ ## ##", " ##", "=== ", ". ", "** ", "say ", "{", "[", '{"a":', "<think>")
TEXT = '{"model":"prompted","messages":[{"role":"user","content":"'
CHAT = '{"model":"prompted","messages":[{"role":"user","content":"x"}],'
SCHEMA = CHAT + '"response_format":{"type":"json_schema","json_schema":{"schema":{"properties":{'

FIELDS = ",".join(f'"a{n}":{{"$ref":"x"}}' for n in range(100))

Bodies = dict[str, tuple[bytes, list[bytes]]]


def repeat(head: str, unit: str, tail: str) -> bytes:
    return (head + unit * ((SIZE - len(head) - len(tail)) // len(unit)) + tail).encode()


def two_lists(head: str, first: str, between: str, second: str, tail: str) -> bytes:
    """Two numbered lists, each half of the body: every item of the one could meet every item of the other."""
    halves = [",".join(unit % n for n in range(SIZE // 2 // (len(unit) + 4))) for unit in (first, second)]
    return f"{head}{halves[0]}{between}{halves[1]}{tail}".encode()


def replies(unit: str, start: str = "") -> bytes:
    """As many of the longest replies that are accepted as make up the size."""
    text = json.dumps((start + unit * 100_000)[:98_000] + " ok")
    rows = [f'{{"id":"{n}","prompt":"Hm. {n}","response":{text}}}' for n in range(SIZE // len(text))]
    return f'{{"exchanges":[{",".join(rows)}]}}'.encode()


TEXTS: Bodies = {
    "/v1/score": (replies(ORDINARY), [replies(unit, "[[") for unit in WORST]),
    "/v1/chat/completions": (
        repeat(TEXT, ORDINARY, '"}]}'),
        [repeat(TEXT, json.dumps(unit)[1:-1], '"}]}') for unit in WORST],
    ),
}
MESSAGE = '{"role":"user","content":"Hm."}'
JUDGMENT = '{"id":"1","model":"m","content_digest":"a","prompt_digest":"a","unscored":"no words"}'
VALUES: Bodies = {
    "/v1/score": (
        repeat(f'{{"exchanges":[{{"messages":[{MESSAGE}', f",{MESSAGE}", "]}]}"),
        [
            repeat('{"exchanges":[7', ",7", "]}"),
            repeat('{"exchanges":[{"messages":[7', ",7", "]}]}"),
            repeat('{"exchanges":[{"prompt":"a","response":"b","dialogue":[7', ",7", "]}]}"),
        ],
    ),
    "/v1/chat/completions": (
        repeat(f'{{"model":"prompted","messages":[{MESSAGE}', f",{MESSAGE}", "]}"),
        [
            repeat('{"model":"prompted","messages":[7', ",7", "]}"),
            two_lists(SCHEMA, '"a%d":{}', '},"required":[', '"b%d"', "]}}}}"),
            two_lists(SCHEMA, '"a%d":{"$ref":"x"}', '},"$defs":{"x":{"anyOf":[', "%d", "]}}}}}}"),
            repeat(f'{SCHEMA}{FIELDS}}},"$defs":{{"x":{{"enum":[1', ",1", "]}}}}}}"),
        ],
    ),
    "/v1/shares": (
        repeat(f'{{"judgments":[{JUDGMENT}', f",{JUDGMENT}", "]}"),
        [
            repeat('{"judgments":[7', ",7", "]}"),
            repeat(f'{{"judgments":[{JUDGMENT[:-1]},"curve":["x"', ',"x"', "]}]}"),
        ],
    ),
}


@pytest.fixture(scope="module")
def client() -> Iterator[httpx.Client]:
    with ScriptedServer(answer_chat) as upstream:
        judge = PromptedJudge(base_url=upstream.base_url, model="m")
        with serving(judge) as url, httpx.Client(base_url=url, timeout=LONGEST) as client:
            yield client


def cpu_time(send: Callable[[], object]) -> float:
    started = process_time()
    send()
    return process_time() - started


CASES = [(path, *bodies[path]) for bodies in (TEXTS, VALUES) for path in bodies]


@pytest.mark.parametrize(("path", "harmless", "worst"), CASES, ids=range(len(CASES)))
def test_no_body_blocks_the_server(
    client: httpx.Client, path: str, harmless: bytes, worst: list[bytes]
) -> None:
    def send(body: bytes) -> None:
        assert 0.8 * SIZE < len(body) <= 1 << 20
        with ThreadPoolExecutor(1) as pool:
            kind = {"Content-Type": "application/json"}
            answer = pool.submit(client.post, path, content=body, headers=kind)
            assert get(f"{client.base_url}/health").status_code == 200
            assert answer.result().status_code in (200, 400)

    send(harmless)  # what is loaded once
    most = MOST * cpu_time(partial(send, harmless))
    for body in worst:
        # Any of three: garbage that others left is collected at any time.
        assert any(cpu_time(partial(send, body)) < most for _ in range(3)), body[:200]


def test_white_space_takes_no_longer_than_words() -> None:
    most = MOST * min(cpu_time(lambda: why_unreadable(ORDINARY * 200)) for _ in range(5)) + 0.02
    assert cpu_time(lambda: why_unreadable("Oh no!" + "\n" * 5_000)) < most
