"""Report sections on emotions and on the worst disagreements."""

from calibration.bias.slices import Disagreement, EmotionCell
from calibration.fit import CalibrationReport
from data.records import NOUNS
from data.text import number
from reports.page import Cell, Example, Section, Table, Tile, row

FEWEST = 30  # ratings of an emotion below which its difference is not shown
# The unit, scale and digits of a difference, and the one with the full color.
LEVELS = {
    "share of Good": ("percentage points", 100, 1, 0.15),
    "mean": ("points of the scale", 1, 2, 0.5),
}
REACH = 1.96  # standard errors to either side in a 95% confidence interval
MOST_EXAMPLES = 4  # on either side


def emotions_section(report: CalibrationReport) -> Section | None:
    """Return a heat map of the judge's level minus the human level, by emotion."""
    table = report.by_emotion
    if table is None:
        return None
    unit, scale, digits, full = LEVELS[table.level]

    def figure(cell: EmotionCell) -> str:
        return number(cell.difference, digits, scale=scale, sign=True) if cell.n >= FEWEST else "too few"

    def margin(cell: EmotionCell) -> str:
        if cell.standard_error is None:
            return ""
        return f"\N{PLUS-MINUS SIGN}{number(REACH * cell.standard_error, digits, scale=scale)}"

    def tint(cell: EmotionCell) -> float | None:
        if cell.n < FEWEST or cell.difference is None:
            return None
        return max(-1.0, min(1.0, cell.difference / full))

    ordered = sorted(
        (item for item in table.emotions if item.overall.n >= FEWEST),
        key=lambda item: -(item.overall.difference or 0.0),
    )
    few = [item.overall.n for item in table.emotions if item.overall.n < FEWEST]
    counts = f"{min(few)}" if few and min(few) == max(few) else f"{min(few)} to {max(few)}" if few else ""
    if not ordered:
        none = f"None of the {len(few)} emotions has the {FEWEST} ratings needed: each has {counts}."
        return Section(name="emotions", title="Emotion by emotion", short="Emotions", text=(none,))
    # Models of which at least one emotion has enough.
    enough = [at for at in range(len(table.models)) if any(item.models[at].n >= FEWEST for item in ordered)]
    return Section(
        name="emotions",
        title="Emotion by emotion",
        short="Emotions",
        text=(
            f"Judge minus people, {table.level}, in {unit}: orange where the judge is higher, blue where it "
            f"is lower. Of {len(ordered)} emotions, about {max(1, round(len(ordered) / 20))} would exceed "
            "the margin by chance.",
            *([f"Left out: {len(few)} with fewer than {FEWEST} ratings ({counts})."] if few else []),
        ),
        tiles=tuple(
            Tile(
                name=item.emotion,
                figure=figure(cell),
                margin=margin(cell),
                count=f"n {cell.n:,}",
                tint=tint(cell),
            )
            for item in ordered
            for cell in [item.overall]
        ),
        tables=(
            Table(
                caption="The same by model (judge minus people)",
                head=("emotion", "all", *(table.models[at] for at in enough)),
                rows=tuple(
                    row(
                        item.emotion,
                        *(
                            Cell(figure(cell), tint(cell))
                            for cell in (item.overall, *(item.models[at] for at in enough))
                        ),
                    )
                    for item in ordered
                ),
                is_folded=True,
            ),
        )
        if enough
        else (),
    )


def disagreements_section(report: CalibrationReport) -> Section | None:
    """Return the responses on which the judge was most certain of another label than people gave."""
    sides = {"Too high": report.disagreements.too_kind, "Too low": report.disagreements.too_harsh}
    examples = tuple(
        _example(item, title) for title, worst in sides.items() for item in worst[:MOST_EXAMPLES]
    )
    if not examples:
        return None
    total = sum(map(len, sides.values()))
    return Section(
        name="disagreements",
        title="The worst disagreements",
        short="Disagreements",
        text=(
            f"{NOUNS[report.judge.unit].capitalize()} on which the judge was most certain of another label "
            "than people gave. Some of these are errors of the judge, some of the rater. "
            f"{len(examples)} of {total} are shown; report.json has them all.",
        ),
        examples=examples,
    )


def _example(item: Disagreement, title: str) -> Example:
    chances = (item.probabilities or {}).items()
    facts = [
        ("score", number(item.score)),
        ("probabilities", ", ".join(f"{label} {number(value, 0, scale=100)}%" for label, value in chances)),
        ("emotion", item.emotion),
        ("model", item.model),
        ("id", item.id),
        ("the judge's reason", item.rationale),
    ]
    return Example(
        title=f"{title}: human rating {', '.join(item.ratings)}, judge {item.label}",
        facts=tuple((name, value) for name, value in facts if value),
        prompt=item.prompt,
        response=item.response,
    )
