"""A server on the loopback that answers by a script, for every fault there is."""

import json
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Lock, Thread
from time import monotonic, sleep
from typing import Any, Self

LONGEST_HANG = 30.0  # seconds; no test waits longer, and a forgotten one ends
LABELS = ("Bad", "Okay", "Good")


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One request as it came."""

    number: int  # from 0, in the order of arrival
    path: str
    headers: Mapping[str, str]  # names in lower case
    body: Any  # parsed, or None
    method: str = "POST"
    content: bytes = b""

    @property
    def text(self) -> str:
        """What the request is about: its state, its input or its last message."""
        body = self.body or {}
        last = body.get("messages", [{}])[-1]
        return str(body.get("state") or body.get("input") or last.get("content", ""))


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What to send back, and how badly."""

    body: Any = field(default_factory=dict)  # bytes and text go as they are, all else as JSON
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    hang: bool = False  # send nothing until the server closes or is released
    cut: bool = False  # promise all, send half, hang up
    drip: float = 0.0  # seconds between single bytes of the body
    delay: float = 0.0  # seconds before anything is sent
    raw: bytes | None = None  # sent instead of any HTTP
    then: bytes = b""  # sent again and again after `raw`, every `drip` seconds, until the server closes


Script = Callable[[Call], Answer]


class _QuietServer(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 256

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that leaves early is what many tests are about."""


class ScriptedServer:
    """Answers every call as `script` says and remembers it; on a free port, until its `with` block ends."""

    def __init__(self, script: Script) -> None:
        self.release = Event()  # set it to let hanging calls go
        self._server = _QuietServer(("127.0.0.1", 0), _handler(self))
        self._thread = Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self.script = script
        self.calls: list[Call] = []
        self._lock = Lock()

    @property
    def base_url(self) -> str:
        """The address of the API."""
        return f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.release.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(timeout=LONGEST_HANG)

    def wait_for_calls(self, count: int) -> None:
        """Return once this many calls have come."""
        deadline = monotonic() + LONGEST_HANG
        while len(self.calls) < count:
            assert monotonic() < deadline, f"only {len(self.calls)} of {count} calls came"
            sleep(0.01)

    def take(self, method: str, path: str, headers: Mapping[str, str], content: bytes) -> Answer:
        """Remember a call and ask the script what to answer."""
        body = None
        with suppress(ValueError):
            body = json.loads(content)
        with self._lock:
            lower = {name.lower(): value for name, value in headers.items()}
            about: dict[str, Any] = {"method": method, "content": content}
            call = Call(number=len(self.calls), path=path, headers=lower, body=body, **about)
            self.calls.append(call)
        return self.script(call)


def _handler(owner: ScriptedServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_POST(self) -> None:
            content = self.rfile.read(int(self.headers.get("content-length", 0)))
            self.send(owner.take(self.command, self.path, dict(self.headers), content))

        do_GET = do_POST

        def send(self, answer: Answer) -> None:
            if answer.delay:
                owner.release.wait(answer.delay)
            if answer.hang:
                owner.release.wait(LONGEST_HANG)
                self.close_connection = True
                return
            if answer.raw is not None:
                self.wfile.write(answer.raw)
                while answer.drip and not owner.release.wait(answer.drip):
                    self.wfile.write(answer.then)
                self.close_connection = True
                return
            body = answer.body if isinstance(answer.body, bytes | str) else json.dumps(answer.body)
            content = body.encode() if isinstance(body, str) else body
            head = [f"HTTP/1.1 {answer.status} Scripted", f"Content-Length: {len(content)}"]
            head += ["Content-Type: application/json"] if isinstance(answer.body, dict | list) else []
            head += [f"{name}: {value}" for name, value in answer.headers.items()]
            start = ("\r\n".join(head) + "\r\n\r\n").encode("latin-1")
            if answer.cut:
                self.wfile.write(start + content[: len(content) // 2])
                self.close_connection = True
            elif answer.drip:
                self.wfile.write(start)
                for position in range(len(content)):
                    if owner.release.wait(answer.drip):
                        break
                    self.wfile.write(content[position : position + 1])
                self.close_connection = True
            else:
                # In one piece, else the second waits for an acknowledgement.
                self.wfile.write(start + content)

        def log_message(self, *arguments: Any) -> None:
            """Say nothing."""

    return Handler


def known_probabilities(text: str) -> dict[str, float]:
    """Probabilities of the labels that follow from a text and nothing else."""
    weights = [1 + byte for byte in sha256(text.encode()).digest()[:3]]
    return {label: round(weight / sum(weights), 6) for label, weight in zip(LABELS, weights, strict=True)}


def known_component(text: str, name: str) -> float:
    """The probability of a component that follows from a text and nothing else."""
    return round(sha256(f"{name} {text}".encode()).digest()[0] / 255, 6)


def answer_decisions(call: Call) -> Answer:
    """Answer as `/v1/decisions` does, or as `/v1/systemone` where the questions have names."""
    found, questions = known_probabilities(call.text), call.body["questions"]
    rows: Any = [{"label": label, "probability": part} for label, part in found.items()]
    is_named, key = isinstance(questions, dict), "probability"
    if is_named:
        rows, key = {str(at): part for at, part in enumerate(found.values())}, "noul"
        questions = [{**question, "name": name} for name, question in questions.items()]
    answers = [
        {name: question[name] for name in ("type", "name")}
        | ({"probabilities": rows} if question["type"] == "score" else {})
        | ({key: known_component(call.text, question["name"])} if question["type"] != "score" else {})
        for question in questions
    ]
    by_name = {item["name"]: item for item in answers}
    usage = {"input_tokens": 1000, "output_tokens": 0}
    body = {"model": call.body["model"], "answers": by_name if is_named else answers, "usage": usage}
    return Answer(body=body)


def answer_chat(call: Call, text: str | None = None) -> Answer:
    """As `/v1/chat/completions` answers, with `text`, or else with Good in the form that is asked for."""
    message = {"role": "assistant", "content": _fill_in(call.body) if text is None else text}
    choice = {"index": 0, "message": message, "finish_reason": "stop", "logprobs": None}
    usage = {"prompt_tokens": 200, "completion_tokens": 5, "total_tokens": 205}
    about = {"id": f"chat-{call.number}", "object": "chat.completion", "created": 0}
    return Answer(body={**about, "model": call.body["model"], "choices": [choice], "usage": usage})


def shares(good: float = 100, okay: float = 0) -> str:
    """An answer of a judge in mode "shares"."""
    return json.dumps({"Bad": 100 - good - okay, "Okay": okay, "Good": good})


def _fill_in(body: Mapping[str, Any]) -> str:
    """An answer that holds to the request's schema, or to the fields that its instructions list."""
    schema = body.get("response_format", {}).get("json_schema", {}).get("schema", {})
    listed = re.findall(r"^- (\w+): ", body["messages"][0]["content"].rpartition("in this order:")[2], re.M)
    fields = schema.get("properties") or {name: {"type": "integer"} for name in listed}
    if schema.get("type") != "object" and "in this order:" not in body["messages"][0]["content"]:
        return "Good"
    numbers = {"Bad": 0, "Okay": 0, "reason": "It is kind."}
    texts = {name: "Good" if "enum" in about else "It is kind." for name, about in fields.items()}
    return json.dumps(
        {
            name: numbers.get(name, 100) if about.get("type") == "integer" else texts[name]
            for name, about in fields.items()
        }
    )


def answer(call: Call) -> Answer:
    """As the path asks for."""
    asks_typed = call.path.endswith(("/decisions", "/systemone"))
    return answer_decisions(call) if asks_typed else answer_chat(call)
