"""The dashboard: a folder of pages made from the history, opened from disk, that ask the network for nothing.

Charts are drawn by plotly.js, which the package `plotly` brings along and which is written into the folder
once. Data stands in the pages themselves, since a page opened from disk may not read another file.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from data.errors import UserError, install_hint
from data.files import disk_errors, replacing
from nightly.dashboard.responses import ResponsePage, read_responses
from nightly.dashboard.series import NightSeries, read_series
from nightly.dashboard.views import (
    FACTS_NIGHTS,
    emotion_grid,
    headline,
    health_data,
    latest_facts,
    log_rows,
    model_data,
    model_rows,
    most_urgent,
    night_rows,
    trend_data,
)
from nightly.history import History, open_history
from reports.charts import visible
from reports.html import TEMPLATES as REPORT_TEMPLATES

TEMPLATES: Final = Path(__file__).parent / "templates"
LIST: Final = "dashboard-files.json"  # what we wrote, so that the next build takes its own leavings away
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


def build_and_print(place: str, folder: Path, *, nights: int | None = None, as_json: bool = False) -> None:
    """The command: build, and say where to look."""
    import click

    with open_history(place, must_exist=True) as history:
        files = build_dashboard(history, folder, nights=nights)
    size = sum(path.stat().st_size for path in files)
    if as_json:
        click.echo(json.dumps({"index": str(folder / "index.html"), "files": len(files), "bytes": size}))
    else:
        click.echo(f"{len(files):,} files, {size / 1e6:.1f} MB; open {folder / 'index.html'}")


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
    yield "plotly.min.js", _library()
    style = [
        path.read_text(encoding="utf-8")
        for path in (REPORT_TEMPLATES / "report.css", TEMPLATES / "dashboard.css")
    ]
    yield "dashboard.css", "\n".join(style)
    yield "dashboard.js", (TEMPLATES / "dashboard.js").read_text(encoding="utf-8")
    render = _renderer()
    pages: dict[str, list[ResponsePage]] = {}
    for page in responses:
        pages.setdefault(page.model, []).append(page)
    for page in responses:
        emotions = sorted({item.judged.emotion for item in page.responses if item.judged.emotion})
        nights = [(other.night.night, other.name) for other in pages[page.model]]
        slug = next((model.slug for model in series.models if model.name == page.model), None)
        yield page.name, render("responses", page=page, emotions=emotions, nights=nights, slug=slug)
    for at, model in enumerate(series.models):
        links = {page.night.night: page.name for page in pages.get(model.name, [])}
        yield (
            f"model-{model.slug}.html",
            render(
                "model",
                model=model,
                facts=latest_facts(series, model),
                log=log_rows(series, model, links),
                rows=night_rows(series, model, links),
                links=links,
                others=_neighbours(series, at),
                data=as_data(model_data(series, model)),
            ),
        )
    yield "judge.html", _judge_page(render, series)
    yield "index.html", _index_page(render, series, responses)


def _library() -> str:
    try:
        from plotly.offline import get_plotlyjs
    except ImportError:
        raise UserError(
            f"the package plotly, which draws the charts, is missing; {install_hint('nightly')}"
        ) from None
    return str(get_plotlyjs())


def _judge_page(render: Any, series: NightSeries) -> str:
    data = health_data(series)
    return str(render("judge", health=series.health, data=as_data(data), told=data["told"]))


def _index_page(render: Any, series: NightSeries, responses: Iterable[ResponsePage]) -> str:
    links: dict[str, list[tuple[str, str]]] = {}
    for page in responses:
        links.setdefault(page.night.night, []).append((page.model, page.name))
    grid, rows = emotion_grid(series), model_rows(series)
    return str(
        render(
            "index",
            series=series,
            head=headline(series),
            rows=rows,
            first=most_urgent(rows),
            grid=grid,
            nights=[
                (
                    night,
                    sum(at in model.regressions for model in series.models),
                    links.get(night.night, []),
                )
                for at, night in list(enumerate(series.nights))[: -FACTS_NIGHTS - 1 : -1]
            ],
            data=as_data({"trend": trend_data(series), "emotions": grid}),
        )
    )


def _neighbours(series: NightSeries, at: int) -> list[tuple[str, str, str]]:
    before, after = series.models[:at][-1:], series.models[at + 1 :][:1]
    beside = [*(("Previous", model) for model in before), *(("Next", model) for model in after)]
    return [(way, model.name, model.slug) for way, model in beside]


def as_data(data: Mapping[str, Any]) -> str:
    r"""JSON that may stand inside a page: nothing in it can end the element it stands in.

    >>> as_data({"a": "</script>"})
    '{"a":"\\u003c/script\\u003e"}'
    """
    text = json.dumps(_seen(data), separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _seen(value: Any) -> Any:
    if isinstance(value, str):
        return visible(value)
    if isinstance(value, Mapping):
        return {key: _seen(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_seen(item) for item in value]
    return value


def _renderer() -> Any:
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader([TEMPLATES, REPORT_TEMPLATES]),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=lambda value: visible(value) if type(value) is str else value,
        trim_blocks=True,
        lstrip_blocks=True,
    )

    def render(name: str, **context: Any) -> str:
        return environment.get_template(f"dashboard-{name}.html.j2").render(**context) + "\n"

    return render
