"""What `score` prints: each model's Good share drawn as a bar, how sure it is, and all else on demand."""

import json
from collections import Counter
from collections.abc import Sequence
from statistics import median

from rich.cells import cell_len
from rich.console import Console

from calibration.estimate import CONFIDENCE, Estimate
from calibration.shares.transport import LEAST_REPLIES
from data.crisis import READING_LIST, say_flags
from data.rated_range import say_outside
from data.records import CONVERSATION, LABELS, NOUNS, REPLY
from data.text import ends_of, interval, listed, number, percent
from judge.explanation import Explanation
from judge.scoring import RunSummary, ScoredModel, ScoredRun
from reports.highlight import print_explanations
from reports.page import Table, row
from reports.terminal import NARROWEST, axis, bar, open_screen, print_lines, print_tables, print_text

GOOD = LABELS[-1]
UNLIKE = "unlike any model people rated"
NONE = "\N{EN DASH}"
JUDGE_COLUMN = "judge"  # the judge's own Good share, beside the corrected ones
OWN_LEVELS = (
    "Shares by the judge alone, without intervals: its level of conversations is not that of people. "
    "Read which model is ahead, not how far."
)
FEW = 20  # a percentile bootstrap over fewer covers less than it says
NARROW = 0.04  # a range of fewer points is told with a decimal
NARROWEST_BAR, WIDEST_BAR = 17, 41
WIDEST_NAME = 24  # a longer name takes several lines beside a bar


def print_scored(
    scored: ScoredRun,
    *,
    as_json: bool,
    limit: int | None = None,
    explanations: Sequence[Explanation] = (),
    is_verbose: bool = False,
) -> None:
    """Print a run's summary as JSON, or the few lines of it that one must know; the others if asked for."""
    summary = scored.summary
    if as_json:
        about = {key: scored.manifest[key] for key in ("cost", "wall_seconds")}
        explained = {"explanations": [item.as_row() for item in explanations]} if explanations else {}
        print(json.dumps({**summary.as_dict(), **about, "run": str(scored.folder), **explained}, indent=2))
        return
    screen = open_screen()
    print_tables([_bar_table(summary, screen)], screen)
    for line in (*filter(None, [summary.dimension_note]), *_how_sure(summary)):
        print_text(screen, line)
    for line in _warnings(scored, limit):
        print_text(screen, line, "yellow")
    if is_verbose:
        screen.print()
        print_tables([_share_table(summary)], screen)
        for line in _details(scored):
            print_text(screen, line, "dim")
        print_lines([f"run {scored.folder}"], screen)
    if explanations:
        print_explanations(explanations, screen)


def printed_share(model: ScoredModel, unit: str) -> Estimate | None:
    """Return a model's share of Good as `score` prints it, corrected where the run has a calibration.

    None from too few replies, or where the calibration refuses. The judge's own share of conversations has no
    interval: one over the choice of conversations would pass for one of the human level.
    """
    if model.judged < LEAST_REPLIES:
        return None
    share = model.printed_shares.get(GOOD)
    if share is not None and unit == CONVERSATION and model.corrected is None:
        return Estimate(share.value, None)
    return share


def _bar_table(summary: RunSummary, screen: Console) -> Table:
    """Return the shares of all labels, with a bar of Good where there is room for it."""
    goods = [printed_share(model, summary.unit) for model in summary.models]
    ends = [good.interval for good in goods if good and good.interval]
    digits = 1 if any(item.high - item.low < NARROW for item in ends) else 0
    head = ["model", *LABELS, "95 % sure", NOUNS[summary.unit]]
    rows = []
    for model, good in zip(summary.models, goods, strict=True):
        figures = (model.printed_shares[label].value if good else None for label in LABELS)
        _, low, high = ends_of(good)
        rows.append(
            [
                model.name,
                *(NONE if figure is None else number(figure, digits, scale=100) for figure in figures),
                NONE if low is None else interval(low, high, digits, scale=100),
                f"{model.judged:,}",
            ]
        )
    columns = list(zip(head, *rows, strict=True))
    names, *others = (max(map(cell_len, column)) for column in columns)
    taken = min(max(names, NARROWEST), WIDEST_NAME) + sum(others) + 2 * len(columns)
    width = min(WIDEST_BAR, screen.width - taken)
    if width >= NARROWEST_BAR:
        head.insert(-1, axis(width))
        for line, good in zip(rows, goods, strict=True):
            line.insert(-1, bar(good, width, encoding=screen.encoding))
    return Table(head=tuple(head), rows=tuple(row(*line) for line in rows))


def _how_sure(summary: RunSummary) -> list[str]:
    """Return a sentence on the width of the intervals and its reason; none where there is no share."""
    models = summary.models
    pairs = [(good, model.shares[GOOD]) for model in models if (good := printed_share(model, summary.unit))]
    if not pairs:
        return []
    if all(model.corrected is None for model in models):
        if summary.unit == CONVERSATION:
            return [OWN_LEVELS]
        return ["Per cent by the judge alone: how far people would disagree is not in the ranges."]
    width = median(_half_width(good) for good, _ in pairs)
    size = f"Per cent a crowd would say, to about ±{number(width, 0, scale=100)} points"
    # A range of the judge's own figures carries the choice of prompts only.
    if median(_half_width(own) for _, own in pairs) > width / 2:
        return [f"{size}: more {NOUNS[summary.unit]} narrow that."]
    return [f"{size}, as nobody rated {'this model' if len(models) == 1 else 'these models'}."]


def _half_width(share: Estimate) -> float:
    return (share.interval.high - share.interval.low) / 2 if share.interval else 0.0


def _warnings(scored: ScoredRun, limit: int | None) -> list[str]:
    summary, counts = scored.summary, scored.manifest["counts"]
    listed_in = f"left out of the figures and listed in {scored.folder / READING_LIST}, for `rate plan`; "
    models, lines = summary.models, say_flags(summary.flagged, listed_in)
    noun = NOUNS[summary.unit]
    few = [f"{model.name} ({model.judged:,})" for model in models if 0 < model.judged < LEAST_REPLIES]
    if few:
        lines.append(f"No figure from fewer than {LEAST_REPLIES} {noun}: {listed(few)}.")
    lines += _refusals([model for model in models if model.refused and model.judged >= LEAST_REPLIES])
    if summary.calibration is None and summary.calibration_note:
        lines.append(summary.calibration_note)
    if summary.unit == REPLY and any(
        LEAST_REPLIES <= model.judged < FEW and model.corrected is None for model in models
    ):
        lines.append(f"With fewer than {FEW} {noun} of a model, its range is too narrow.")
    lines += say_outside(summary.outside)
    if counts["unscored"]:
        reasons: Counter[str] = sum((Counter(model.unscored) for model in models), Counter())
        told = ", ".join(f"{reason} ({count:,})" for reason, count in sorted(reasons.items()))
        lines.append(f"unscored: {told}")
    if counts["set_aside"]:
        lines.append(f"set aside: {counts['set_aside']:,}; why is said in {scored.folder}/set_aside.jsonl")
    if limit is not None and sum(counts[name] for name in ("judged", "unscored")) > limit:
        lines.append(f"more than --limit {limit:,}: this run held the others already")
    return lines


def _refusals(models: Sequence[ScoredModel]) -> list[str]:
    """Why no figure is told of some models, each reason once."""
    named: dict[str, list[str]] = {}
    for model in models:
        own = f"{model.name} (the judge alone: {number(model.shares[GOOD].value, 0, scale=100)})"
        named.setdefault(_why_refused(model.refused or ""), []).append(own)
    return [f"No figure for {listed(names)}: {reason}." for reason, names in named.items()]


def _why_refused(reason: str) -> str:
    """A calibration's reason in short: where Good lies, if it is Good that the rated models do not reach.

    >>> _why_refused("Good: the judge's mean 0.801 is above the calibrated range, 0.463 to 0.688")
    'above every model people rated'
    >>> _why_refused("Okay: the judge's mean 0.315 is below the calibrated range, 0.320 to 0.351")
    'unlike any model people rated'
    """
    if "calibrated range" not in reason:
        return reason
    sides = (side for side in ("below", "above") if f"{side} the calibrated range" in reason)
    return f"{next(sides)} every model people rated" if reason.startswith(f"{GOOD}: ") else UNLIKE


def _details(scored: ScoredRun) -> list[str]:
    """What `--verbose` adds beneath the table of all shares."""
    summary, manifest = scored.summary, scored.manifest
    uncorrected = f"; {JUDGE_COLUMN}: its own Good, uncorrected" if summary.calibration else ""
    took, sure = f"{manifest['wall_seconds']:.1f} s", f"{100 * CONFIDENCE:.0f} %"
    judged = (
        f"{scored.asked:,} judged in {took}"
        if scored.asked
        else f"nothing left to judge (the run took {took})"
    )
    printed = [*say_outside(summary.outside), summary.dimension_note]
    return [
        f"per cent of {NOUNS[summary.unit]}, with {sure} intervals{uncorrected}",
        *([summary.calibration_note] if summary.calibration_note and summary.calibration else []),
        *(f"{model.name}: level refused ({model.refused})" for model in summary.models if model.refused),
        f"judge {manifest['judge']} {manifest['version']}: {judged}",
        *summary.report,
        *(caveat for caveat in summary.caveats if caveat not in printed),
    ]


def _share_table(summary: RunSummary) -> Table:
    is_corrected = any(model.corrected is not None for model in summary.models)
    own_column = (JUDGE_COLUMN,) if is_corrected else ()
    rows = []
    for model in summary.models:
        shares = dict(model.printed_shares)
        if summary.unit == CONVERSATION and not is_corrected:
            shares = {label: Estimate(share.value, None) for label, share in shares.items()}
        own = model.shares.get(GOOD)
        rows.append(
            row(
                model.name,
                *(percent(shares.get(label), glue="\n") for label in LABELS),
                *([percent(own.value if own else None)] if is_corrected else []),
                model.judged,
                sum(model.unscored.values()),
            )
        )
    return Table(head=("model", *LABELS, *own_column, "n", "unscored"), rows=tuple(rows))
