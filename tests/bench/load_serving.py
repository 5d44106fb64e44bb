"""Many clients at once against a server: how long answers take, and how many there are.

Run as a script, this file is the clients: a process of its own, told by stdin whom to ask for what.
"""

import argparse
import asyncio
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import cycle
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
SAMPLES = ROOT / "data" / "samples" / "responses.jsonl"


def measure_load(
    url: str, clients: int, seconds: float, *, rows: Sequence[dict[str, Any]] | None = None, size: int = 1
) -> dict[str, Any]:
    """So many clients ask for `size` exchanges each, again and again, for so long, from another process.

    Whoever is told to come again does so after Retry-After, or not at all if that is past the end.
    """
    command = [sys.executable, __file__, "--clients", str(clients), "--seconds", str(seconds)]
    given = json.dumps({"url": url, "size": size, "rows": list(rows or read_samples())})
    done = subprocess.run(command, input=given, capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def read_samples() -> list[dict[str, Any]]:
    """The shipped responses."""
    return [json.loads(line) for line in SAMPLES.read_text(encoding="utf-8").splitlines()]


async def ask_together(given: dict[str, Any], clients: int, seconds: float) -> dict[str, Any]:
    """The load itself; times are of answers, in seconds."""
    host, _, port = given["url"].removeprefix("http://").partition(":")
    rows = cycle(given["rows"])
    took: list[float] = []
    statuses: Counter[int] = Counter()
    judged = 0
    began = perf_counter()

    def next_request() -> bytes:
        exchanges = [{**next(rows), "id": str(number)} for number in range(given["size"])]
        body = json.dumps({"exchanges": exchanges}).encode()
        head = f"POST /v1/score HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
        return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body

    async def ask() -> None:
        nonlocal judged
        # By hand, since client libraries take about as much time as the server: the load would measure them.
        reader, writer = await asyncio.open_connection(host, int(port))
        while perf_counter() - began < seconds:
            start = perf_counter()
            writer.write(next_request())
            status, wait = await read_answer(reader)
            statuses[status] += 1
            if status == 200:
                took.append(perf_counter() - start)
                judged += given["size"]
            elif wait:
                await asyncio.sleep(min(wait, max(0.0, seconds - (perf_counter() - began))))
        writer.close()
        await writer.wait_closed()

    await asyncio.gather(*(ask() for _ in range(clients)))
    lasted = perf_counter() - began
    took.sort()
    return {
        "clients": clients,
        "seconds": round(lasted, 2),
        "answers": len(took),
        "statuses": {str(status): statuses[status] for status in sorted(statuses)},
        "p50": round(took[len(took) // 2], 4) if took else None,
        "p99": round(took[int(len(took) * 0.99)], 4) if took else None,
        "longest": round(took[-1], 4) if took else None,
        "exchanges": judged,
        "exchanges_per_second": round(judged / lasted, 2),
        "client_cpu_seconds": round(process_time(), 3),
    }


async def read_answer(reader: asyncio.StreamReader) -> tuple[int, float]:
    """The status of an answer, and how long it asks us to wait."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower().split("\r\n")
    headers = dict(line.split(": ", 1) for line in head[1:] if line)
    await reader.readexactly(int(headers["content-length"]))
    return int(head[0].split()[1]), float(headers.get("retry-after", 0))


@contextmanager
def started(*options: str) -> Iterator[tuple[str, int]]:
    """A server of its own process: its address and its number."""
    command = [sys.executable, str(ROOT / "cli.py"), "serve", "--port", "0", *options]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        line = process.stderr.readline()
        assert line.startswith("serving "), line
        yield line.partition(" at ")[2].partition(";")[0], process.pid
        process.terminate()
        assert process.wait(timeout=60) == 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    told = parser.parse_args()
    print(json.dumps(asyncio.run(ask_together(json.load(sys.stdin), told.clients, told.seconds))))


if __name__ == "__main__":
    main()
