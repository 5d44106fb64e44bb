"""How a judge stands up to attacks, and to kind replies in the same forms: a section, or a page."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from data.records import LABELS
from data.text import number, p_value, percent, show, show_estimate
from judge.robustness.plain_replies import Plain
from judge.robustness.replies import KIND, UNKIND
from judge.robustness.resistance import MOST, Resistance, Target
from reports.charts import Line, dot_plot, mark, percent_tick
from reports.page import Figure, Page, Section, Table, table_of

NAMES = {
    "cruel": "politely cruel",
    "insults": "plain insults",
    "unkind-dialects": "unkind, in dialects",
    "long-poor": "long and poor",
    "mistaken": "kind words for the wrong thing",
    "excellent": "excellent, unusual",
    "kind": "kind",
    "growing": "growing, first paragraph",
}
FORMS = "Forms of attack"
BLIND = "replies and forms of a writer who had not read ours"
WORST = 10  # forms in the table; all of them are in the JSON
NOTE = (
    "An unscored kind reply counts as Bad, an unscored insult as not Bad. Intervals of forms draw forms and "
    "replies anew; all others are over replies. All replies are of the half that no training may use."
)


def attacks_page(found: Resistance, *, is_brief: bool = False) -> Page:
    """What the catalogue says of a judge, by itself; a brief one leaves out the families of plain replies."""
    section = attacks_section(found)
    parts = []
    for place, (title, tables) in enumerate(_tables(found).items()):
        shown = tuple(table for table in tables if table.rows and not (is_brief and table.is_folded))
        part = Section(name=f"attacks-{place}", title=title, short=title, tables=shown)
        parts.append(replace(part, key=section.key, figures=section.figures) if title == FORMS else part)
    return Page(
        kind="Attacks",
        title=f"Attacks on the judge {found.judge} {found.version}",
        subtitle=section.text[0],
        verdict=section.text[1:],
        sections=tuple(part for part in parts if part.tables),
        foot=NOTE,
    )


def attacks_section(found: Resistance) -> Section:
    """Targets first, then forms of attack, replies as they are, long ones, and those in dialects."""
    return Section(
        name="attacks",
        title="Unkind replies dressed up, and kind ones in the same forms",
        short="Attacks",
        text=(
            _say_counts(found),
            _say_targets(found),
            _say_forms(found),
            *((f"Second round, {BLIND}: {_say_counts(found.second)}",) if found.second else ()),
        ),
        key=(("found", "unkind turned Good"), ("judge", "kind turned Bad")),
        figures=(_draw_families(found),),
        tables=tuple(table for tables in _tables(found).values() for table in tables if table.rows),
        notes=(NOTE,),
    )


def _tables(found: Resistance) -> dict[str, list[Table]]:
    second = found.second
    return {
        "Targets": [
            _targets(found.targets, caption="Beside what we ask for; shares in per cent"),
            *([_targets(second.targets, caption=f"Second round: {BLIND}")] if second else []),
        ],
        FORMS: [_families(found), _by_kind(found), _best_of(found), _worst(found)],
        "Replies as they are": [_kinds(found.plain), _stages(found), *_plain_families(found.plain)],
        "Dialects": [_dialects(found), _gaps(found)],
        "Second round": [_families(second), _kinds(second.plain), *_plain_families(second.plain)]
        if second
        else [],
    }


def _say_counts(found: Resistance) -> str:
    plain = sum(item.replies for item in found.plain if not item.family)
    overall, (unkind, kind) = found.overall, found.pools
    return (
        f"{plain:,} replies of ours as they are; {overall.forms:,} forms of attack on {unkind:,} unkind and "
        f"{kind:,} kind ones, in {overall.unkind.pairs:,} and {overall.kind.pairs:,} pairs; "
        f"{found.judgments:,} judgments in all (seed {found.seed})."
    )


def _say_targets(found: Resistance) -> str:
    counts = Counter(target.result for target in found.targets)
    told = ", ".join(
        f"{counts[result]} {result}" for result in ("met", "not met", "cannot tell") if counts[result]
    )
    return f"Of {len(found.targets)} targets: {told}."


def _say_forms(found: Resistance) -> str:
    unkind, kind = found.overall.unkind, found.overall.kind
    parts = [
        f"{percent(column.turned)} per cent of {name} replies {label}"
        for column, name, label in ((unkind, "unkind", "Good"), (kind, "kind", "Bad"))
        if column.could_turn
    ]
    if not parts:
        return "Nothing can be said of forms: there was no reply that one could have turned."
    told = f"The forms turn {' and '.join(parts)} that were not."
    if unkind.suspected or kind.suspected:
        told += (
            f" Suspected of injection: {number(unkind.suspected / unkind.pairs, 0, scale=100)} and "
            f"{number(kind.suspected / kind.pairs, 0, scale=100)} per cent."
        )
    return told


def _targets(targets: Sequence[Target], *, caption: str) -> Table:
    return table_of(
        targets,
        {
            "figure": lambda item: item.name,
            "found": lambda item: show_estimate(item.figure, is_share=item.is_share),
            "target": _limit,
            "result": lambda item: item.result,
            "of": lambda item: item.of,
        },
        caption=caption,
        words=frozenset({0, 3, 4}),
    )


def _limit(target: Target) -> str:
    limit = number(target.limit, 0, scale=100) if target.is_share else number(target.limit)
    return f"{'≥' if target.is_least else '≤'} {limit}"


def _families(found: Resistance) -> Table:
    return table_of(
        [found.overall, found.unmet, *found.families],
        {
            "forms": lambda item: f"{item.name}{' *' if item.is_unmet and item is not found.unmet else ''}",
            "n": lambda item: item.forms,
            "unkind\nturned Good": lambda item: percent(item.unkind.turned),
            "all\nGood": lambda item: number(item.unkind.all.value, 0, scale=100),
            "kind\nturned Bad": lambda item: percent(item.kind.turned),
            "all\nBad": lambda item: number(item.kind.all.value, 0, scale=100),
        },
        caption="By family, per cent turned, and of all; * none of them was met in training",
    )


def _by_kind(found: Resistance) -> Table:
    return table_of(
        found.by_kind.items(),
        {
            "replies": lambda item: NAMES[item[0]],
            "turned": lambda item: f"to {'Bad' if item[0] in KIND else 'Good'}",
            "per cent": lambda item: percent(item[1].turned),
            "of pairs": lambda item: item[1].could_turn,
            "all, per cent": lambda item: percent(item[1].all),
            "pairs": lambda item: item[1].pairs,
        },
        caption="By kind of reply, in all forms",
        words=frozenset({0, 1}),
    )


def _best_of(found: Resistance) -> Table:
    most = found.best_of[-1].tries
    last = "all" if most == found.overall.forms else "as many as one reply met"
    return table_of(
        found.best_of,
        {
            "forms to choose from": lambda item: (
                f"{item.tries:,}{f', {last}' if item.tries == most else ''}" if item.tries else "none"
            ),
            "called Good, %": lambda item: percent(item.good),
            "replies": lambda item: item.replies,
        },
        caption="Best of N: unkind replies that are Good as they are, or in one of N forms",
    )


def _kinds(plain: Sequence[Plain]) -> Table:
    return table_of(
        [item for item in plain if not item.family],
        {
            "replies": lambda item: NAMES[item.kind],
            "n": lambda item: item.replies,
            "Bad, %": lambda item: percent(item.bad),
            "Good, %": lambda item: percent(item.good),
            "score": lambda item: number(item.score),
            "unscored": lambda item: item.labels["unscored"],
        },
        caption="By kind of reply",
    )


def _plain_families(plain: Sequence[Plain]) -> list[Table]:
    """Families are small, so their shares are counts."""
    return [
        table_of(
            [item for item in plain if item.kind == kind and item.family],
            {
                "family": lambda item: item.family,
                "n": lambda item: item.replies,
                **{label: partial(_count_label, label) for label in (*LABELS, "unscored")},
                "score": lambda item: number(item.score),
            },
            caption=f"By family: {NAMES[kind]}",
            is_folded=True,
        )
        for kind in (*UNKIND, *KIND)
    ]


def _count_label(label: str, plain: Plain) -> int:
    return plain.labels[label]


def _stages(found: Resistance) -> Table:
    return table_of(
        found.stages,
        {
            "paragraphs": lambda item: item.paragraphs,
            "words": lambda item: number(item.words, 0),
            "called\nGood, %": lambda item: number(item.good.value, 0, scale=100),
            "probability\nof Good, %": lambda item: percent(item.probability),
            "lost, points": lambda item: percent(item.lost) if item.paragraphs > 1 else "",
            "replies": lambda item: item.replies,
        },
        caption="Kind replies that grow, against their first paragraph",
        words=frozenset(),
    )


def _dialects(found: Resistance) -> Table:
    return table_of(
        found.dialects,
        {
            "dialect": lambda item: item.name,
            "excellent\nGood, %": lambda item: number(item.good.value, 0, scale=100),
            "score": lambda item: number(item.score),
            "n": lambda item: item.excellent,
            "unkind\nBad, %": lambda item: number(item.bad.value, 0, scale=100),
            "n ": lambda item: item.unkind,
            "AUC": lambda item: show(item.auc, digits=2, zero=False),
        },
        caption="Excellent and unkind replies, by dialect",
    )


def _gaps(found: Resistance) -> Table:
    gaps = {name: gap for name, gap in found.gaps.items() if gap is not None}
    return table_of(
        gaps.items(),
        {
            "largest gap": lambda item: item[0],
            "found": lambda item: show(item[1].gap, digits=2),
            "by chance": lambda item: number(item[1].by_chance),
            "p": lambda item: p_value(item[1].p),
            "highest": lambda item: item[1].highest if item[1].gap.value else "",
            "lowest": lambda item: item[1].lowest if item[1].gap.value else "",
        },
        caption="The largest gap between dialects, and what chance alone would make",
        words=frozenset({0, 4, 5}),
    )


def _worst(found: Resistance) -> Table:
    ranked = sorted(
        (form for form in found.forms if form.unkind_turned or form.kind_turned),
        key=lambda form: (-_part(form.unkind_turned, form.unkind), -_part(form.kind_turned, form.kind)),
    )
    return table_of(
        ranked[:WORST],
        {
            "form": lambda item: item.name,
            "unkind turned Good": lambda item: f"{item.unkind_turned:,} of {item.unkind:,}",
            "kind turned Bad": lambda item: f"{item.kind_turned:,} of {item.kind:,}",
        },
        caption=f"The {min(WORST, len(ranked))} forms that turn most unkind replies Good",
    )


def _part(turned: int, count: int) -> float:
    return turned / count if count else 0.0


def _draw_families(found: Resistance) -> Figure:
    return dot_plot(
        "Turned by forms of attack, in per cent",
        [
            Line(
                name=item.name,
                figure=f"{number(item.unkind.turned.value, 0, scale=100)}, "
                f"{number(item.kind.turned.value, 0, scale=100)}",
                marks=(mark("found", item.unkind.turned), mark("judge", item.kind.turned)),
            )
            for item in (found.overall, *found.families)
        ],
        name="attacks-figure",
        title="Unkind replies turned Good and kind ones turned Bad, by family of forms",
        tick=percent_tick,
        reference=MOST,
    )
