"""Files and batches of an endpoint's server: few calls, one at a time, of any size."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from threading import Event
from time import monotonic
from typing import Any, Final

from data.errors import OperationalError
from data.files import disk_errors, replacing
from judge.endpoint import LONGEST_RETRY_AFTER, LONGEST_WAIT, Endpoint
from judge.keys import Key
from judge.wire import LOOPBACK, Answer, read_answer, read_retry_after

SLOWEST: Final = 3600.0  # seconds for one file, however steadily it comes


class Refused(OperationalError):
    """A call that has no answer; `may_have_come` where the server may have acted on it all the same."""

    def __init__(self, message: str, answer: Answer) -> None:
        super().__init__(message)
        self.is_passing = answer.is_passing
        self.may_have_come = answer.may_have_cost
        self.retry_after = answer.retry_after


class Transfer:
    """Speaks to the server of `endpoint` with its key, and keeps that as secret."""

    def __init__(self, endpoint: Endpoint, *, sleep: Callable[[float], object] | None = None) -> None:
        import httpx

        self.endpoint, self.key = endpoint, Key(endpoint.key_env)
        self.sleep = sleep or Event().wait
        self._client = httpx.Client(
            headers={"Accept-Encoding": "identity"} | self.key.headers,
            timeout=endpoint.timeout,
            follow_redirects=False,  # the key is for this server and no other
            mounts=dict.fromkeys(LOOPBACK),
        )

    def close(self) -> None:
        """Let go of the connections."""
        self._client.close()

    def get(self, path: str) -> dict[str, Any]:
        """A JSON object; asked for again where that may help, since asking changes nothing."""
        return self._again(lambda: self._send("GET", path))

    def post(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Sent once: whether to send it again is for the caller, who knows how to look whether it came."""
        content = json.dumps(body).encode()
        return self._send("POST", path, content=content, headers={"Content-Type": "application/json"})

    def upload(self, path: str, file: Path, fields: Mapping[str, str]) -> dict[str, Any]:
        """A file with some fields; a file that came twice costs nothing, so this is tried again."""

        def send() -> dict[str, Any]:
            with disk_errors(file), file.open("rb") as stream:
                given = {"file": (file.name, stream, "application/jsonl")}
                return self._send("POST", path, data=dict(fields), files=given)

        return self._again(send)

    def download(self, path: str, to: Path) -> None:
        """A file of the server's, whole or not at all."""

        def receive() -> dict[str, Any]:
            with disk_errors(to), replacing(to) as partial, partial.open("wb") as out:
                return self._send("GET", path, out=out.write)

        self._again(receive)

    def _again(self, call: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        for tries in range(self.endpoint.retries + 1):
            try:
                return call()
            except Refused as refused:
                if not refused.is_passing or tries == self.endpoint.retries:
                    raise
                self.rest(refused, tries)
        raise AssertionError("the last try returns or raises")

    def rest(self, refused: Refused, tries: int) -> None:
        """Wait before the next try: as long as the server asks, else ever longer."""
        if refused.retry_after is not None:
            self.sleep(min(refused.retry_after, LONGEST_RETRY_AFTER))
        else:
            self.sleep(min(LONGEST_WAIT, 2.0**tries))

    def _send(
        self, method: str, path: str, *, out: Callable[[bytes], object] | None = None, **content: Any
    ) -> dict[str, Any]:
        import httpx

        try:
            with self._client.stream(method, self.endpoint.base_url + path, **content) as response:
                is_file = out is not None and response.status_code == 200
                text = bytearray()
                deadline = monotonic() + SLOWEST
                for part in response.iter_raw():
                    (out if is_file and out else text.extend)(part)
                    if monotonic() > deadline:
                        raise httpx.ReadTimeout("too slow")
                if is_file:
                    return {}
                status, after = response.status_code, read_retry_after(response.headers)
                said = Answer(status=status, text=text.decode("utf-8", "replace"), retry_after=after)
                answer = read_answer(said, self.key)
        except (httpx.ConnectTimeout, httpx.ConnectError) as error:
            told = self.key.hide(str(error)) or type(error).__name__
            answer = Answer(problem=f"no connection: {told}", is_passing=True)
        except (httpx.TimeoutException, httpx.TransportError) as error:
            is_late = isinstance(error, httpx.TimeoutException)
            problem = "timed out" if is_late else "answer cut short"
            answer = Answer(problem=problem, is_passing=True, may_have_cost=True)
        if answer.found is None:
            raise Refused(
                f"{self.endpoint.base_url}{path.partition('?')[0]}: {answer.problem}; what was done is kept: "
                "the same command goes on from there",
                answer,
            )
        return answer.found
