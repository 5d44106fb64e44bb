"""The output of `score`: the levels of each model with a bar, their margin, and warnings."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from rich.cells import cell_len
from rich.console import Console

from empathy_judge.calibration.comparison.published_models import published
from empathy_judge.calibration.estimate import Estimate
from empathy_judge.calibration.prompt_fit import fit_messages
from empathy_judge.calibration.shares.transport import LEAST_REPLIES
from empathy_judge.data.crisis import READING_LIST, say_flags
from empathy_judge.data.rated_range import say_outside
from empathy_judge.data.records import CONVERSATION, LABELS, NOUNS, REPLY
from empathy_judge.data.text import listed, money, number, percent, percent_interval, percents, show
from empathy_judge.judge.explanation import Explanation
from empathy_judge.judge.scoring import CAVEAT, OWN, RunSummary, ScoredModel, SummarizedRun
from empathy_judge.reports.highlight import print_explanations
from empathy_judge.reports.page import Table, name_ends, row, share_cells
from empathy_judge.reports.terminal import (
    NARROWEST,
    axis,
    bar,
    open_screen,
    print_lines,
    print_tables,
    print_text,
)

GOOD = LABELS[-1]
REFERENCES = ("study:human", "study:gemini-1.0-pro", "study:gpt-4")
NONE = "\N{EN DASH}"
JUDGE_COLUMN = "judge"  # the judge's own Good share, beside the corrected ones
FEW = 20  # a percentile bootstrap over fewer covers less than it says
NARROW = 0.04  # a narrower interval is printed with a decimal
NARROWEST_BAR, WIDEST_BAR = 17, 41
WIDEST_NAME = 24  # a longer name takes several lines beside a bar


def print_scored(
    scored: SummarizedRun,
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
    print_tables([level_table(_levels(summary), screen, summary.unit)], screen)
    for line in (*filter(None, [summary.dimension_note]), *_describe_margin(summary)):
        print_text(screen, line)
    for line in (*_warnings(scored, limit), *summary.report):
        print_text(screen, line, "yellow")
    if is_verbose:
        screen.print()
        print_tables([_share_table(summary)], screen)
        for line in _details(scored):
            print_text(screen, line, "dim")
        print_lines([f"run {scored.folder}"], screen)
    elif scored.manifest["cost"]:
        print_text(screen, f"Cost of the run: {money(scored.manifest['cost'])}.", "dim")
    if explanations:
        print_explanations(explanations, screen)


def printed_share(model: ScoredModel) -> Estimate | None:
    """Return a model's share of Good as `score` prints it, corrected where the run has a calibration.

    None from too few replies, or where the calibration refuses.
    """
    return None if model.judged < LEAST_REPLIES else model.printed_shares.get(GOOD)


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelRow:
    """A row of the table of levels: a model, or one of the study for reference."""

    name: str
    shares: Mapping[str, Estimate]
    count: str = ""
    is_reference: bool = False


def reference_rows() -> list[LevelRow]:
    """Return what people gave models of the study."""
    return [
        LevelRow(name=name, shares=published(name).shares, count="study", is_reference=True)
        for name in REFERENCES
    ]


def level_table(levels: Sequence[LevelRow], screen: Console, unit: str) -> Table:
    """Return the shares of all labels, with a bar of Good where there is room for it."""
    goods = [level.shares.get(GOOD) for level in levels]
    ends = [
        good.interval for good, level in zip(goods, levels, strict=True) if good and not level.is_reference
    ]
    digits = 1 if any(item and item.high - item.low < NARROW for item in ends) else 0
    head = ["model", *LABELS, name_ends([good for good in goods if good and good.interval]), NOUNS[unit]]
    rows = []
    for level, good in zip(levels, goods, strict=True):
        values = [NONE] * len(LABELS)
        if good and not good.bound:
            values = percents([level.shares[label].value for label in LABELS], digits)
        rows.append([level.name, *values, percent_interval(good, digits) or NONE, level.count])
    columns = list(zip(head, *rows, strict=True))
    names, *others = (max(map(cell_len, column)) for column in columns)
    taken = min(max(names, NARROWEST), WIDEST_NAME) + sum(others) + 2 * len(columns)
    width = min(WIDEST_BAR, screen.width - taken)
    if width >= NARROWEST_BAR:
        head.insert(-1, axis(width))
        for line, good in zip(rows, goods, strict=True):
            line.insert(-1, bar(good, width, encoding=screen.encoding))
    return Table(
        head=tuple(head),
        rows=tuple(row(*line) for line in rows),
        dim=frozenset(number for number, level in enumerate(levels) if level.is_reference),
    )


def _levels(summary: RunSummary) -> list[LevelRow]:
    levels = []
    for model in summary.models:
        shares = model.printed_shares if printed_share(model) else {}
        if model.is_own:  # an interval over prompts would pass for one of human ratings
            shares = {label: Estimate(share.value, None) for label, share in shares.items()}
        levels.append(LevelRow(name=model.name, shares=shares, count=f"{model.judged:,}"))
    is_corrected = any(model.corrected is not None and not model.is_own for model in summary.models)
    is_comparable = is_corrected and summary.unit == REPLY and not summary.dimension_note
    return [*levels, *(reference_rows() if is_comparable else ())]


def _describe_margin(summary: RunSummary) -> list[str]:
    """Return a sentence on the width of the intervals and its reason; none where there is no share."""
    models, noun = summary.models, NOUNS[summary.unit]
    shares = {model.name: good for model in models if (good := printed_share(model))}
    if not shares:
        return []
    if any(model.is_own for model in models):
        return [OWN]
    if all(model.corrected is None for model in models):
        if summary.unit == CONVERSATION:
            return [CAVEAT[summary.unit]]
        return [f"% of {noun}, as the judge labels them; the 95% CI does not include the judge's errors."]
    lines = [f"Estimated human ratings, % of {noun}."]
    rated = [model.name for model in models if model.is_rated]
    unrated = {name: share for name, share in shares.items() if name not in rated}
    if rated:
        lines.append(f"{listed(rated)}: corrected by the human ratings of these {noun} in the calibration.")
    if widths := [share.width / 2 for share in unrated.values() if not share.bound]:
        whose = listed(list(unrated)) if rated else "this model" if len(models) == 1 else "these models"
        width = number(median(widths), 0, scale=100)
        lines[0] += f" No human ratings exist for {whose}, so the margin is about ±{width} points."
    return [*lines, *describe_bounds(unrated)]


def describe_bounds(shares: Mapping[str, Estimate]) -> list[str]:
    """Return for which models the interval is open, and why."""
    lines = []
    for kind, side, bound in (("at least", "above", "a lower"), ("at most", "below", "an upper")):
        if names := [name for name, share in shares.items() if share.bound == kind]:
            scores = "scores" if len(names) == 1 else "score"
            only = f"so only {bound} bound is known"
            lines.append(f"{listed(names)} {scores} {side} every model with human ratings, {only}.")
    return lines


def _warnings(scored: SummarizedRun, limit: int | None) -> list[str]:
    summary, counts = scored.summary, scored.manifest["counts"]
    listed_in = f"left out of the figures and listed in {scored.folder / READING_LIST}, for `rate plan`; "
    models, noun = summary.models, NOUNS[summary.unit]
    fitted = [model for model in models if summary.unit == REPLY and model.judged >= LEAST_REPLIES]
    lines = [f"{model.name}: {text}." for model in fitted for text in fit_messages(model.fit)]
    lines += say_flags(summary.flagged, listed_in)
    few = [f"{model.name} ({model.judged:,})" for model in models if 0 < model.judged < LEAST_REPLIES]
    if few:
        lines.append(f"No figure from fewer than {LEAST_REPLIES} {noun}: {listed(few)}.")
    refused = [model for model in models if model.refused and not (model.is_own or model.is_unresponsive)]
    lines += _refusals([model for model in refused if model.judged >= LEAST_REPLIES])
    if summary.calibration is None and summary.calibration_note:
        lines.append(summary.calibration_note)
    if summary.unit == REPLY and any(
        LEAST_REPLIES <= model.judged < FEW and model.corrected is None for model in models
    ):
        lines.append(f"With fewer than {FEW} {noun} of a model, its interval is too narrow.")
    lines += say_outside(summary.outside)
    if counts["unscored"]:
        reasons: Counter[str] = sum((Counter(model.unscored) for model in models), Counter())
        told = ", ".join(f"{reason} ({count:,})" for reason, count in sorted(reasons.items()))
        lines.append(f"unscored: {told}")
    if counts["set_aside"]:
        lines.append(f"skipped rows: {counts['set_aside']:,}; reasons in {scored.folder}/set_aside.jsonl")
    if limit is not None and sum(counts[name] for name in ("judged", "unscored")) > limit:
        lines.append(f"more than --limit {limit:,}: this run had the others already")
    return lines


def _refusals(models: Sequence[ScoredModel]) -> list[str]:
    """Return why some models have no figure, each reason once."""
    named: dict[str, list[str]] = {}
    for model in models:
        named.setdefault(model.refused or "", []).append(model.name)
    return [f"No figure for {listed(names)}: {reason}." for reason, names in named.items()]


def _details(scored: SummarizedRun) -> list[str]:
    """Return what `--verbose` adds below the table of all shares."""
    summary, manifest = scored.summary, scored.manifest
    uncorrected = f"; {JUDGE_COLUMN}: its own Good, uncorrected" if summary.calibration else ""
    took = f"{manifest['wall_seconds']:.1f} s"
    judged = (
        f"{scored.asked:,} judged in {took}" if scored.asked else f"already complete (the run took {took})"
    )
    printed = [*say_outside(summary.outside), summary.dimension_note]
    return [
        f"% of {NOUNS[summary.unit]}, with 95% CI{uncorrected}; fit: chance that a reply is closer to its own"
        " prompt than to another",
        *([summary.calibration_note] if summary.calibration_note and summary.calibration else []),
        f"judge {manifest['judge']} {manifest['version']}: {judged}; cost {money(manifest['cost'])}",
        *(caveat for caveat in summary.caveats if caveat not in printed),
    ]


def _share_table(summary: RunSummary) -> Table:
    is_corrected = any(model.corrected is not None and not model.is_own for model in summary.models)
    own_column = (JUDGE_COLUMN,) if is_corrected else ()
    rows = []
    for model in summary.models:
        own = model.shares.get(GOOD)
        rows.append(
            row(
                model.name,
                *share_cells(model.printed_shares),
                *([percent(own.value if own else None)] if is_corrected else []),
                show(model.fit.estimate, glue="\n") if model.fit else NONE,
                model.judged,
                sum(model.unscored.values()),
            )
        )
    return Table(head=("model", *LABELS, *own_column, "fit", "n", "unscored"), rows=tuple(rows))
