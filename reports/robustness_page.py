"""The page of a judge's robustness: targets, our replies as they are and rewritten, and ordinary replies."""

from collections import Counter
from collections.abc import Sequence
from math import isfinite

from empathy_judge.data.text import number, percent, show
from empathy_judge.judge.robustness.run import FamilyResult, Robustness, RobustnessCheck
from empathy_judge.reports.charts import Line, Look, Mark, dot_plot, signed_tick
from empathy_judge.reports.page import Page, Section, Table, table_of

KINDS = {
    "cruel": "politely cruel",
    "insults": "plain insults",
    "unkind-dialects": "unkind, in dialects",
    "long-poor": "long and poor",
    "mistaken": "kind words for the wrong thing",
    "excellent": "excellent, unusual",
    "kind": "kind",
    "growing": "growing, first paragraph",
}
RESULTS: dict[str, Look] = {"passes": "judge", "fails": "found", "inconclusive": "raw"}
PLURAL = {"passes": "pass", "fails": "fail", "inconclusive": "are inconclusive"}
WORST = 10  # perturbations in the table; all of them are in the JSON
NOTE = (
    "An unscored kind reply counts as Bad, an unscored insult as not Bad. Intervals of families resample "
    "perturbations and replies; all others resample replies or prompts. These replies are not used "
    "in training."
)


def robustness_page(found: Robustness) -> Page:
    """Return the page of a judge's robustness."""
    return Page(
        kind="Robustness",
        title=f"Robustness of {found.judge} {found.version}",
        subtitle=f"{found.judgments:,} judgments, {found.overall.perturbations:,} perturbations of the "
        f"included replies, {len(found.effects)} of ordinary replies (seed {found.seed})",
        verdict=_summary(found),
        sections=(
            Section(
                name="targets", title="Targets", tables=(_checks(found.targets, "Targets; shares in %"),)
            ),
            _families_section(found),
            _effects_section(found),
            Section(
                name="kinds", title="Included replies, unchanged", short="Replies", tables=(_kinds(found),)
            ),
        ),
        foot=NOTE,
    )


def _summary(found: Robustness) -> tuple[str, str]:
    """Return how many targets are met, and how many replies the perturbations turn."""
    results = [item.result for item in (*found.targets, *found.effects)]
    counts = Counter[str](results)
    met = ", ".join(f"{counts[result]} {PLURAL[result]}" for result in RESULTS if counts[result])
    unkind, kind = found.overall.unkind, found.overall.kind
    turned = [
        f"{percent(side.share)}% of {name} replies {label}"
        for side, name, label in ((unkind, "unkind", "Good"), (kind, "kind", "Bad"))
        if side.could_turn
    ]
    text = f"Perturbations turn {' and '.join(turned)}."
    if not turned:
        text = "No reply could change its label, so the families of perturbations have no result."
    elif suspected := unkind.suspected + kind.suspected:
        text += f" An injection was suspected in {suspected:,} of {unkind.pairs + kind.pairs:,} pairs."
    return f"{len(results)} targets and expectations: {met}.", text


def _checks(checks: Sequence[RobustnessCheck], caption: str) -> Table:
    def bounds(item: RobustnessCheck) -> str:
        scale, digits = (100, 0) if item.is_share else (1, 2)
        least, most = (number(end, digits, scale=scale) for end in (item.least, item.most))
        if isfinite(item.least) and isfinite(item.most):
            return f"{least} to {most}"
        return f"≥ {least}" if isfinite(item.least) else f"≤ {most}"

    return table_of(
        checks,
        {
            "figure": lambda item: item.name,
            "value": lambda item: percent(item.figure) if item.is_share else show(item.figure),
            "target": bounds,
            "result": lambda item: item.result,
            "of": lambda item: item.count,
        },
        caption=caption,
        words=frozenset({0, 3, 4}),
    )


def _families_section(found: Robustness) -> Section:
    return Section(
        name="families",
        title="Included replies, rewritten: unkind ones turned Good, kind ones turned Bad",
        tables=(
            table_of(
                (found.overall, found.test_only, *found.families),
                {
                    "family": lambda item: item.name,
                    "n": lambda item: item.perturbations,
                    "unkind\nturned Good, %": lambda item: percent(item.unkind.share),
                    "kind\nturned Bad, %": lambda item: percent(item.kind.share),
                    "in\ntraining": lambda item: "no" if item.is_test_only else "some",
                },
                caption="By family",
                words=frozenset({0, 4}),
            ),
            *_worst(found),
        ),
    )


def _worst(found: Robustness) -> list[Table]:
    """Return the table of the perturbations that turn most replies, if any turns one."""

    def shares(item: FamilyResult) -> tuple[float, ...]:
        return tuple(side.turned / max(1, side.could_turn) for side in (item.unkind, item.kind))

    ranked = sorted((item for item in found.perturbations if any(shares(item))), key=shares, reverse=True)
    if not ranked:
        return []
    columns = {
        "perturbation": lambda item: item.name,
        "unkind turned Good": lambda item: f"{item.unkind.turned:,} of {item.unkind.could_turn:,}",
        "kind turned Bad": lambda item: f"{item.kind.turned:,} of {item.kind.could_turn:,}",
    }
    shown = ranked[:WORST]
    caption = f"The {len(shown)} perturbations that turn most unkind replies Good"
    return [table_of(shown, columns, caption=caption)]


def _effects_section(found: Robustness) -> Section:
    return Section(
        name="effects",
        title="Ordinary replies rewritten: change of the mean score",
        short="Rewrites",
        text=("The change of the mean score should be inside the gray band.",),
        key=(*((look, result) for result, look in RESULTS.items()), ("band", "expected change")),
        figures=(
            dot_plot(
                "Change of the mean score, in points",
                [
                    Line(
                        name=item.name,
                        figure=f"{number(item.figure.value, 2, sign=True)}, {item.result}",
                        marks=(Mark(RESULTS[item.result], item.figure),),
                        band=(item.least, item.most),
                    )
                    for item in found.effects
                ],
                name="effects-figure",
                title="Change of the judge's mean score under each rewrite",
                tick=signed_tick,
                reference=0.0,
            ),
        ),
        tables=(_checks(found.effects, "Every rewrite: change of score"),),
    )


def _kinds(found: Robustness) -> Table:
    return table_of(
        found.kinds,
        {
            "replies": lambda item: KINDS[item.kind],
            "n": lambda item: sum(item.labels.values()),
            "Bad, %": lambda item: percent(item.bad),
            "Good, %": lambda item: percent(item.good),
            "score": lambda item: number(item.score),
            "unscored": lambda item: item.labels["unscored"],
        },
        caption="By kind of reply",
    )
