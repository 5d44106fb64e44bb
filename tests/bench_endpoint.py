"""How close the endpoint judges come to a bare loop: 1,000 calls of 200 ms, 32 at a time, on one server.

Nothing here is a test: a busy machine makes every figure worse. The exit code is 1 when a limit is missed.
"""

import argparse
import asyncio
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

ROOT = Path(__file__).parent.parent
AT_ONCE, DELAY, LEAST = 32, 0.2, 0.95
MODEL = "gpt-6-luna"


def make_exchanges(count: int) -> list[Any]:
    """As many exchanges, no two alike."""
    from data.records import Exchange

    return [
        Exchange(id=str(n), prompt=f"I lost letter {n}.", response=f"Oh no, letter {n}! I am so sorry.")
        for n in range(count)
    ]


def bare_loop(base_url: str, path: str, bodies: list[Any]) -> float:
    """Calls a second of `asyncio` and the `openai` client, a semaphore around each call and nothing else."""
    from openai import AsyncOpenAI

    async def run() -> float:
        places = asyncio.Semaphore(AT_ONCE)
        async with AsyncOpenAI(base_url=base_url, api_key="none", max_retries=0) as client:

            async def ask(body: Any) -> object:
                async with places:
                    return await client.post(path, body=body, cast_to=object)

            await asyncio.gather(*(ask(body) for body in bodies[:AT_ONCE]))  # connections, imports
            start = perf_counter()
            await asyncio.gather(*(ask(body) for body in bodies))
            return len(bodies) / (perf_counter() - start)

    return asyncio.run(run())


def our_engine(judge: Any, exchanges: list[Any], scratch: Path) -> float:
    """Judgments a second through the engine, into a run folder, as the command does it."""
    from data.runs import Plan, open_run
    from judge.scoring import score_exchanges

    def run(number: int, part: list[Any]) -> float:
        plan = Plan(judge=judge.name, version=judge.version, rubric=judge.rubric.digest, input=str(number))
        start = perf_counter()
        with open_run(scratch / f"{judge.name}-{number}", plan) as run:
            score_exchanges(judge, part, run)
            run.write_judgments()
        return perf_counter() - start

    run(0, exchanges[:AT_ONCE])
    return len(exchanges) / run(1, exchanges)


def contests(base_url: str) -> Iterator[tuple[str, Any, str, Callable[[Any], Any]]]:
    """A name, our judge, and the path and bodies with which the bare loop asks the same."""
    from judge.decision import DecisionJudge
    from judge.fencing import fence_exchange

    decision = DecisionJudge(base_url=base_url, model=MODEL, concurrency=AT_ONCE)
    yield "decision", decision, "/decisions", lambda item: decision.write_request(fence_exchange(item))
    try:
        from judge.prompted import PromptedJudge
    except ImportError as error:
        print(f"prompted: left out ({error})", file=sys.stderr)
        return
    prompted = PromptedJudge(base_url=base_url, model=MODEL, concurrency=AT_ONCE)

    def chat(item: Any) -> Any:
        message = {"role": "user", "content": fence_exchange(item).text}
        return {"model": MODEL, "messages": [message], "max_tokens": 200}

    yield "prompted", prompted, "/chat/completions", chat


def main() -> int:
    parser = argparse.ArgumentParser(description="Measure the throughput of judges that ask a server.")
    parser.add_argument("--calls", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=2, help="in turns; the best of each counts")
    options = parser.parse_args()
    sys.path[:0] = [str(ROOT), str(ROOT / "tests")]
    from real_servers import start_slow_server

    exchanges = make_exchanges(options.calls)
    is_met = True
    with TemporaryDirectory() as scratch, start_slow_server(delay=DELAY, most=AT_ONCE) as base_url:
        best = AT_ONCE / DELAY
        print(f"{options.calls:,} calls of {DELAY * 1000:.0f} ms, {AT_ONCE} at a time: at best {best:.0f}/s")
        for name, judge, path, write in contests(base_url):
            bodies = [write(item) for item in exchanges]
            ours = bare = 0.0
            for number in range(options.rounds):
                bare = max(bare, bare_loop(base_url, path, bodies))
                ours = max(ours, our_engine(judge, exchanges, Path(scratch) / str(number)))
            ratio = ours / bare
            is_met &= ratio >= LEAST
            verdict = "ok" if ratio >= LEAST else "MISSED"
            print(f"{name:<10} {ours:>7.1f}/s   bare loop {bare:>7.1f}/s   ratio {ratio:.3f}  {verdict}")
    return 0 if is_met else 1


if __name__ == "__main__":
    sys.exit(main())
