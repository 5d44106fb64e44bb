"""How close the endpoint judges come to a bare loop: 1,000 calls of 200 ms, 32 at a time, on one server.

Beside them, on the same server and with the same limit: `dspy.Evaluate` with the same signature, and Inspect,
which is installed in a virtual environment of its own in the cache folder; where that fails it says why.
"""

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from time import perf_counter
from typing import Any

from bench_figures import Figure, in_turns, medians, say, score_rate

AT_ONCE, DELAY, LEAST = 32, 0.2, 0.95
INSPECT = "inspect_ai==0.3.*"
INSTALL_SECONDS, RIVAL_SECONDS = 240, 300
MODEL = "gpt-6-luna"


def measure(scratch: Path, *, quick: bool) -> Iterator[Figure]:
    from real_servers import start_slow_server

    from judge.llm.decision import DecisionJudge
    from judge.llm.fencing import fence_exchange
    from judge.llm.prompted import PromptedJudge

    calls, rounds, delay = (AT_ONCE, 1, 0.02) if quick else (1000, 3, DELAY)
    exchanges = make_exchanges(calls)
    with start_slow_server(delay=delay, most=AT_ONCE) as base_url:
        options: dict[str, Any] = {"base_url": base_url, "model": MODEL, "concurrency": AT_ONCE}
        decision, prompted = DecisionJudge(**options), PromptedJudge(**options)
        decisions = [decision.write_request(fence_exchange(item)) for item in exchanges]
        prompts = [prompted.write_requests(item)[0] for item in exchanges]
        for judge in (decision, prompted):
            score_rate(judge, exchanges[:AT_ONCE], scratch / f"warm-{judge.name}")
        contenders: dict[str, Callable[[int], float]] = {
            "bare, decision": lambda _: bare_loop(base_url, "/decisions", decisions),
            "decision": lambda number: score_rate(decision, exchanges, scratch / f"decision-{number}"),
            "bare, prompted": lambda _: bare_loop(base_url, "/chat/completions", prompts),
            "prompted": lambda number: score_rate(prompted, exchanges, scratch / f"prompted-{number}"),
        }
        if not quick:
            contenders.update(peers(base_url, exchanges, scratch))
        found = in_turns(contenders, rounds)
    yield from compare(medians(found), found, calls, delay)


def compare(
    rates: Mapping[str, float], found: Mapping[str, list[float]], calls: int, delay: float
) -> Iterator[Figure]:
    """Each by the bare loop that asks the same."""
    best = AT_ONCE / delay
    for name in ("decision", "prompted"):
        bare = f"bare, {name}"
        yield Figure(
            name=f"{name} over bare loop",
            value=rates[name] / rates[bare],
            unit=" x",
            least=LEAST,
            about=f"{rates[name]:.1f} over {rates[bare]:.1f} calls/s; {calls:,} calls, at best {best:.0f}/s",
            measured={name: found[name], bare: found[bare]},
        )
    for name in list(rates)[4:]:  # the peers
        yield Figure(
            name=f"{name} over bare loop",
            value=rates[name] / rates["bare, prompted"],
            unit=" x",
            about=f"{rates[name]:.1f} calls/s, for comparison with `prompted`",
            measured={name: found[name]},
        )


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


def peers(base_url: str, exchanges: list[Any], scratch: Path) -> Iterator[tuple[str, Callable[[int], float]]]:
    """Those that can be had here, tried on a few calls first."""
    runs: dict[str, Callable[[list[Any]], float]] = {
        "dspy.Evaluate": lambda part: dspy_evaluate(base_url, part),
        "Inspect": lambda part: inspect_ai(base_url, part, scratch),
    }
    for name, run in runs.items():
        try:
            run(exchanges[:AT_ONCE])
        except (OSError, ImportError, AssertionError, ValueError) as error:
            say(f"  {name} is not measured: {error}")
        else:
            yield name, lambda _, run=run: run(exchanges)


def dspy_evaluate(base_url: str, exchanges: list[Any]) -> float:
    """Examples a second of `dspy.Evaluate` with the prompted judge's own signature."""
    import logging

    import dspy

    from data.rubric import read_rubric
    from judge.llm.program import default_program, make_signature, present

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
    from judge.llm.fencing import fence_exchange

    folder = Path.home() / ".cache" / "empathy-judge" / "bench-inspect"
    python = folder / "bin" / "python"
    if not (folder / "whole").exists():
        say(f"  installing {INSPECT} into {folder}")
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
