"""What a person sees: the table of shares, and how far a run has come."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

from data.judgments import say_flags
from data.records import LABELS
from data.text import printable
from judge.explain import Explanation
from judge.score_file import ScoredRun
from reports.highlight import print_explanations
from reports.terminal import open_screen, print_table

UNDEFINED = "\N{EN DASH}"
RAW = "judge"  # the column of the judge's own Good share, beside the corrected ones
FEW = 20  # a percentile bootstrap over fewer covers less than it says


def print_scored(
    scored: ScoredRun,
    *,
    as_json: bool,
    limit: int | None = None,
    explanations: Sequence[Explanation] = (),
) -> None:
    """A run's summary as JSON, or the table of its shares and beneath it what one must know to read it."""
    if as_json:
        about = {key: scored.manifest[key] for key in ("cost", "wall_seconds")}
        explained = {"explanations": [asdict(item) for item in explanations]} if explanations else {}
        print(json.dumps({**scored.summary, **about, "run": str(scored.folder), **explained}, indent=2))
        return
    console = open_screen()
    print_table(console, _share_table(scored.summary["models"], console.width))
    counts = scored.manifest["counts"]
    said = scored.summary.get("calibration_note")
    refused = [model for model in scored.summary["models"] if model.get("refused")]
    own = f"; {RAW}: its own Good, uncorrected" if scored.summary.get("calibration") else ""
    lines = [
        f"per cent of responses, with {100 * scored.summary['confidence']:.0f} % intervals{own}",
        *([said] if said else []),
        *say_flags(scored.summary.get("flagged")),
        *(f"{model['model']}: level refused ({model['refused']})" for model in refused),
        f"judge {scored.manifest['judge']} {scored.manifest['version']}: {_seconds(scored)}",
        *scored.summary.get("report", ()),
        f"run {scored.folder}",
        *scored.summary["caveats"],
    ]
    if any(0 < model["judged"] < FEW for model in scored.summary["models"]):
        lines.append(f"With fewer than {FEW} responses of a model, its intervals are too narrow.")
    if limit is not None and sum(counts[name] for name in ("judged", "unscored")) > limit:
        lines.insert(2, f"more than --limit {limit:,}: this run held the others already")
    if counts["unscored"]:
        lines.insert(2, f"unscored: {_reasons(scored.summary['models'])}")
    if counts["set_aside"]:
        lines.insert(2, f"set aside: {counts['set_aside']:,}; why is said in set_aside.jsonl")
    flagged = say_flags(scored.summary.get("flagged"))
    for line in lines:
        console.print(Text(printable(line)), style="yellow" if line in flagged else "dim", soft_wrap=True)
    if explanations:
        print_explanations(explanations, console)


def _share_table(models: list[Mapping[str, Any]], width: int) -> Table:
    is_corrected = any("corrected" in model for model in models)
    cells = [[_share(model, label) for label in LABELS] for model in models]
    names = [printable(model["model"]) for model in models]
    counts = [(f"{model['judged']:,}", f"{model['unscored']:,}") for model in models]
    raw = [_number(model["shares"].get("Good")) for model in models]
    columns = [["model", *names], *([" ".join(row[i]) for row in cells] for i in range(len(LABELS)))]
    columns += [["n", *(n for n, _ in counts)], ["unscored"]]
    columns += [[RAW, *raw]] if is_corrected else []
    content = sum(max(map(cell_len, column)) for column in columns)
    # Share and interval on one line where the table fits like that, else one below the other.
    gaps = len(columns) - 1
    gap = 1 if content + gaps <= width < content + 2 * gaps else 2
    glue = " " if content + gap * gaps <= width else "\n"
    table = Table(box=None, pad_edge=False, padding=(0, gap, 0, 0), header_style="bold")
    table.add_column("model", overflow="fold", min_width=8)
    for label in LABELS:
        table.add_column(label, justify="right", no_wrap=True)
    if is_corrected:
        table.add_column(RAW, justify="right", no_wrap=True)
    table.add_column("n", justify="right", no_wrap=True)
    table.add_column("unscored", justify="right", no_wrap=True)
    for name, row, own, (judged, unscored) in zip(names, cells, raw, counts, strict=True):
        shares = (Text(glue.join(cell).strip()) for cell in row)
        table.add_row(Text(name), *shares, *([own] if is_corrected else []), judged, unscored)
    return table


def _share(model: Mapping[str, Any], label: str) -> tuple[str, str]:
    """A share and its interval in per cent, as two texts; the corrected share where there is one."""
    share = (model["corrected"] or {}).get(label) if "corrected" in model else model["shares"].get(label)
    if share is None:
        return UNDEFINED, ""
    if share["low"] is None:
        return _number(share), UNDEFINED
    return _number(share), f"[{100 * share['low']:.1f}, {100 * share['high']:.1f}]"


def _number(share: Mapping[str, float] | None) -> str:
    return UNDEFINED if share is None else f"{100 * share['share']:.1f}"


def _seconds(scored: ScoredRun) -> str:
    took = f"{scored.manifest['wall_seconds']:.1f} s"
    if scored.asked:
        return f"{scored.asked:,} judged in {took}"
    return f"nothing left to judge (the run took {took})"


def _reasons(models: list[Mapping[str, Any]]) -> str:
    totals: dict[str, int] = {}
    for model in models:
        for reason, count in model["reasons"].items():
            totals[reason] = totals.get(reason, 0) + count
    return ", ".join(f"{reason} ({count:,})" for reason, count in sorted(totals.items()))
