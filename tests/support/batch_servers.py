"""A server on the loopback with the Batch API: files, batches, and faults between the steps."""

import json
from collections import Counter
from collections.abc import Callable
from email.parser import BytesParser
from threading import Lock
from typing import Any
from urllib.parse import parse_qs, urlsplit

from servers import Answer, Call, ScriptedServer, answer

Respond = Callable[[dict[str, Any]], dict[str, Any] | None]  # a request's line -> its line, or none


def answer_line(row: dict[str, Any]) -> dict[str, Any]:
    """Return the line of a model's answer."""
    call = Call(number=0, path=row["url"], headers={}, body=row["body"])
    response = {"status_code": 200, "request_id": "r", "body": answer(call).body}
    return {"id": "batch_req", "custom_id": row["custom_id"], "response": response, "error": None}


class BatchServer(ScriptedServer):
    """Keeps files and batches. A batch ends when `is_done`; `fail` has statuses by step, one a call."""

    def __init__(self, respond: Respond = answer_line, *, is_done: bool = False) -> None:
        super().__init__(self.serve)
        self.respond = respond
        self.is_done, self.ends_as, self.page = is_done, "completed", 100
        self.error = "too many tokens enqueued"  # why a batch failed
        self.files: dict[str, bytes] = {}
        self.batches: list[dict[str, Any]] = []
        self.steps: Counter[str] = Counter()
        self.fail: dict[str, list[int]] = {}
        self.lock = Lock()

    def serve(self, call: Call) -> Answer:
        """Answer one step."""
        path = urlsplit(call.path).path
        step = _step(call.method, path)
        with self.lock:
            self.steps[step] += 1
            if self.fail.get(step):
                return Answer(status=self.fail[step].pop(0), body={"error": {"message": "not now"}})
            if step == "download":
                return Answer(body=self.files[path.split("/")[-2]])
            return Answer(body=self._act(step, path, call))

    def _act(self, step: str, path: str, call: Call) -> dict[str, Any]:
        if step == "ask":
            found: dict[str, Any] = answer(call).body
            return found
        if step == "upload":
            return self._store(_file_in(call.headers["content-type"], call.content))
        if step == "submit":
            total = self.files[call.body["input_file_id"]].count(b"\n")
            about = {"id": f"batch-{len(self.batches) + 1}", "object": "batch", "status": "in_progress"}
            counts = {"total": total, "completed": 0, "failed": 0}
            self.batches.append({**about, "request_counts": counts, **call.body})
            return self.batches[-1]
        if step == "list":
            ids, query = [item["id"] for item in self.batches], parse_qs(urlsplit(call.path).query)
            start = 1 + ids.index(query["after"][0]) if "after" in query else 0
            rows = self.batches[start : start + self.page]
            return {"data": rows, "has_more": start + self.page < len(self.batches)}
        batch = next(item for item in self.batches if item["id"] == path.rpartition("/")[2])
        self._progress(batch)
        return batch

    def _store(self, content: bytes) -> dict[str, Any]:
        identity = f"file-{len(self.files) + 1}"
        self.files[identity] = content
        return {"id": identity, "object": "file", "bytes": len(content)}

    def _progress(self, batch: dict[str, Any]) -> None:
        if not self.is_done or batch["status"] != "in_progress":
            return
        batch["status"] = self.ends_as
        if self.ends_as == "failed":
            batch["errors"] = {"data": [{"message": self.error}]}
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


def _step(method: str, path: str) -> str:
    last = path.rpartition("/")[2]
    if last == "batches":
        return "submit" if method == "POST" else "list"
    steps = {"content": "download", "files": "upload"}
    return steps.get(last, "poll" if "/batches/" in path else "ask")


def _file_in(content_type: str, content: bytes) -> bytes:
    message = BytesParser().parsebytes(f"Content-Type: {content_type}\r\n\r\n".encode() + content)
    parts = {part.get_param("name", header="content-disposition"): part for part in message.get_payload()}
    assert parts["purpose"].get_payload() == "batch"
    found = parts["file"].get_payload(decode=True)
    return found if found.endswith(b"\n") else found + b"\n"
