"""How far a judge agrees with people: sections on agreement with ceiling and baselines, and on confusion."""

from collections.abc import Iterator, Sequence

from data.text import METRIC_NAMES, Row, estimate, number, part, rows, show_estimate, text_of
from reports.charts import Line, Look, Mark, interval_dots
from reports.page import Cell, Figure, Section, Table, row

SHOWN = ("qwk_matched", "spearman", "qwk", "balanced_accuracy")  # of all metrics, those with a figure


def agreement_section(result: Row) -> Section | None:
    """The judge's agreement with people between trivial baselines and what people themselves reach."""
    metrics = part(result, "agreement")
    if not metrics:
        return None
    judges = list(_judges(result))
    panels = [
        Figure(
            caption=METRIC_NAMES.get(metric, metric),
            svg=interval_dots(
                [
                    Line(
                        name=name,
                        figure=show_estimate(found[metric]),
                        marks=(Mark(look=look, **estimate(found[metric])),),
                    )
                    for name, look, found in judges
                    if metric in found
                ],
                name=f"agreement-{metric}",
                title=f"{METRIC_NAMES.get(metric, metric)}: the judge, baselines and people",
                description=_describe(judges, metric),
                tick=lambda value: f"{value:.2g}",
                reference=0.0 if metric != "balanced_accuracy" else None,
            ),
        )
        for metric in SHOWN
        if metric in metrics
    ]
    names = list(dict.fromkeys([*METRIC_NAMES, *metrics]))
    names = [metric for metric in names if any(metric in found for _, _, found in judges)]
    table = Table(
        caption="Agreement with people's ratings, with 95 % intervals",
        head=("statistic", *(name for name, _, _ in judges)),
        rows=tuple(
            row(
                METRIC_NAMES.get(metric, metric),
                *(show_estimate(found.get(metric)) for _, _, found in judges),
            )
            for metric in names
        ),
        is_folded=True,
    )
    return Section(
        name="agreement",
        title="Agreement, with ceiling and baselines",
        short="Agreement",
        text=tuple(_say_ceiling(result)),
        key=(
            ("judge", "the judge"),
            ("rival", "a baseline"),
            ("people", "a person"),
            ("bound", "perfect knowledge: the most anyone can reach"),
        ),
        figures=tuple(panels),
        tables=(*_people_tables(result), table),
        notes=tuple(_say_intervals(part(result, "data"))),
    )


def _judges(result: Row) -> Iterator[tuple[str, Look, Row]]:
    """Who is compared: name, look and metrics."""
    ceiling = part(result, "ceiling")
    yield str(part(result, "judge").get("name") or "judge"), "judge", part(result, "agreement")
    for baseline in rows(result, "baselines"):
        yield text_of(baseline, "name"), "rival", part(baseline, "metrics")
    if ceiling.get("not_identifiable"):
        for bound in rows(ceiling, "bounds")[:1]:
            yield "a second person, supposed", "people", _as_matched(part(bound, "second_person"))
            yield "perfect knowledge, supposed", "bound", _as_matched(part(bound, "perfect"))
    elif ceiling:
        people = {"qwk": ceiling.get("person_against_rest"), **part(ceiling, "people")}
        yield "a person", "people", _as_matched(people)


def _as_matched(metrics: Row) -> Row:
    """People's labels are as frequent as ratings: their kappa is the same by label and by order."""
    return {**metrics, "qwk_matched": metrics["qwk"]} if "qwk" in metrics else metrics


def _describe(judges: Sequence[tuple[str, Look, Row]], metric: str) -> str:
    return "; ".join(f"{name} {show_estimate(found[metric])}" for name, _, found in judges if metric in found)


def _say_ceiling(result: Row) -> Iterator[str]:
    ceiling = part(result, "ceiling")
    bounds = rows(ceiling, "bounds")
    if ceiling.get("not_identifiable"):
        said = str(ceiling["not_identifiable"]).removeprefix("not identifiable: ")
        yield f"How far people agree among themselves is not identifiable here: {said}."
        for bound in bounds[:1]:
            yield (
                "The marks for people are therefore supposed, not measured: what a second person would reach "
                f"if two people agreed by a weighted kappa of {number(bound.get('reliability'))}, and what "
                "somebody would who knew every response's true quality."
            )
    elif ceiling:
        yield (
            f"{number(ceiling.get('shared'), 0)} responses have two ratings or more, by "
            f"{number(ceiling.get('raters'), 0)} people. "
            "One person against the median of the others has a weighted kappa of "
            f"{show_estimate(ceiling.get('person_against_rest'))}, the judge in that person's place "
            f"{show_estimate(ceiling.get('judge_against_rest'))}; the judge is ahead by "
            f"{show_estimate(ceiling.get('gap'))}."
        )
    yield from _say_alternative(part(ceiling, "alternative"))


def _say_alternative(test: Row) -> Iterator[str]:
    if not test:
        return
    if test.get("undefined"):
        yield f"The alternative-annotator test is undefined: {test['undefined']}."
        return
    verdict = "passes" if test.get("is_passed") else "does not pass"
    yield (
        f"The judge {verdict} the alternative-annotator test: it does as well as "
        f"{number(test.get('winning_rate'), 0, scale=100)} % of the people in their own place, where half "
        f"are needed (epsilon {number(test.get('epsilon'))}); "
        f"its mean advantage is {show_estimate(test.get('advantage'))}."
    )


def _people_tables(result: Row) -> Iterator[Table]:
    left_out = rows(part(result, "ceiling"), "left_out")
    if left_out:
        yield Table(
            caption="Weighted kappa with the median of the others: each person, and the judge instead",
            head=("person", "responses", "person", "judge"),
            rows=tuple(
                row(
                    text_of(item, "rater"),
                    item.get("responses"),
                    number(item.get("person")),
                    number(item.get("judge")),
                )
                for item in left_out
            ),
        )


def _say_intervals(data: Row) -> Iterator[str]:
    if data.get("draws"):
        kind = str(data.get("clusters", "cluster"))
        yield (
            f"Intervals: 95 %, from {data['draws']:,} draws that resample "
            f"{number(data.get('cluster_count'), 0)} whole {_plural(kind)}, since the ratings of one {kind} "
            "are not independent."
        )


def _plural(word: str) -> str:
    return f"{word}es" if word.endswith(("ch", "s")) else f"{word}s"


def confusion_section(result: Row) -> Section | None:
    """People's ratings down, the judge's labels across."""
    confusion = part(result, "confusion")
    labels, counts = confusion.get("labels") or [], confusion.get("rows") or []
    if not labels or not counts:
        return None
    body = []
    for label, line in zip(labels, counts, strict=True):
        total = sum(line)
        cells = [
            Cell(
                f"{count:,} ({100 * count / total:.0f} %)" if total else f"{count:,}",
                -count / total if total else None,
            )
            for count in line
        ]
        body.append(row(label, *cells, total))
    sums = [sum(line[number] for line in counts) for number in range(len(labels))]
    body.append(row("all", *sums, sum(sums)))
    return Section(
        name="confusion",
        title="Which label for which",
        short="Confusion",
        text=(
            "Each row is a label people gave; the darker a cell, the more of that row the judge put there.",
        ),
        tables=(
            Table(
                caption="Ratings by people's label and the judge's (part of the row)",
                head=("people say", *(f"judge: {label}" for label in labels), "ratings"),
                rows=tuple(body),
            ),
        ),
    )
