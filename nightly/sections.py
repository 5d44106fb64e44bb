"""A calibration's result as a page: which sections, in which order, and what stands at the top of it."""

from collections.abc import Iterator, Mapping
from typing import Any

from nightly.audits import bias_section, probes_section
from nightly.certainty import conformal_section, reliability_section
from nightly.costs import planning_section, runs_section
from nightly.flags import say_flags
from nightly.gaming_page import attacks_section
from nightly.page import Page, Section, Table, row
from nightly.partings import disagreements_section, emotions_section, policy_section
from nightly.standings import models_section, raters_section
from nightly.trust import agreement_section, confusion_section
from nightly.wording import Row, headline_of, number, part, rows, show_estimate, total, worth_of

ORDER = (
    agreement_section,
    models_section,
    planning_section,
    confusion_section,
    reliability_section,
    emotions_section,
    bias_section,
    probes_section,
    attacks_section,
    raters_section,
    conformal_section,
    policy_section,
    disagreements_section,
    runs_section,
)
READING = (
    "An interval in brackets holds the true figure 95 times of 100 if ratings come as these did; another "
    "crowd, rubric or kind of model is another question.",
    "Kappa is 1 for perfect agreement and 0 for chance. The ceiling is not 1: people do not agree with each "
    "other either. By label, it takes the judge's likeliest label; by order, it asks only whether better "
    "replies score higher.",
    "Compare the judge with the baselines beside it before you believe it: one that is no better than "
    "counting words may have read nothing.",
    "A corrected share is the answer; the judge's own is shown to tell how far off it would have been.",
    "“None found” is not “could not have been found”: the grey bands say which it is.",
    "“Undefined” is no number: the data do not determine it.",
)
MISUSE = (
    "To rate single people, or to decide about anyone.",
    "For crisis lines, therapy or medical advice: empathy in a crowd's eyes is neither safety nor truth.",
    "To train a model and then measure that model: what is optimised stops being a measure.",
    "To compare levels across calibrations, languages or kinds of conversation that nobody rated.",
    "To quote a share without its interval, or a rank where intervals overlap.",
)
LEFT_OUT = ("models", "columns", "shares")  # of the data: told in sections of their own


def make_page(result: Row) -> Page:
    """The page of a result; sections it has no data for are left out."""
    made = [section for make in ORDER if (section := make(result)) is not None]
    return Page(
        title=f"How far to trust {part(result, 'judge').get('name') or 'a judge'}",
        subtitle=_subtitle(part(result, "data")),
        verdict=(*_verdict(result), *(f"{line}." for line in say_flags(result.get("flagged")))),
        facts=tuple(_facts(result)),
        sections=(*made, *_reading(), *_provenance(result)),
        foot="All figures are in report.json beside this page.",
    )


def _subtitle(data: Row) -> str:
    if not data:
        return "No data were given."
    counts = [f"{data.get(key) or 0:,} {words}" for key, words in _COUNTED.items()]
    models = data.get("models") or []
    named = f"; {len(models)} model{'s' if len(models) > 1 else ''}: {', '.join(map(str, models))}"
    return f"{' '.join(counts)}{named if models else ''}"


_COUNTED = {"ratings": "ratings of", "responses": "responses by", "raters": "people"}


def _verdict(result: Row) -> Iterator[str]:
    sentences = result.get("verdict")
    if sentences:
        yield from [sentences] if isinstance(sentences, str) else map(str, sentences)
        return
    qwk = part(part(result, "agreement"), "qwk")
    if qwk.get("value") is None:
        yield "Nothing can be said of this judge: its agreement with people is undefined."
    else:
        yield f"This judge agrees with people by a weighted kappa of {show_estimate(qwk)}."


def _facts(result: Row) -> Iterator[tuple[str, str, str]]:
    metrics, ceiling = part(result, "agreement"), part(result, "ceiling")
    if metrics:
        found = part(metrics, headline_of(result))
        yield "Weighted kappa with people", number(found.get("value")), _interval(found)
    if ceiling.get("not_identifiable"):
        for bound in rows(ceiling, "bounds")[:1]:
            reach = number(part(bound, "second_person").get("qwk"))
            yield "A second person would reach", reach, "supposed, not measured"
    elif ceiling:
        found = part(ceiling, "person_against_rest")
        yield "A person against the others", number(found.get("value")), _interval(found)
    tau = part(part(result, "over_models"), "tau")
    if tau:
        yield "Order of models (tau)", number(tau.get("value")), _interval(tau)
    worth = worth_of(part(result, "between"))
    if worth is not None:
        yield "On an unrated model as exact as", number(worth, 0), "ratings of it"
    unscored = part(part(result, "data"), "unscored")
    if unscored:
        reasons = ", ".join(f"{reason} ({number(count, 0)})" for reason, count in unscored.items())
        yield "Unscored", f"{total(unscored):,}", reasons


def _interval(found: Row) -> str:
    if found.get("low") is None or found.get("high") is None:
        return ""
    return f"{number(found['low'])} to {number(found['high'])}"


def _reading() -> Iterator[Section]:
    yield Section(name="reading", title="How to read this", short="Reading", points=READING)
    yield Section(name="misuse", title="What it must not be used for", short="Not for", points=MISUSE)


def _provenance(result: Row) -> Iterator[Section]:
    """Where every figure comes from: the judge, the data, the seed, and hashes where given."""
    data = {key: value for key, value in part(result, "data").items() if key not in LEFT_OUT}
    named = {"judge": part(result, "judge"), "": data, "calibration": part(result, "calibration")}
    facts = {key: value for name, found in named.items() for key, value in _flat(found, name).items()}
    if not facts:
        return
    table = Table(
        caption="What was calibrated, on what, and how",
        head=("fact", "value"),
        rows=tuple(row(name, value) for name, value in facts.items()),
        words=frozenset({0, 1}),
    )
    yield Section(name="provenance", title="Where the figures come from", short="Provenance", tables=(table,))


def _flat(found: Mapping[str, Any], name: str) -> dict[str, str]:
    """Nested facts as one list of names and texts; what is empty is left out."""
    flat: dict[str, str] = {}
    for key, value in found.items():
        full = f"{name} {key}".strip().replace("_", " ")
        if isinstance(value, Mapping):
            flat |= _flat(value, full)
        elif isinstance(value, list):
            flat |= {full: ", ".join(map(str, value))} if value else {}
        elif isinstance(value, float):
            flat[full] = f"{value:.4g}"
        elif value not in (None, ""):
            flat[full] = str(value)
    return flat
