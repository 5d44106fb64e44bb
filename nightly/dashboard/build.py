"""The dashboard: a folder of static pages made from the history, with charts in SVG and no network access."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, Final

from empathy_judge.data.errors import UserError
from empathy_judge.data.files import disk_errors, replacing
from empathy_judge.data.records import LABELS, NOUNS, PROMPT_NOUNS, REPLY
from empathy_judge.data.text import money, percent, points, slug
from empathy_judge.judge.explanation import Explanation, Part
from empathy_judge.nightly.dashboard.series import ModelSeries, NightSeries, read_series, share_of
from empathy_judge.nightly.dashboard.views import (
    change_figure,
    describe_health,
    emotion_table,
    facts_tonight,
    findings_tonight,
    headline,
    health_figures,
    latest_facts,
    log_rows,
    model_figures,
    model_notes,
    models_tonight,
    night_rows,
    per_cent,
    show_fit,
    trend_figures,
)
from empathy_judge.nightly.history import History
from empathy_judge.nightly.output import describe_unresponsive
from empathy_judge.nightly.schema import JudgedResponse, Night
from empathy_judge.reports.charts import visible
from empathy_judge.reports.highlight import as_html
from empathy_judge.reports.render import TEMPLATES as REPORT_TEMPLATES
from empathy_judge.reports.render import make_environment

TEMPLATES: Final = Path(__file__).parent / "templates"
LIST: Final = "dashboard-files.json"  # the files of this build, so that the next deletes its outdated pages
FACTS_NIGHTS: Final = 14  # nights in the table of nights
OURS: Final = re.compile(r"(?:index|judge|model-[\w.-]+|responses-[\w.-]+)\.html")

NEWEST: Final = 3  # nights whose responses have pages of their own
REGRESSED: Final = 14  # nights with a regression of which the models that had it have pages too
SNIPPET: Final = 110


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponsePage:
    """All responses of a model's night."""

    night: Night
    model: ModelSeries
    name: str
    responses: tuple[JudgedResponse, ...]


def build_dashboard(history: History, folder: Path, *, nights: int | None = None) -> list[Path]:
    """Write the site, index.html last, and return its files; `nights` limits it to the newest nights.

    Outdated files of an earlier build are deleted; a folder with an index.html of another program is refused.
    """
    with disk_errors(folder):
        before = _check_folder(folder)
        series = read_series(history, last=nights)
        responses = read_responses(history, series)
        folder.mkdir(parents=True, exist_ok=True)
        if not (folder / LIST).exists():
            _write_list(folder, set())  # a killed build must know its own index.html
        written: list[Path] = []
        for name, text in _files(series, responses):
            with replacing(folder / name) as partial:
                partial.write_text(text, encoding="utf-8")
            written.append(folder / name)
        names = {path.name for path in written}
        _write_list(folder, names)
        for name in before - names:
            (folder / name).unlink(missing_ok=True)
    return [*written, folder / LIST]


def _write_list(folder: Path, names: set[str]) -> None:
    with replacing(folder / LIST) as partial:
        partial.write_text(json.dumps(sorted(names), indent=0) + "\n", encoding="utf-8")


def _check_folder(folder: Path) -> set[str]:
    """Return the pages of an earlier build."""
    try:
        names = json.loads((folder / LIST).read_text(encoding="utf-8"))
    except FileNotFoundError:
        if (folder / "index.html").exists():
            raise UserError(f"{folder}: has an index.html of another program; set another --out") from None
        return set()
    except (ValueError, RecursionError):
        names = []
    # An edited list must not delete other files.
    return {name for name in names if OURS.fullmatch(str(name))} if isinstance(names, list) else set()


def _files(series: NightSeries, responses: list[ResponsePage]) -> Iterator[tuple[str, str]]:
    styles = (REPORT_TEMPLATES / "report.css", TEMPLATES / "dashboard.css")
    yield "dashboard.css", "\n".join(path.read_text(encoding="utf-8") for path in styles)
    yield "dashboard.js", (TEMPLATES / "dashboard.js").read_text(encoding="utf-8")
    models, nights = series.models, series.nights
    unit = nights[-1].unit if nights else REPLY
    render = _renderer(noun=unit, nouns=NOUNS[unit], prompts=PROMPT_NOUNS[unit])
    links: dict[str, dict[str, str]] = {}
    for page in responses:
        links.setdefault(page.model.name, {})[page.night.night] = page.name
    for page in responses:
        yield render(page.name, "responses", page=page, links=links[page.model.name])
    for at, model in enumerate(models):
        yield render(
            model.page,
            "model",
            model=model,
            facts=latest_facts(series, model),
            notes=[*filter(None, [describe_unresponsive(model.newest)]), *model_notes(model)],
            log=log_rows(series, model),
            rows=night_rows(series, model),
            links=links.get(model.name, {}),
            before=models[:at][-1:],
            after=models[at + 1 :][:1],
            figures=model_figures(series, model),
        )
    spans = groupby(nights, key=lambda night: (night.judge_key, night.calibration))
    yield render(
        "judge.html",
        "judge",
        spans=[list(span) for _, span in spans][::-1],  # the newest first
        series=series,
        summary=describe_health(series),
        figures=health_figures(series),
    )
    tonight = models_tonight(series)
    ordered = [item.model for item in tonight]
    yield render(
        "index.html",
        "index",
        series=series,
        findings=findings_tonight(series),
        notes=[(model.name, note) for model in models for note in model_notes(model)],
        facts=facts_tonight(series),
        tonight=tonight,
        headline=headline(series, tonight) if nights else "",
        figure=change_figure(tonight),
        trends=trend_figures(series, ordered),
        emotions=emotion_table(series, ordered),
        nights=[
            (
                night,
                sum(at in model.regressions for model in models),
                [page for page in responses if page.night is night],
            )
            for at, night in list(enumerate(nights))[: -FACTS_NIGHTS - 1 : -1]
        ],
    )


def _renderer(**names: str) -> Any:
    environment = make_environment(TEMPLATES)
    used = (chances, marked, money, per_cent, share_of, percent, points, show_fit, snippet)
    environment.globals.update({function.__name__: function for function in used}, **names)

    def render(file: str, name: str, **context: Any) -> tuple[str, str]:
        return file, environment.get_template(f"dashboard-{name}.html.j2").render(**context) + "\n"

    return render


def read_responses(history: History, series: NightSeries) -> list[ResponsePage]:
    """Return pages for the newest nights and for the newest regressions, newest night first."""
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
    """Return the start of a text, on one line."""
    text = " ".join(visible(text).split())
    return text if len(text) <= SNIPPET else text[: SNIPPET - 1].rstrip() + "\N{HORIZONTAL ELLIPSIS}"


def chances(item: JudgedResponse) -> str:
    """Return each label's probability as text."""
    values = zip(LABELS, (item.bad, item.okay, item.good), strict=True)
    return ", ".join(f"{label} {100 * value:.0f}%" for label, value in values if value is not None)


def marked(item: JudgedResponse) -> str | None:
    """Return the response with what drove its score, as markup; None where stored parts differ."""
    pairs = item.highlights if isinstance(item.highlights, list) else []
    if not all(isinstance(pair, list) and len(pair) in (2, 3) and isinstance(pair[0], str) for pair in pairs):
        return None
    if not pairs or "".join(text for text, *_ in pairs).split() != item.response.split():
        return None
    parts = tuple(
        Part(visible(text), *(float(value) if isinstance(value, int | float) else None for value in effects))
        for text, *effects in pairs
    )
    return as_html(Explanation(id=item.id, model=item.model, score=item.score, parts=parts))
