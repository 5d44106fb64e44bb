"""The dashboard: a folder of static pages made from the history, with charts in SVG and no network access."""

import json
import math
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from empathy_judge.calibration.estimate import Estimate
from empathy_judge.data.errors import UserError
from empathy_judge.data.files import disk_errors, replacing
from empathy_judge.data.records import LABELS, NOUNS, PROMPT_NOUNS, REPLY
from empathy_judge.data.text import money, percent, points, slug
from empathy_judge.judge.explanation import Explanation, Part
from empathy_judge.nightly.changes import describe_variation
from empathy_judge.nightly.dashboard import views
from empathy_judge.nightly.dashboard.views import ModelSeries, ModelTonight, NightSeries, share_of
from empathy_judge.nightly.history import History
from empathy_judge.nightly.output import describe_unresponsive
from empathy_judge.nightly.schema import JudgedResponse, Night
from empathy_judge.reports import charts
from empathy_judge.reports.highlight import as_html
from empathy_judge.reports.page import Figure
from empathy_judge.reports.render import TEMPLATES as REPORT_TEMPLATES
from empathy_judge.reports.render import make_environment

TEMPLATES: Final = Path(__file__).parent / "templates"
LIST: Final = "dashboard-files.json"  # the files of this build, so that the next deletes its outdated pages
FACTS_NIGHTS: Final = 14  # nights in the table of nights
OURS: Final = re.compile(r"(?:index|judge|model-[\w.-]+|responses-[\w.-]+)\.html")

CHART_NIGHTS: Final = 180  # in a chart
TREND_MODELS: Final = 6  # with a chart on the first page
DRAWN: Final = 40  # models in the chart of changes; the table has all
NEWEST: Final = 3  # nights whose responses have pages
REGRESSED: Final = 14  # nights with a regression, which have pages of the models that regressed
SNIPPET: Final = 110
LOOKS: Final[Mapping[str, str]] = {"Good": "judge", "Okay": "rival", "Bad": "people"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponsePage:
    """All responses of a model's night."""

    night: Night
    model: ModelSeries
    name: str
    responses: tuple[JudgedResponse, ...]


def build_dashboard(history: History, folder: Path, *, nights: int | None = None) -> list[Path]:
    """Write the site, index.html last, and return its files; delete outdated files of an earlier build."""
    with disk_errors(folder):
        before = _check_folder(folder)
        series = views.read_series(history, last=nights)
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
    pages = defaultdict[str, list[ResponsePage]](list)
    for page in responses:
        links.setdefault(page.model.name, {})[page.night.night] = page.name
        pages[page.night.night].append(page)
    for page in responses:
        yield render(page.name, "responses", page=page, links=links[page.model.name])
    for at, model in enumerate(models):
        tonight, change = model.points[-1], describe_variation(model.changes[-1])
        notes = (describe_unresponsive(model.newest), change, *(tonight.notes if tonight else ()))
        shares = [_share_figure(series, model, label, caption=f"{label} share, %") for label in LABELS[::-1]]
        yield render(
            model.page,
            "model",
            model=model,
            facts=views.latest_facts(series, model),
            notes=[*filter(None, notes)],
            log=views.log_rows(series, model),
            rows=views.night_rows(series, model),
            links=links.get(model.name, {}),
            before=models[:at][-1:],
            after=models[at + 1 :][:1],
            figures=[*filter(None, [_change_figure(series, model)]), *shares],
        )
    spans = groupby(nights, key=lambda night: (night.judge_key, night.calibration))
    yield render(
        "judge.html",
        "judge",
        spans=[list(span) for _, span in spans][::-1],  # the newest first
        series=series,
        summary=views.describe_health(series),
        figures=health_figures(series),
    )
    ranked = views.models_tonight(series)
    ordered = [item.model for item in ranked]
    yield render(
        "index.html",
        "index",
        series=series,
        facts=views.facts_tonight(series),
        tonight=ranked,
        figure=change_figure(ranked),
        trends=[
            _change_figure(series, model) or _share_figure(series, model, "Good", caption=model.name)
            for model in ordered[:TREND_MODELS]
        ],
        emotions=views.emotion_table(series, ordered),
        nights=[
            (night, sum(at in model.regressions for model in models), pages[night.night])
            for at, night in list(enumerate(nights))[: -FACTS_NIGHTS - 1 : -1]
        ],
    )


def _renderer(**names: str) -> Any:
    environment = make_environment(TEMPLATES)
    used = (chances, marked, money, views.per_cent, share_of, percent, points, views.show_fit, snippet)
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


def change_figure(tonight: Sequence[ModelTonight]) -> Figure | None:
    """Return the changes of all models with tonight's intervals, in points; None where there is none."""
    lines = [
        charts.Line(
            name=item.model.name,
            figure=points(item.change.shown),
            marks=(charts.Mark("found" if item.is_worse else "judge", item.change.shown),),
            band=None if item.limit is None else (-math.inf, -item.limit / 100),
        )
        for item in tonight
        if item.change is not None
    ][:DRAWN]
    if not lines:
        return None
    return charts.dot_plot(
        f"Change of the Good share since {views.name_baseline(tonight)}, in points",
        lines,
        name="changes",
        title="Change of each model's Good share since its baseline",
        tick=_points_tick,
        unit=" points",
        reference=0.0,
    )


def health_figures(series: NightSeries) -> dict[str, Figure]:
    """Return the charts of the judge: its shift on the anchors, unscored responses, cost."""
    nights = dict(enumerate(series.health))
    return {
        "shift": _nightly_chart(
            series,
            [night.shift.change if night.shift else None for night in series.health],
            caption="Shift of the judge's Good probability on the anchors, points",
            name="shift",
            flagged={at for at, night in nights.items() if night.shift and night.shift.is_shown},
            tick=_points_tick,
            show=points,
        ),
        "unscored": _nightly_chart(
            series,
            [night.unscored for night in series.health],
            caption="Unscored, %",
            name="unscored",
            notes={
                at: "".join(f"; {reason} {count:,}" for reason, count in list(night.reasons.items())[:4])
                for at, night in nights.items()
            },
            tick=charts.percent_tick,
            show=lambda item: views.per_cent(item.value),
            look="people",
        ),
        "cost": _nightly_chart(
            series,
            [night.cost for night in series.health],
            caption="Cost of a night, US dollars",
            name="cost",
            tick=lambda value: f"${value:.3g}",
            show=lambda item: money(item.value),
        ),
    }


def _change_figure(series: NightSeries, model: ModelSeries) -> Figure | None:
    """Return the chart of a model's change from its baseline, which itself is at 0; None without changes."""
    if not any(model.changes):
        return None
    baselines = {night for item in model.changes if item for night in item.nights}
    starts = [0.0 if night.night in baselines else None for night in series.nights]
    return _nightly_chart(
        series,
        [item.shown if item else start for item, start in zip(model.changes, starts, strict=True)],
        caption=f"{model.name}: change of Good since baseline, points",
        name=f"change-{slug(model.name)}",
        model=model,
        tick=_points_tick,
        show=points,
    )


def _share_figure(series: NightSeries, model: ModelSeries, label: str, *, caption: str) -> Figure:
    """Return the chart of one label's share, corrected where it can be, with the judge's own behind."""
    judged = [share_of(point, "raw", label).value for point in model.points]
    return _nightly_chart(
        series,
        [share_of(point, model.kind, label) for point in model.points],
        caption=caption if model.kind == "raw" else f"{caption} (dashed: uncorrected)",
        name=f"{label.lower()}-{slug(model.name)}",
        model=model if label == "Good" else None,
        behind=judged if model.kind == "corrected" else [],
        tick=charts.percent_tick,
        show=percent,
        look=LOOKS[label],
        reference=None,
    )


def _nightly_chart(
    series: NightSeries,
    values: Sequence[Estimate | float | None],
    *,
    caption: str,
    name: str,
    tick: charts.Format,
    show: Callable[[Estimate], str],
    model: ModelSeries | None = None,
    behind: Sequence[float] = (),
    notes: Mapping[int, str] = MappingProxyType({}),
    flagged: Collection[int] = (),
    look: str = "judge",
    reference: float | None = 0.0,
) -> Figure:
    """Draw the newest nights; nights with a regression of the `model` are flagged."""
    start = max(0, len(values) - CHART_NIGHTS)
    if model is not None:
        flagged = model.regressions
        notes = {
            at: "; " + " ".join(item.sentence for item in model.findings[at] if item.outcome == "regression")
            for at in flagged
        }
    drawn = [
        item if isinstance(item, Estimate) else Estimate(math.nan if item is None else item, None)
        for item in values[start:]
    ]
    return charts.line_chart(
        caption,
        [night.night for night in series.nights[start:]],
        drawn,
        name=name,
        title=caption,
        tick=tick,
        show=show,
        behind=behind[start:],
        notes={at - start: text for at, text in notes.items()},
        flagged={at - start for at in flagged},
        rules={at - start: text for at, text in views.new_instruments(series.nights).items() if at >= start},
        look=look,
        reference=reference,
    )


def _points_tick(value: float) -> str:
    return charts.signed_tick(100 * value)


def snippet(text: str) -> str:
    """Return the start of a text, on one line."""
    text = " ".join(charts.visible(text).split())
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
    parts = []
    for text, *effects in pairs:
        numbers = (float(value) if isinstance(value, int | float) else None for value in effects)
        parts.append(Part(charts.visible(text), *numbers))
    return as_html(Explanation(id=item.id, model=item.model, score=item.score, parts=tuple(parts)))
