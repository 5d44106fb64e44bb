"""How far scripted and simulated speakers agree, as a page and on a terminal."""

from data.text import number, show
from judge.speakers.speaker_agreement import SpeakerAgreement, SpokenLevel
from reports.charts import Line, dot_plot, mark, signed_tick
from reports.page import Page, Section, table_of


def speakers_page(found: SpeakerAgreement) -> Page:
    """Make the page: the finding first, then a row for each model."""
    gap = found.difference
    ends = gap.interval
    if ends and ends.low > 0:
        level = "higher"
    elif ends and ends.high < 0:
        level = "lower"
    else:
        level = "neither surely higher nor lower"
    verdict = [
        f"With {found.speaker} in the speaker's place, conversations score {level} than with scripts:"
        f" {show(gap, digits=2, sign=True)} on the scale from 1 to 3.",
        "Conversation by conversation, the two agree to a rank correlation of"
        f" {show(found.spearman, digits=2, zero=False)} (1 would be the same order); within one model of"
        f" {show(found.within, digits=2, zero=False)}.",
    ]
    if found.pairs:
        many = f"{found.pairs} pairs of models" if found.pairs > 1 else "1 pair of models"
        verdict.append(f"In the same order by both: {found.same_order} of {many}.")
    columns = {
        "model": lambda level: level.model,
        "situations": lambda level: level.situations,
        "scripted": lambda level: number(level.scripted),
        "simulated": lambda level: number(level.simulated),
        "difference": lambda level: show(level.difference, digits=2, sign=True),
    }
    return Page(
        kind="Scripted and simulated speakers",
        title="Scripted and simulated speakers",
        subtitle=f"{found.conversations:,} conversations in {found.situations:,} situations",
        verdict=tuple(verdict),
        sections=(
            Section(
                name="models",
                title="By model",
                short="By model",
                figures=(
                    dot_plot(
                        "Simulated less scripted, mean score",
                        [_line(level) for level in found.models],
                        name="speakers",
                        title="How much a simulated speaker changes each model's mean score",
                        tick=signed_tick,
                        reference=0.0,
                    ),
                ),
                tables=(table_of(found.models, columns, caption="Mean score from 1 (Bad) to 3 (Good)"),),
                notes=(
                    "Brackets are 95 % intervals over situations, for this judge and these models. No person"
                    " spoke in any of these conversations.",
                ),
            ),
        ),
        foot=f"Speakers simulated by {found.speaker}.",
    )


def _line(level: SpokenLevel) -> Line:
    return Line(
        name=level.model,
        figure=show(level.difference, digits=2, sign=True),
        marks=(mark("judge", level.difference),),
    )
