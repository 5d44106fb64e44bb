"""Choices between two replies: how far a judge agrees with them, and which model is chosen more often."""

from collections.abc import Sequence
from typing import Any

from empathy_judge.calibration.agreement.choices import ChoiceAgreement, ChosenModels
from empathy_judge.calibration.estimate import LEAST_RATERS
from empathy_judge.data.records import to_plain
from empathy_judge.data.text import percent
from empathy_judge.reports.calibration.verdict import count_people
from empathy_judge.reports.page import Page, Section, table_of

NO_LEVELS = (
    "Choices show which of two replies is better, not how good they are, so they cannot calibrate a judge: "
    "no calibration.json is written."
)
FEW = f"fewer than {LEAST_RATERS} raters: the figures describe these raters only, not people in general"


def choice_agreement_page(found: Sequence[ChoiceAgreement], *, notes: Sequence[str] = ()) -> Page:
    """Return the page on how far each judge agrees with the choices."""
    table = table_of(
        found,
        {
            "judge": lambda item: item.judge,
            "agrees, %": lambda item: percent(item.agreement),
            "longer reply, %": lambda item: item.longer and percent(item.longer),
            "choices": lambda item: item.decided,
            "ties": lambda item: item.ties,
            "not scored": lambda item: item.unscored,
        },
    )
    return Page(
        kind="Agreement with choices",
        title=f"Agreement of {found[0].judge} with human choices",
        subtitle=f"{found[0].decided:,} choices by {count_people(found[0].raters)}",
        verdict=(*(say_choice_agreement(item) for item in found), NO_LEVELS),
        sections=(Section(name="choices", title="Choices", tables=(table,)),),
        foot="; ".join(notes),
    )


def say_choice_agreement(found: ChoiceAgreement) -> str:
    """In what part of the choices the judge agrees, beside chance and the longer reply."""
    beside = "chance is 50%"
    if found.longer is not None:
        beside += f", the longer reply reaches {percent(found.longer.value)}%"
    said = (
        f"{found.judge} scores the chosen reply higher in {percent(found.agreement)} percent of"
        f" {found.decided:,} choices by people; {beside}."
    )
    left = [f"{found.ties:,} ties"] if found.ties else []
    left += [f"{found.unscored:,} with a reply that was not scored"] if found.unscored else []
    said += f" Left out: {' and '.join(left)}." if left else ""
    return said + (f" {FEW.capitalize()}." if found.speaks_for != "people" else "")


def chosen_models_page(found: Sequence[ChosenModels], *, source: str) -> Page:
    """Which model is chosen over which."""
    table = table_of(
        found,
        {
            "model": lambda item: item.one,
            "against": lambda item: item.other,
            "chosen, %": lambda item: percent(item.share),
            "wins": lambda item: item.wins,
            "ties": lambda item: item.ties,
            "losses": lambda item: item.losses,
        },
        words=frozenset({0, 1}),
    )
    notes = ["A tie counts as half. 95% CIs resample raters, or prompts if there are few raters."]
    if len(found) > 1:
        notes.append("CIs are not adjusted for multiple comparisons: 1 in 20 excludes 50% by chance.")
    if any(item.speaks_for != "people" for item in found):
        notes.append(f"{FEW.capitalize()}.")
    return Page(
        kind="Choices",
        title="Which model people choose",
        subtitle=source,
        verdict=tuple(say_chosen(item) for item in found),
        sections=(
            Section(name="pairs", title="Models", short="Models", tables=(table,), notes=tuple(notes)),
        ),
    )


def say_chosen(found: ChosenModels) -> str:
    """Which of two models is chosen more often, if they are distinguishable."""
    share = percent(found.share)
    total = found.wins + found.ties + found.losses
    if found.is_significant:
        return f"{found.one} is chosen over {found.other} in {share} percent of {total:,} human choices."
    names = f"{found.one} and {found.other} are not statistically distinguishable"
    return f"{names}: {share} percent of {total:,} choices are for {found.one}."


def plain_choices(
    found: Sequence[ChoiceAgreement] | Sequence[ChosenModels], *, notes: Sequence[str] = ()
) -> dict[str, Any]:
    """The figures as JSON has them."""
    return {"kind": "choices", "notes": list(notes), "results": to_plain(list(found))}
