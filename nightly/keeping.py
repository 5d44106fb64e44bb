"""A night's findings as the records that the history keeps."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from calibration.intervals import finite_or_none
from data.nights import EmotionResult, GateResult, JudgedResponse, ModelResult, ShareResult
from data.records import LABELS
from nightly.gate import Result
from nightly.limits import AGAINST, Gate
from nightly.measuring import Measured

FINE: Final = ("pass", "skipped")


def keep_model(measured: Measured, details: Mapping[str, Any]) -> ModelResult:
    """A model's shares, as judged and as corrected, and what came of it."""
    row = measured.summary
    corrected = row.get("corrected") or {}
    refused = {"refused": row["refused"]} if row.get("refused") else {}
    found = measured.run.summary.get("flagged")
    flagged = {"flagged": found} if found and found["count"] else {}
    return ModelResult(
        model=measured.model,
        served=measured.served,
        responses=measured.responses,
        n=row["judged"],
        unscored=measured.unscored,
        raw={label: ShareResult(**row["shares"][label], how="judge") for label in row["shares"]},
        corrected={label: ShareResult(**corrected[label], how="line") for label in corrected},
        cost=measured.cost,
        seconds=measured.seconds,
        details={**details, **refused, **flagged},
    )


def keep_emotions(judged: Iterable[JudgedResponse]) -> list[EmotionResult]:
    """Sums by model and emotion; responses without an emotion are in none."""
    found: defaultdict[tuple[str, str], list[JudgedResponse]] = defaultdict(list)
    for item in judged:
        if item.emotion is not None and item.good is not None:
            found[item.model, item.emotion].append(item)
    return [
        EmotionResult(
            model=model,
            emotion=emotion,
            n=len(items),
            **{name: round(sum(getattr(item, name) for item in items), 6) for name in map(str.lower, LABELS)},
        )
        for (model, emotion), items in sorted(found.items())
    ]


def keep_gate(result: Result) -> GateResult:
    """What a gate said; `subject` is what it is held against, or its emotion."""
    gate = result.gate
    return GateResult(
        gate=gate.kind,
        model=result.model,
        subject=gate.against or gate.emotion or "",
        outcome=result.outcome,
        value=finite_or_none(result.value),
        limit=gate.limit,
        sentence=result.sentence,
    )


def read_results(kept: Iterable[GateResult], findings: Sequence[Mapping[str, Any]]) -> list[Result]:
    """The gates' results back from the history, those in `findings` with the emotions that drove them."""
    emotions = {(item["model"], item["gate"]): tuple(item["emotions"]) for item in findings}
    results = []
    for row in kept:
        is_change = row.subject in AGAINST.values()
        gate = Gate(
            kind=row.gate,  # type: ignore[arg-type]  # one of ours, as `keep_gate` wrote it
            limit=row.limit or 0.0,
            against=row.subject if is_change else None,  # type: ignore[arg-type]
            emotion=None if is_change else row.subject or None,
        )
        results.append(
            Result(
                model=row.model,
                gate=gate,
                outcome=row.outcome,  # type: ignore[arg-type]
                sentence=row.sentence,
                value=float("nan") if row.value is None else row.value,
                emotions=emotions.get((row.model, gate.name), ()),
            )
        )
    return results
