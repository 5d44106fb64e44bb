"""Single responses for the dashboard: one page for a model's night, the worst responses first."""

from dataclasses import dataclass
from typing import Any, Final

from data.records import LABELS
from data.text import slug
from judge.explanation import Explanation, Part
from nightly.dashboard.series import NightSeries
from nightly.history import History
from nightly.schema import JudgedResponse, Night
from reports.charts import visible
from reports.highlight import as_html

NEWEST: Final = 3  # nights whose responses have pages of their own
REGRESSED: Final = 14  # nights with a regression of which the models that had it have pages too
SNIPPET: Final = 110


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """One response as its page shows it; `marked` is markup, escaped already."""

    judged: JudgedResponse
    snippet: str
    chances: str
    marked: str | None

    @property
    def label(self) -> str:
        return self.judged.label or "Unscored"


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponsePage:
    """All responses of a model's night."""

    night: Night
    model: str
    name: str
    responses: tuple[Shown, ...]


def read_responses(history: History, series: NightSeries) -> list[ResponsePage]:
    """Pages for the newest nights and for the newest regressions, newest night first."""
    pages = []
    for at, wanted in sorted(_looked_into(series).items(), reverse=True):
        night = series.nights[at]
        record = history.night(night.config, night.night)
        by_model: dict[str, list[JudgedResponse]] = {}
        for item in record.judgments if record else ():
            if item.model in wanted:
                by_model.setdefault(item.model, []).append(item)
        for model, items in by_model.items():
            name = f"responses-{slug(model)}-{slug(night.night)}.html"
            shown = tuple(show(item) for item in sorted(items, key=_worst_first))
            pages.append(ResponsePage(night=night, model=model, name=name, responses=shown))
    return pages


def show(item: JudgedResponse) -> Shown:
    """A response with its marks, where what is marked is the response itself."""
    text = " ".join(visible(item.response).split())
    chances = [
        f"{label} {100 * value:.0f} %"
        for label, value in zip(LABELS, (item.bad, item.okay, item.good), strict=True)
        if value is not None
    ]
    return Shown(
        judged=item,
        snippet=text if len(text) <= SNIPPET else text[: SNIPPET - 1].rstrip() + "\N{HORIZONTAL ELLIPSIS}",
        chances=", ".join(chances),
        marked=_marked(item),
    )


def _looked_into(series: NightSeries) -> dict[int, set[str]]:
    """Which models of which nights: all of the newest, and those that regressed on the newest such nights."""
    every = {model.name for model in series.models}
    wanted = {at: every for at in range(len(series.nights))[-NEWEST:]}
    regressed: dict[int, set[str]] = {}
    for model in series.models:
        for at in model.regressions:
            regressed.setdefault(at, set()).add(model.name)
    return {at: regressed[at] for at in sorted(regressed)[-REGRESSED:]} | wanted


def _worst_first(item: JudgedResponse) -> tuple[bool, float, str]:
    return item.score is not None, item.score or 0.0, item.id


def _marked(item: JudgedResponse) -> str | None:
    parts = _parts(item.highlights)
    # Marks of another text (an edited history) would put words into the model's mouth.
    if not parts or "".join(part.text for part in parts).split() != item.response.split():
        return None
    seen = tuple(Part(visible(part.text), part.effect) for part in parts)
    return as_html(Explanation(id=item.id, model=item.model, score=item.score, parts=seen))


def _parts(highlights: Any) -> list[Part]:
    """Pairs of text and effect; nothing where it is something else, in a history that somebody changed."""
    parts = []
    for pair in highlights if isinstance(highlights, list) else ():
        if not isinstance(pair, list) or len(pair) != 2 or not isinstance(pair[0], str):
            return []
        parts.append(Part(pair[0], float(pair[1]) if isinstance(pair[1], int | float) else None))
    return parts
