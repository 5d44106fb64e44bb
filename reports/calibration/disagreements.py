"""Where judge and people part: sections on emotions, label policy and the worst disagreements."""

from collections.abc import Iterator, Sequence

from data.text import UNDEFINED, Row, number, part, rows, show_estimate, text_of
from reports.page import Cell, Example, Section, Table, Tile, row

FEWEST = 30  # ratings of an emotion below which its difference says nothing and stays grey
FULL_TINT = {
    "share of Good": 0.15,
    "mean": 0.5,
}  # the difference that has the full colour, the same in all reports
REACH = 1.96  # standard errors to either side in a 95 % interval
MOST_EXAMPLES = 4  # on either side


def emotions_section(result: Row) -> Section | None:
    """A heat map of the judge's level less the crowd's, by emotion."""
    found = part(result, "by_emotion")
    emotions = rows(found, "emotions")
    if not emotions:
        return None
    level = str(found.get("level", "share of Good"))
    ordered = sorted(emotions, key=lambda item: (not _is_enough(item), -(item.get("difference") or 0.0)))
    unit = "points of per cent" if level != "mean" else "points of the scale"
    return Section(
        name="emotions",
        title="Emotion by emotion",
        short="Emotions",
        text=(
            f"Judge less crowd, {level}, in {unit}: orange where the judge is kinder than people, blue where "
            f"it is harsher, hatched where there are fewer than {FEWEST} ratings. Of {len(emotions)} "
            f"emotions, about {max(1, round(len(emotions) / 20))} would stray beyond the margin by chance.",
        ),
        tiles=tuple(_tile(item, level) for item in ordered),
        tables=tuple(_emotion_table(found, ordered, level)),
    )


def _is_enough(cell: Row) -> bool:
    return (cell.get("n") or 0) >= FEWEST and cell.get("difference") is not None


def _difference(cell: Row, level: str) -> str:
    scale, digits = (1, 2) if level == "mean" else (100, 1)
    return number(cell.get("difference"), digits, scale=scale, sign=True)


def _tint(cell: Row, level: str) -> float | None:
    if not _is_enough(cell):
        return None
    return max(-1.0, min(1.0, float(cell["difference"]) / FULL_TINT.get(level, 0.5)))


def _tile(item: Row, level: str) -> Tile:
    error = item.get("standard_error")
    scale, digits = (1, 2) if level == "mean" else (100, 1)
    margin = ""
    if _is_enough(item) and error is not None:
        margin = f"\N{PLUS-MINUS SIGN}{number(REACH * error, digits, scale=scale)}"
    return Tile(
        name=text_of(item, "emotion"),
        figure=_difference(item, level) if _is_enough(item) else "too few",
        margin=margin,
        count=f"n {item.get('n') or 0:,}",
        tint=_tint(item, level),
    )


def _emotion_table(found: Row, emotions: Sequence[Row], level: str) -> Iterator[Table]:
    models = [str(name) for name in found.get("models") or []]
    if models:
        yield Table(
            caption="The same by model (judge less crowd)",
            head=("emotion", "all", *models),
            rows=tuple(
                row(
                    text_of(item, "emotion"),
                    *(
                        Cell(_difference(cell, level) if _is_enough(cell) else "too few", _tint(cell, level))
                        for cell in [item, *rows(item, "models")]
                    ),
                )
                for item in emotions
            ),
            is_folded=True,
        )


def policy_section(result: Row) -> Section | None:
    """The same judgments with Okay counted strictly or leniently."""
    found = part(result, "policy")
    policies = {name: part(found, name) for name in ("strict", "lenient") if part(found, name)}
    if not policies:
        return None
    names = list(
        dict.fromkeys(
            text_of(item, "model") for policy in policies.values() for item in rows(policy, "models")
        )
    )
    levels = {
        name: {text_of(item, "model"): item for item in rows(policy, "models")}
        for name, policy in policies.items()
    }
    same = found.get("same_order")
    verdict = {
        True: "The judge's order of models is the same either way.",
        False: "The judge's order of models depends on it.",
    }
    return Section(
        name="policy",
        title="Does it matter how Okay is counted?",
        short="Label policy",
        text=(
            verdict.get(same, "")
            if isinstance(same, bool)
            else "Whether the order of models depends on it is undefined.",
        ),
        points=tuple(
            f"{name.capitalize()}, {policy.get('says', '')}: people's order is "
            f"{', '.join(map(str, policy.get('order_people') or ['undefined']))}; the judge's is "
            f"{', '.join(map(str, policy.get('order_judge') or ['undefined']))}."
            for name, policy in policies.items()
        ),
        tables=(
            Table(
                caption="Per cent of responses that count as good",
                head=("model", *(f"{name}, {who}" for name in policies for who in ("crowd", "judge"))),
                rows=tuple(
                    row(
                        model,
                        *(
                            number(levels[name].get(model, {}).get(who), 1, scale=100)
                            for name in policies
                            for who in ("crowd", "judge")
                        ),
                    )
                    for model in names
                ),
            ),
            Table(
                caption="Agreement under either policy",
                head=("statistic", *policies),
                rows=tuple(
                    row(
                        metric.replace("_", " "),
                        *(
                            show_estimate(part(policy, "agreement").get(metric))
                            for policy in policies.values()
                        ),
                    )
                    for metric in dict.fromkeys(
                        key for policy in policies.values() for key in part(policy, "agreement")
                    )
                ),
            ),
        ),
    )


def disagreements_section(result: Row) -> Section | None:
    """Where the judge was surest of something else than people said."""
    found = part(result, "disagreements")
    sides = {"too_kind": "Too kind", "too_harsh": "Too harsh"}
    examples = tuple(
        _example(item, words) for side, words in sides.items() for item in rows(found, side)[:MOST_EXAMPLES]
    )
    if not examples:
        return None
    total = sum(len(rows(found, side)) for side in sides)
    return Section(
        name="disagreements",
        title="The worst disagreements",
        short="Disagreements",
        text=(
            "Responses on which the judge was surest of something else than people said. A single rating is "
            "one person's: some of these are the judge's mistakes, some the rater's. "
            f"{len(examples)} of {total} are shown; report.json has them all.",
        ),
        examples=examples,
    )


def _example(item: Row, title: str) -> Example:
    said = ", ".join(map(str, item.get("ratings") or [UNDEFINED]))
    chances = part(item, "probabilities").items()
    facts = [
        ("score", number(item.get("score"))),
        ("chances", ", ".join(f"{label} {number(value, 0, scale=100)} %" for label, value in chances)),
        ("emotion", item.get("emotion")),
        ("model", item.get("model")),
        ("response", item.get("id")),
        ("the judge's reason", item.get("rationale")),
    ]
    return Example(
        title=f"{title}: people say {said}, the judge {text_of(item, 'label')}",
        facts=tuple((name, str(value)) for name, value in facts if value),
        prompt=item.get("prompt"),
        response=item.get("response"),
    )
