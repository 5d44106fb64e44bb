"""A server on the loopback that speaks the Batch API: files, batches, and faults between the steps."""

import json
from collections import Counter
from collections.abc import Callable
from email.parser import BytesParser
from http.server import BaseHTTPRequestHandler
from threading import Event, Lock
from time import monotonic
from typing import Any
from urllib.parse import parse_qs, urlsplit

from servers import LONGEST_HANG, Call, LoopbackServer, answer

Respond = Callable[[dict[str, Any]], dict[str, Any] | None]  # a request's line -> its line, or none


def answer_line(row: dict[str, Any]) -> dict[str, Any]:
    """As a model would answer it."""
    call = Call(number=0, path=row["url"], headers={}, body=row["body"], repeat=0)
    response = {"status_code": 200, "request_id": "r", "body": answer(call).body}
    return {"id": "batch_req", "custom_id": row["custom_id"], "response": response, "error": None}


class BatchServer(LoopbackServer):
    """Keeps files and batches. A batch ends when `is_done`; `hang_after` are steps whose answer never comes.

    What a step does is done before it hangs: a client killed then does not know whether it was.
    """

    def __init__(self, respond: Respond = answer_line) -> None:
        super().__init__(_handler(self))
        self.respond = respond
        self.is_done = False
        self.ends_as = "completed"
        self.errors: list[str] = []
        self.files: dict[str, bytes] = {}
        self.batches: list[dict[str, Any]] = []
        self.steps: Counter[str] = Counter()
        self.hang_after: set[str] = set()
        self.fail: dict[str, list[int]] = {}  # statuses with which a step is refused, one a call
        self.live: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.page = 100
        self.lock = Lock()
        self._came = Event()

    def wait_for(self, step: str, count: int = 1) -> None:
        """Returns once a step has been taken so often."""
        deadline = monotonic() + 600  # against hanging only
        while self.steps[step] < count:
            assert monotonic() < deadline, f"{step} came {self.steps[step]} times, not {count}"
            self._came.wait(0.05)
            self._came.clear()

    def serve(
        self, verb: str, path: str, headers: dict[str, str], content: bytes
    ) -> tuple[int, bytes] | None:
        """The status and body of an answer; None for none at all."""
        parts = urlsplit(path)
        with self.lock:
            self.headers.append({name.lower(): value for name, value in headers.items()})
            step = _step(verb, parts.path)
            refused = self.fail.get(step) or []
            if refused:
                status, body = refused.pop(0), json.dumps({"error": {"message": "not now"}}).encode()
            else:
                status, body = 200, self._act(step, parts.path, parse_qs(parts.query), headers, content)
            self.steps[step] += 1
            self._came.set()
            return None if step in self.hang_after else (status, body)

    def _act(self, step: str, path: str, query: Any, headers: dict[str, str], content: bytes) -> bytes:
        if step == "ask":
            body = json.loads(content)
            self.live.append(body)
            found: Any = answer(Call(number=0, path=path, headers={}, body=body, repeat=0)).body
        elif step == "upload":
            found = self._store(_file_in(headers["Content-Type"], content))
        elif step == "submit":
            found = self._open(json.loads(content))
        elif step == "list":
            ids = [item["id"] for item in self.batches]
            start = 1 + ids.index(query["after"][0]) if "after" in query else 0
            rows = self.batches[start : start + self.page]
            found = {"data": rows, "has_more": start + self.page < len(self.batches)}
        elif step == "download":
            return self.files[path.split("/")[-2]]
        else:
            found = next(item for item in self.batches if item["id"] == path.rpartition("/")[2])
            self._progress(found)
        return json.dumps(found).encode()

    def _store(self, content: bytes) -> dict[str, Any]:
        identity = f"file-{len(self.files) + 1}"
        self.files[identity] = content
        return {"id": identity, "object": "file", "bytes": len(content)}

    def _open(self, body: dict[str, Any]) -> dict[str, Any]:
        total = self.files[body["input_file_id"]].count(b"\n")
        batch = {
            "id": f"batch-{len(self.batches) + 1}",
            "object": "batch",
            "status": "in_progress",
            "request_counts": {"total": total, "completed": 0, "failed": 0},
            **body,
        }
        self.batches.append(batch)
        return batch

    def _progress(self, batch: dict[str, Any]) -> None:
        if not self.is_done or batch["status"] != "in_progress":
            return
        batch["status"] = self.ends_as
        if self.ends_as == "failed":
            batch["errors"] = {"data": [{"message": error} for error in self.errors]}
            return
        rows = [json.loads(line) for line in self.files[batch["input_file_id"]].splitlines()]
        lines = [line for row in rows if (line := self.respond(row)) is not None]
        good = [line for line in lines if not line.get("error") and line["response"]["status_code"] == 200]
        bad = [line for line in lines if line not in good]
        batch["request_counts"] |= {"completed": len(good), "failed": len(bad)}
        for kind, found in (("output_file_id", good), ("error_file_id", bad)):
            # From the last to the first: nobody may rely on the order.
            text = "".join(json.dumps(line) + "\n" for line in reversed(found)).encode()
            batch[kind] = self._store(text)["id"] if found else None


def _step(verb: str, path: str) -> str:
    if path.endswith("/content"):
        return "download"
    if path.endswith("/files"):
        return "upload"
    if path.endswith("/batches"):
        return "submit" if verb == "POST" else "list"
    return "poll" if "/batches/" in path else "ask"


def _file_in(content_type: str, content: bytes) -> bytes:
    message = BytesParser().parsebytes(f"Content-Type: {content_type}\r\n\r\n".encode() + content)
    parts = {part.get_param("name", header="content-disposition"): part for part in message.get_payload()}
    assert parts["purpose"].get_payload() == "batch"
    found = parts["file"].get_payload(decode=True)
    return found if found.endswith(b"\n") else found + b"\n"


def _handler(owner: BatchServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_POST(self) -> None:
            size = self.headers.get("content-length")
            content = self.rfile.read(int(size)) if size else self._chunks()
            self._answer("POST", content)

        def do_GET(self) -> None:
            self._answer("GET", b"")

        def _chunks(self) -> bytes:
            content = b""
            while size := int(self.rfile.readline(), 16):
                content += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
            return content

        def _answer(self, verb: str, content: bytes) -> None:
            found = owner.serve(verb, self.path, dict(self.headers), content)
            if found is None:
                owner.release.wait(LONGEST_HANG)
                self.close_connection = True
                return
            status, body = found
            head = f"HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
            self.wfile.write(f"{head}\r\n\r\n".encode() + body)

        def log_message(self, *arguments: Any) -> None:
            """Say nothing."""

    return Handler
