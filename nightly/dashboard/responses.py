"""Single responses for the dashboard: one page for a model's night, the worst responses first."""

from dataclasses import dataclass
from typing import Final

from data.records import LABELS
from data.text import slug
from judge.explanation import Explanation, Part
from nightly.dashboard.series import Model, NightSeries
from nightly.history import History
from nightly.schema import JudgedResponse, Night
from reports.charts import visible
from reports.highlight import as_html

NEWEST: Final = 3  # nights whose responses have pages of their own
REGRESSED: Final = 14  # nights with a regression of which the models that had it have pages too
SNIPPET: Final = 110


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponsePage:
    """All responses of a model's night."""

    night: Night
    model: Model
    name: str
    responses: tuple[JudgedResponse, ...]


def read_responses(history: History, series: NightSeries) -> list[ResponsePage]:
    """Pages for the newest nights and for the newest regressions, newest night first."""
    regressed = sorted({at for model in series.models for at in model.regressions})[-REGRESSED:]
    newest = range(len(series.nights))[-NEWEST:]
    pages = []
    for at in sorted({*regressed, *newest}, reverse=True):
        night = series.nights[at]
        record = history.night(*night.key)
        judged = record.judgments if record else ()
        for model in series.models:
            items = [item for item in judged if item.model == model.name]
            if items and (at in newest or at in model.regressions):
                items.sort(key=lambda item: (item.score is not None, item.score or 0.0, item.id))
                name = f"responses-{slug(model.name)}-{slug(night.night)}.html"
                pages.append(ResponsePage(night=night, model=model, name=name, responses=tuple(items)))
    return pages


def snippet(text: str) -> str:
    """The start of a text, on one line."""
    text = " ".join(visible(text).split())
    return text if len(text) <= SNIPPET else text[: SNIPPET - 1].rstrip() + "\N{HORIZONTAL ELLIPSIS}"


def chances(item: JudgedResponse) -> str:
    """Each label's probability in words."""
    values = zip(LABELS, (item.bad, item.okay, item.good), strict=True)
    return ", ".join(f"{label} {100 * value:.0f} %" for label, value in values if value is not None)


def marked(item: JudgedResponse) -> str | None:
    """The response with what drove its score, as markup; None where what is kept is not of this response."""
    pairs = item.highlights if isinstance(item.highlights, list) else []
    # Marks of another text (an edited history) would put words into the model's mouth.
    if not all(isinstance(pair, list) and len(pair) in (2, 3) and isinstance(pair[0], str) for pair in pairs):
        return None
    if not pairs or "".join(text for text, *_ in pairs).split() != item.response.split():
        return None
    parts = tuple(
        Part(visible(text), *(float(value) if isinstance(value, int | float) else None for value in effects))
        for text, *effects in pairs
    )
    return as_html(Explanation(id=item.id, model=item.model, score=item.score, parts=parts))
