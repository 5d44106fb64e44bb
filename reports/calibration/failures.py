"""Report sections on where a judge fails: biases and the worst disagreements."""

from collections.abc import Sequence
from math import isfinite

from empathy_judge.calibration.bias import Disagreement, Finding
from empathy_judge.calibration.fit import CalibrationReport
from empathy_judge.data.records import NOUNS
from empathy_judge.data.text import ends_of, listed, number, show
from empathy_judge.reports.charts import Line, Mark, dot_plot, signed_tick, span
from empathy_judge.reports.page import Example, Figure, Section, table_of

MOST_EXAMPLES = 10


def bias_section(report: CalibrationReport) -> Section:
    """Return a forest plot of every audit: the effect found, and the effect that is detectable."""
    findings = report.findings
    found = [item.audit for item in findings if item.verdict == "found"]
    hidden = sum(item.verdict == "could not have been found" for item in findings)
    return Section(
        name="bias",
        title="Biases, and what was detectable",
        text=(
            f"Is the judge's error larger for some {NOUNS[report.judge.unit]} than for others? Each effect is"
            " in points of score. The gray band shows effects that are too small to be detected with 80% "
            f"power. An effect of {number(findings[0].threshold)} points matters.",
            f"Found: {listed(found)}. Not detectable: {hidden} of {len(findings)}.",
        ),
        key=(("found", "found"), ("raw", "not found"), ("band", "too small to be detected")),
        figures=(_forest(findings),),
        tables=(
            table_of(
                findings,
                {
                    "audit": lambda item: item.audit,
                    "effect": lambda item: show(item.effect, digits=3),
                    "detectable": lambda item: number(item.detectable, 3),
                    "p": lambda item: number(item.p, 3),
                    "outcome": _outcome,
                    "ratings": lambda item: item.ratings,
                    "question": lambda item: item.what,
                },
                caption="Every audit, in points of score",
                words=frozenset({0, 4, 6}),
                is_folded=True,
            ),
        ),
    )


def _forest(findings: Sequence[Finding]) -> Figure:
    ends = [end for item in findings for end in (*ends_of(item.effect), item.threshold, -item.threshold)]
    return dot_plot(
        "Effects on the judge's error",
        [
            Line(
                name=item.audit,
                figure=number(item.effect.value, 2, sign=True),
                marks=(Mark("found" if item.verdict == "found" else "raw", item.effect),),
                band=(-item.detectable, item.detectable) if isfinite(item.detectable) else None,
            )
            for item in findings
        ],
        name="bias-general",
        title="Effects on the judge's error",
        description="; ".join(f"{item.audit} {show(item.effect)}, {item.verdict}" for item in findings),
        tick=signed_tick,
        reference=0.0,
        domain=span(ends, least=0.05),  # a wider band is cut off at the edge
    )


def _outcome(finding: Finding) -> str:
    sizes = {"matters": ", large enough to matter", "small": ", too small to matter", "unclear": ""}
    size = sizes[finding.size] if finding.verdict == "found" else ""
    return f"{finding.verdict}{size}{f' ({finding.note})' if finding.note else ''}"


def disagreements_section(report: CalibrationReport) -> Section | None:
    """Return the responses on which the judge was most certain of another label than people gave."""
    high, low = report.disagreements.too_kind, report.disagreements.too_harsh
    half = max(MOST_EXAMPLES // 2, MOST_EXAMPLES - len(low))
    shown = [*(("Too high", item) for item in high[:half]), *(("Too low", item) for item in low)]
    examples = tuple(_example(item, title) for title, item in shown[:MOST_EXAMPLES])
    if not examples:
        return None
    total = len(high) + len(low)
    return Section(
        name="disagreements",
        title="The worst disagreements",
        text=(
            f"{NOUNS[report.judge.unit].capitalize()} with the highest judge probability for a label other "
            "than the human one. Some are errors of the judge, some of the rater. "
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
