"""A model's answers to a file of prompts, as a folder that `score` goes on from.

    answers.jsonl    what came of every prompt: a response, or why there is none
    responses.jsonl  the responses alone, as `score` reads them
    manifest.json    who answered under which settings, how many failed and why; written last

`data.runs` says how such a folder survives whatever interrupts it.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from pathlib import Path
from statistics import fmean
from time import monotonic
from typing import Any

from data.errors import OperationalError, UserError
from data.prompts import read_prompts
from data.records import Exchange
from data.runs import open_run, read_manifest
from data.stores import digest_file
from data.tables import read_rows, to_json, write_rows
from judge.respond import MOST_WORDS, Responder
from judge.scoring import ask_all
from nightly.pipeline import OnProgress

ANSWERS, RESPONSES = "answers", "responses.jsonl"


@dataclass(frozen=True, slots=True, kw_only=True)
class RespondPlan:
    """What decides every response of a run: change one of these and it is another run."""

    model: str
    version: str
    style: str
    prompts: str

    @property
    def digest(self) -> str:
        return sha256(to_json(asdict(self)).encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True, kw_only=True)
class Responded:
    """A whole folder of responses, and how many prompts were asked just now."""

    folder: Path
    manifest: Mapping[str, Any]
    asked: int

    @property
    def responses(self) -> Path:
        return self.folder / RESPONSES


def plan_responses(prompts: Path, responder: Responder) -> RespondPlan:
    """What a run of this model over these prompts is known by."""
    return RespondPlan(
        model=responder.name,
        version=responder.version,
        style=responder.config.style,
        prompts=digest_file(prompts),
    )


def default_folder(prompts: Path, plan: RespondPlan) -> Path:
    """A folder that the same command finds again, and no other command."""
    safe = "".join(letter if letter.isalnum() or letter in "-._" else "-" for letter in plan.model)
    return Path("responses") / f"{prompts.stem}-{safe.strip('.-')[:60] or 'model'}-{plan.digest[:8]}"


def respond_to(
    prompts: Path,
    responder: Responder,
    plan: RespondPlan,
    folder: Path,
    *,
    limit: int | None = None,
    max_cost: float | None = None,
    on_progress: OnProgress = lambda done, total: None,
) -> Responded:
    """Have the model answer every prompt that `folder` holds no answer to yet, and make the run whole.

    `max_cost` bounds what this call spends, not what an earlier one did.
    """
    manifest = read_manifest(folder, plan)
    if manifest is not None and _answers(manifest, folder, limit=limit):
        return Responded(folder=folder, manifest=manifest, asked=0)
    started = monotonic()
    total = _count_prompts(prompts, limit)
    responder.endpoint.max_cost = None if max_cost is None else responder.endpoint.spent + max_cost
    with open_run(folder, plan, name=ANSWERS) as run:
        done = 0

        def count_one() -> None:
            nonlocal done
            done += 1
            on_progress(done, max(done, total))

        waiting = read_prompts(prompts)
        asked = ask_all(responder, responder.respond, waiting, run, limit=limit, on_progress=count_one)
        run.write_judgments()
        answers = {row["id"]: row for _, row in read_rows(run.judgments)}
        write_rows(folder / RESPONSES, _responses(prompts, answers, responder.name))
        manifest = {
            **asdict(plan),
            **_describe(responder),
            **_count(answers),
            "responses": digest_file(folder / RESPONSES),
            "limit": limit,
            "wall_seconds": round(monotonic() - started, 3),
        }
        run.finish(manifest=manifest)
    return Responded(folder=folder, manifest=manifest, asked=asked)


def check_answered(responded: Responded) -> None:
    """Refuse a folder without a single response: there is nothing to score in it."""
    counts = responded.manifest["counts"]
    if not counts["responses"]:
        reasons = say_counts(responded.manifest["reasons"])
        raise OperationalError(
            f"{responded.folder}: none of {counts['prompts']:,} prompts was answered: {reasons}; "
            "these are not asked again in this folder: mend the cause and name another with --out"
        )


def say_counts(counts: Mapping[str, int]) -> str:
    """Reasons, or whatever else was counted, on one line.

    >>> say_counts({"timed out": 2, "empty: no text": 1})
    'empty: no text (1), timed out (2)'
    """
    return ", ".join(f"{reason} ({count:,})" for reason, count in sorted(counts.items()))


def print_responded(responded: Responded, *, as_json: bool) -> None:
    """The manifest as JSON, or the few lines of it that a person wants to know."""
    from nightly.highlight import printable

    manifest = responded.manifest
    if as_json:
        print(json.dumps({**manifest, "run": str(responded.folder), "asked": responded.asked}, indent=2))
        return
    counts, words = manifest["counts"], manifest["words"]
    lines = [f"{counts['responses']:,} of {counts['prompts']:,} prompts answered by {manifest['model']}"]
    if counts["failed"]:
        lines.append(f"failed, and not among the responses: {say_counts(manifest['reasons'])}")
    if words["mean"] is not None:
        lines.append(f"{words['mean']:.1f} words on average; {words['too_long']:,} above {MOST_WORDS}")
    if served := manifest["served"]:
        lines.append(f"served as {say_counts(served)}")
    if len(served) > 1:
        lines.append("More than one model answered: the server changed it, or chooses among several.")
    if manifest["left_out"]:
        lines.append(f"the server refused, and was not sent: {', '.join(manifest['left_out'])}")
    if manifest["cost"] is not None:
        lines.append(f"{manifest['cost']:.4f} USD")
    lines.append(
        f"{responded.responses}" if responded.asked else f"{responded.responses} (nothing left to ask)"
    )
    for line in lines:
        print(printable(line))


def _answers(manifest: Mapping[str, Any], folder: Path, *, limit: int | None) -> bool:
    """Whether a whole run already holds what is asked for, and its responses are as they were written."""
    path = folder / RESPONSES
    try:
        reached, digest = manifest["limit"], manifest["responses"]
        is_enough = reached is None or (limit is not None and limit <= reached)
    except (KeyError, TypeError):
        return False  # of another version: made whole anew from its answers
    return is_enough and path.exists() and digest_file(path) == digest


def _count_prompts(prompts: Path, limit: int | None) -> int:
    """Reads them all first: a bad row is found before anything is paid for."""
    count = sum(1 for _ in read_prompts(prompts))
    if not count:
        raise UserError(f"{prompts}: nothing to answer: the file has no rows")
    return count if limit is None else min(count, limit)


def _responses(prompts: Path, answers: Mapping[str, Mapping[str, Any]], model: str) -> Iterator[Exchange]:
    for prompt in read_prompts(prompts):
        answer = answers.get(prompt.id, {})
        if "response" in answer:
            served = {"served": answer["served"]} if "served" in answer else {}
            extra = {**prompt.extra, **served}
            yield replace(prompt, response=answer["response"], model=model, extra=extra)


def _describe(responder: Responder) -> dict[str, Any]:
    config = responder.config
    return {
        "asked_for": config.model,
        "base_url": responder.endpoint.base_url,
        "key_env": config.key_env,
        "decoding": responder.decoding,
    }


def _count(answers: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    rows = answers.values()
    words = [len(row["response"].split()) for row in rows if "response" in row]
    reasons = Counter(row["failed"] for row in rows if "failed" in row)
    usage: Counter[str] = Counter()
    for row in rows:
        usage.update(row.get("usage") or {})
    return {
        "counts": {"prompts": len(answers), "responses": len(words), "failed": reasons.total()},
        "reasons": dict(sorted(reasons.items())),
        "served": dict(sorted(Counter(row["served"] for row in rows if "served" in row).items())),
        "left_out": sorted({name for row in rows for name in row.get("left_out", ())}),
        "words": {
            "mean": round(fmean(words), 2) if words else None,
            "too_long": sum(count > MOST_WORDS for count in words),
        },
        "tokens": {key: usage[f"{key}_tokens"] for key in ("input", "output")},
        "cost": round(usage["cost"], 6) if "cost" in usage else None,
    }
