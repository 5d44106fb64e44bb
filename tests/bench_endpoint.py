"""How close the endpoint judges come to a bare loop: 1,000 calls of 200 ms, 32 at a time, on one server.

Beside them, on the same server and with the same limit: `dspy.Evaluate` with the same signature, and Inspect,
which is installed in a virtual environment of its own in the cache folder; where that fails it says why.
Nothing here is a test: a busy machine makes every figure worse. The exit code is 1 when a limit is missed.
"""

import argparse
import asyncio
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

ROOT = Path(__file__).parent.parent
AT_ONCE, DELAY, LEAST = 32, 0.2, 0.95
INSPECT = "inspect_ai==0.3.*"
INSTALL_SECONDS, RIVAL_SECONDS = 240, 300
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

    yield "prompted", prompted, "/chat/completions", lambda item: prompted.write_requests(item)[0]


def dspy_evaluate(base_url: str, exchanges: list[Any]) -> float:
    """Examples a second of `dspy.Evaluate` with the prompted judge's own signature."""
    import logging

    import dspy

    from data.rubric import read_rubric
    from judge.program import default_program, make_signature, present

    logging.getLogger("dspy").setLevel(logging.ERROR)
    rubric = read_rubric("crowd")
    program = dspy.Predict(make_signature(default_program(rubric, "direct"), rubric))
    lm = dspy.LM(f"openai/{MODEL}", api_base=base_url, api_key="none", cache=False)
    examples = [
        dspy.Example(exchange=present(item).text, label="Good").with_inputs("exchange") for item in exchanges
    ]

    def run(part: list[Any]) -> float:
        evaluate = dspy.Evaluate(
            devset=part,
            metric=lambda example, found, trace=None: example.label == found.label,
            num_threads=AT_ONCE,
            display_progress=False,
        )
        start = perf_counter()
        found = evaluate(program)
        assert found.score == 100.0, "every answer is Good"
        return perf_counter() - start

    with dspy.context(lm=lm, adapter=dspy.JSONAdapter()):
        run(examples[:AT_ONCE])
        return len(examples) / run(examples)


def inspect_ai(base_url: str, exchanges: list[Any], scratch: Path) -> float:
    """Samples a second of Inspect, in an environment of its own; raises `OSError` where it cannot be had."""
    from judge.fencing import fence_exchange
    from judge.large import find_cache

    folder = find_cache() / "bench-inspect"
    python = folder / "bin" / "python"
    if not (folder / "whole").exists():
        print(f"installing {INSPECT} into {folder} ...", file=sys.stderr, flush=True)
        run_command([sys.executable, "-m", "venv", "--clear", str(folder)], INSTALL_SECONDS)
        run_command([str(python), "-m", "pip", "install", "-q", INSPECT, "openai"], INSTALL_SECONDS)
        (folder / "whole").touch()
    prompts = scratch / "prompts.json"
    prompts.write_text(json.dumps([fence_exchange(item).text for item in exchanges]), encoding="utf-8")
    script = Path(__file__).parent / "bench_inspect.py"
    arguments = [base_url, MODEL, AT_ONCE, prompts, scratch / "logs"]
    said = run_command([str(python), str(script), *map(str, arguments)], RIVAL_SECONDS)
    found = json.loads(said.splitlines()[-1])
    if found["scored"] != len(exchanges):
        raise OSError(f"scored {found['scored']:,} of {len(exchanges):,}")
    return float(found["rate"])


def run_command(words: list[str], seconds: float) -> str:
    """What a command prints; `OSError` with its last words where it fails or takes too long."""
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=seconds, check=False)
    except subprocess.TimeoutExpired as error:
        raise OSError(f"{Path(words[0]).name} took longer than {seconds:.0f} s") from error
    if done.returncode:
        raise OSError((done.stderr or done.stdout).strip()[-300:])
    return done.stdout


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
        bares: dict[str, float] = {}
        for name, judge, path, write in contests(base_url):
            bodies = [write(item) for item in exchanges]
            ours = bare = 0.0
            for number in range(options.rounds):
                bare = max(bare, bare_loop(base_url, path, bodies))
                ours = max(ours, our_engine(judge, exchanges, Path(scratch) / str(number)))
            bares[name] = bare
            ratio = ours / bare
            is_met &= ratio >= LEAST
            verdict = "ok" if ratio >= LEAST else "MISSED"
            print(f"{name:<10} {ours:>7.1f}/s   bare loop {bare:>7.1f}/s   ratio {ratio:.3f}  {verdict}")
        rivals: dict[str, Callable[[], float]] = {
            "dspy.Evaluate": lambda: dspy_evaluate(base_url, exchanges),
            "Inspect": lambda: inspect_ai(base_url, exchanges, Path(scratch)),
        }
        for name, measure in rivals.items():
            try:
                rate = measure()
            except (OSError, ImportError, AssertionError, ValueError) as error:
                print(f"{name}: not measured: {error}")
                continue
            print(f"{name:<14} {rate:>7.1f}/s   ratio to the bare loop {rate / bares['prompted']:.3f}")
    return 0 if is_met else 1


if __name__ == "__main__":
    sys.exit(main())
