"""A judge held against an AI's ratings: a page that says agreement with that AI, and never calibrated."""

from collections.abc import Sequence
from math import isfinite
from typing import Any

from calibration.agreement.judge_vs_ai import AiAgreement
from data.rating_files.ai_raters import name_ais
from data.records import to_plain
from data.text import show, show_estimate
from reports.calibration.agreement import CLUSTERS, METRIC_NAMES
from reports.calibration.verdict import RIVALS
from reports.page import Page, Section, Table, row

NOT_PEOPLE = (
    "What an AI calls good need not be what people call good: two language models often err alike. Only "
    "people's ratings calibrate a judge, so no calibration.json is written."
)


def ai_agreement_page(found: Sequence[AiAgreement], *, notes: Sequence[str] = ()) -> Page:
    """The agreement of each judge with each AI, the headline first."""
    first = found[0]
    return Page(
        kind="Agreement with an AI",
        title=f"How far {first.judge.name} agrees with {name_ais({item.rater for item in found})}",
        subtitle=f"{first.ratings:,} ratings of {first.responses:,} responses by {first.rater}",
        verdict=(say_ai_headline(found), *map(say_ai_agreement, found), NOT_PEOPLE),
        sections=(_metrics(found), *(_confusion(item) for item in found)),
        foot="; ".join(notes),
    )


def plain_ai_agreement(found: Sequence[AiAgreement], *, notes: Sequence[str] = ()) -> dict[str, Any]:
    """The figures as report.json has them."""
    return {
        "kind": "agreement with an AI",
        "verdict": [say_ai_headline(found), *map(say_ai_agreement, found)],
        "calibrated": False,
        "notes": list(notes),
        "agreement_with_ai": to_plain(list(found)),
    }


def say_ai_headline(found: Sequence[AiAgreement]) -> str:
    """What this is, and what it is not."""
    return f"Agreement with {name_ais({item.rater for item in found})}; not calibrated against people."


def say_ai_agreement(found: AiAgreement) -> str:
    """How far a judge agrees with one AI, and what next to nothing would reach."""
    kappa = found.metrics[found.headline]
    who = f"{found.judge.name} and {found.rater}"
    if not isfinite(kappa.value):
        return f"{who}: nearly all labels of one of them are the same, so that agreement cannot be told."
    said = f"{who} agree by a weighted kappa of {show(kappa, digits=2, zero=False)}"
    others = [
        f"{RIVALS.get(name, name)} reaches {show(estimate.value, digits=2, zero=False)}"
        for name, estimate in found.baselines.items()
        if isfinite(estimate.value)
    ]
    beside = f", where {', '.join(others)}" if others else ""
    missing = found.unscored + found.unjudged
    rest = (
        f" {missing:,} responses that it rated have no score and are not in this figure." if missing else ""
    )
    return f"{said}{beside} (1 is perfect, 0 is chance), on {found.ratings:,} ratings.{rest}"


def _metrics(found: Sequence[AiAgreement]) -> Section:
    names = [f"{item.judge.name} and {item.rater}" for item in found]
    first = found[0]
    return Section(
        name="agreement",
        title="Agreement",
        short="Agreement",
        tables=(
            Table(
                caption="With 95 % intervals",
                head=("statistic", *names),
                rows=tuple(
                    row(title, *(show_estimate(item.metrics.get(metric)) for item in found))
                    for metric, title in METRIC_NAMES.items()
                    if any(metric in item.metrics for item in found)
                ),
            ),
        ),
        notes=(f"Intervals over {first.cluster_count:,} whole {CLUSTERS[first.clusters]}.",),
    )


def _confusion(found: AiAgreement) -> Section:
    table = Table(
        caption=f"{found.rater} down, {found.judge.name} across",
        head=("", *found.scale),
        rows=tuple(row(name, *counts) for name, counts in zip(found.scale, found.confusion, strict=True)),
    )
    return Section(
        name=f"labels-{found.rater}", title=f"Label by label: {found.rater}", short="Labels", tables=(table,)
    )
