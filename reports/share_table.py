"""The table of shares that `score` prints, and beneath it what one must know to read it."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from data.crisis import say_flags
from data.records import LABELS
from data.text import percent
from judge.explanation import Explanation
from judge.scored_run import ScoredRun
from reports.highlight import print_explanations
from reports.page import Table, row
from reports.terminal import open_screen, print_lines, print_tables

JUDGE_COLUMN = "judge"  # the judge's own Good share, beside the corrected ones
FEW = 20  # a percentile bootstrap over fewer covers less than it says


def print_scored(
    scored: ScoredRun,
    *,
    as_json: bool,
    limit: int | None = None,
    explanations: Sequence[Explanation] = (),
) -> None:
    """Print a run's summary as JSON, or the table of its shares with its notes."""
    summary = scored.summary
    if as_json:
        about = {key: scored.manifest[key] for key in ("cost", "wall_seconds")}
        explained = {"explanations": [asdict(item) for item in explanations]} if explanations else {}
        print(json.dumps({**summary, **about, "run": str(scored.folder), **explained}, indent=2))
        return
    screen = open_screen()
    print_tables([_share_table(summary["models"])], screen)
    flags = say_flags(summary.get("flagged"))
    for line in _notes(scored, limit, flags):
        print_lines([line], screen, style="yellow" if line in flags else "dim")
    if explanations:
        print_explanations(explanations, screen)


def _notes(scored: ScoredRun, limit: int | None, flags: Sequence[str]) -> list[str]:
    summary, manifest, counts = scored.summary, scored.manifest, scored.manifest["counts"]
    note = summary.get("calibration_note")
    uncorrected = f"; {JUDGE_COLUMN}: its own Good, uncorrected" if summary.get("calibration") else ""
    took = f"{manifest['wall_seconds']:.1f} s"
    judged = (
        f"{scored.asked:,} judged in {took}"
        if scored.asked
        else f"nothing left to judge (the run took {took})"
    )
    lines = [
        f"per cent of responses, with {100 * summary['confidence']:.0f} % intervals{uncorrected}",
        *([note] if note else []),
        *flags,
        *(
            f"{model['model']}: level refused ({model['refused']})"
            for model in summary["models"]
            if model.get("refused")
        ),
        f"judge {manifest['judge']} {manifest['version']}: {judged}",
        *summary.get("report", ()),
        f"run {scored.folder}",
        *summary["caveats"],
    ]
    if any(0 < model["judged"] < FEW for model in summary["models"]):
        lines.append(f"With fewer than {FEW} responses of a model, its intervals are too narrow.")
    if limit is not None and sum(counts[name] for name in ("judged", "unscored")) > limit:
        lines.insert(2, f"more than --limit {limit:,}: this run held the others already")
    if counts["unscored"]:
        reasons: Counter[str] = sum((Counter(model["reasons"]) for model in summary["models"]), Counter())
        told = ", ".join(f"{reason} ({count:,})" for reason, count in sorted(reasons.items()))
        lines.insert(2, f"unscored: {told}")
    if counts["set_aside"]:
        lines.insert(2, f"set aside: {counts['set_aside']:,}; why is said in set_aside.jsonl")
    return lines


def _share_table(models: Sequence[Mapping[str, Any]]) -> Table:
    is_corrected = any("corrected" in model for model in models)
    judge = (JUDGE_COLUMN,) if is_corrected else ()
    rows = []
    for model in models:
        shares = (model["corrected"] or {}) if "corrected" in model else model["shares"]
        good = model["shares"].get("Good")
        rows.append(
            row(
                model["model"],
                *(percent(shares.get(label), glue="\n") for label in LABELS),
                *([percent(good and good["share"])] if is_corrected else []),
                model["judged"],
                model["unscored"],
            )
        )
    return Table(head=("model", *LABELS, *judge, "n", "unscored"), rows=tuple(rows))
