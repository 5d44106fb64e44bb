"""The dashboard: a folder of pages made from the history, opened from disk, that ask the network for nothing.

Charts are SVG in the pages themselves; a small script sorts and filters tables.
"""

import json
import re
from collections.abc import Callable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Any, Final

from data.errors import UserError
from data.files import disk_errors, replacing
from data.readers.conversations import speak_of
from data.records import REPLY
from data.text import money
from nightly.dashboard.responses import ResponsePage, chances, marked, read_responses, snippet
from nightly.dashboard.series import NightSeries, read_series, share_of
from nightly.dashboard.since_baseline import change_figure, models_tonight, say_tonight, say_unknown
from nightly.dashboard.views import (
    describe_health,
    emotion_table,
    facts_tonight,
    findings_tonight,
    health_figures,
    latest_facts,
    log_rows,
    model_figures,
    night_rows,
    per_cent,
    say_figures_rest,
    share_text,
    sparkline,
    trend_figures,
    unlike_rated,
)
from nightly.history import History
from reports.charts import visible
from reports.html import TEMPLATES as REPORT_TEMPLATES

TEMPLATES: Final = Path(__file__).parent / "templates"
LIST: Final = "dashboard-files.json"  # what we wrote, so that the next build takes its own leavings away
FACTS_NIGHTS: Final = 14  # nights in the table of nights
OURS: Final = re.compile(r"(?:index|judge|model-[\w.-]+|responses-[\w.-]+)\.html")


def build_dashboard(history: History, folder: Path, *, nights: int | None = None) -> list[Path]:
    """Write the site, index.html last, and return its files; `nights` keeps to the newest so many.

    Files of an earlier build that are no longer needed are taken away; a folder that holds an index.html of
    another kind is refused.
    """
    with disk_errors(folder):
        before = _check_folder(folder)
        series = read_series(history, last=nights)
        responses = read_responses(history, series)
        folder.mkdir(parents=True, exist_ok=True)
        if not (folder / LIST).exists():
            _write_list(folder, set())  # first: a build killed at its end must know its own index.html
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
    """The pages of an earlier build."""
    try:
        names = json.loads((folder / LIST).read_text(encoding="utf-8"))
    except FileNotFoundError:
        if (folder / "index.html").exists():
            raise UserError(
                f"{folder}: holds an index.html that is not ours; name another folder with --out"
            ) from None
        return set()
    except (ValueError, RecursionError):
        names = []
    # Only names we give ourselves: a list somebody changed must not take other files away.
    listed = names if isinstance(names, list) else []
    return {name for name in listed if isinstance(name, str) and OURS.fullmatch(name)}


def _files(series: NightSeries, responses: list[ResponsePage]) -> Iterator[tuple[str, str]]:
    styles = (REPORT_TEMPLATES / "report.css", TEMPLATES / "dashboard.css")
    yield "dashboard.css", "\n".join(path.read_text(encoding="utf-8") for path in styles)
    yield "dashboard.js", (TEMPLATES / "dashboard.js").read_text(encoding="utf-8")
    models, nights = series.models, series.nights
    unit = nights[-1].details.get("unit", REPLY) if nights else REPLY
    say = speak_of(unit, [model.name for model in models])
    render = _renderer(say)
    links: dict[str, dict[str, str]] = {}
    for page in responses:
        links.setdefault(page.model.name, {})[page.night.night] = page.name
    for page in responses:
        yield page.name, render("responses", page=page, links=links[page.model.name])
    for at, model in enumerate(models):
        yield (
            model.page,
            render(
                "model",
                model=model,
                facts=latest_facts(series, model),
                unlike=list(map(say, say_figures_rest(model.newest))),
                log=log_rows(series, model),
                rows=night_rows(series, model),
                links=links.get(model.name, {}),
                before=models[:at][-1:],
                after=models[at + 1 :][:1],
                figures=model_figures(series, model),
            ),
        )
    spans = groupby(nights, key=lambda night: (night.judge, night.judge_version, night.calibration))
    newest_first = [list(span) for _, span in spans][::-1]
    yield (
        "judge.html",
        render(
            "judge",
            spans=newest_first,
            series=series,
            summary=describe_health(series),
            figures=health_figures(series),
        ),
    )
    tonight = models_tonight(series)
    ordered = [item.model for item in tonight]
    yield (
        "index.html",
        render(
            "index",
            series=series,
            findings=findings_tonight(series),
            unlike=[(name, say(sentence)) for name, sentence in unlike_rated(series)],
            facts=[(say(name), *rest) for name, *rest in facts_tonight(series)],
            tonight=tonight,
            headline=say(say_tonight(series, tonight)) if nights else "",
            figure=change_figure(tonight),
            unknown=say(say_unknown(tonight)),
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
        ),
    )


def _renderer(say: Callable[[str], str]) -> Any:
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader([TEMPLATES, REPORT_TEMPLATES]),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=lambda value: visible(value) if type(value) is str else value,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    used = (chances, marked, money, per_cent, share_of, share_text, snippet, sparkline)
    environment.globals.update({function.__name__: function for function in used}, say=say)

    def render(name: str, **context: Any) -> str:
        return environment.get_template(f"dashboard-{name}.html.j2").render(**context) + "\n"

    return render
