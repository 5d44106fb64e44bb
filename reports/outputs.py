"""A finished comparison or night for other tools: JUnit, GitHub's summary, OpenTelemetry, MLflow."""

import json
import os
import re
import sys
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from time import time_ns
from typing import Any, Final
from urllib.parse import unquote, urlsplit
from xml.etree import ElementTree

from calibration.estimate import Estimate
from data.errors import UserError
from data.files import disk_errors, replacing
from data.records import to_plain
from reports.html import as_page
from reports.markdown import as_markdown
from reports.page import Page

SUMMARY: Final = "GITHUB_STEP_SUMMARY"  # the variable that names the file, in a job of GitHub
MOST_SUMMARY: Final = 900_000  # bytes; GitHub shows none of a step's summary that has more than 1 MiB
WAIT: Final = 10.0  # seconds for a collector to answer
# XML 1.0 has no place for these, escaped or not; a model's name may hold anything.
NOT_IN_XML: Final = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
TAGS: Final = {
    "regression": "failure",
    "failed": "error",
    "stale": "error",
    "inconclusive": "skipped",
    "skipped": "skipped",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckOutcome:
    """A comparison with a limit or another model; the outcome is `pass` or one of TAGS."""

    model: str
    name: str
    outcome: str
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluatedModel:
    """A model's share of Good, and how many responses it rests on."""

    model: str
    good: Estimate
    responses: int
    unscored: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """A night for other tools: figures and sentences, without prompts and responses."""

    name: str
    outcome: str
    exit_code: int
    sentences: tuple[str, ...]
    judge: str
    judge_version: str
    models: tuple[EvaluatedModel, ...]
    checks: tuple[CheckOutcome, ...]


def as_junit(checks: Sequence[CheckOutcome], *, name: str) -> str:
    """Write JUnit XML: one suite a model and one case a check.

    A regression is a failure; what failed or is stale is an error; an inconclusive check counts as skipped,
    since JUnit has no other word for "not known", and says so in its message.
    """
    root = ElementTree.Element("testsuites", {"name": name, **_counts(checks)})
    for model in dict.fromkeys(check.model for check in checks):
        of_model = [check for check in checks if check.model == model]
        suite = ElementTree.SubElement(root, "testsuite", {"name": model, **_counts(of_model)})
        for check in of_model:
            about = {"name": check.name, "classname": model, "time": "0"}
            case = ElementTree.SubElement(suite, "testcase", about)
            tag = TAGS.get(check.outcome)
            if tag is None:
                ElementTree.SubElement(case, "system-out").text = check.sentence
            else:
                kind = {} if tag == "skipped" else {"type": check.outcome}
                ElementTree.SubElement(case, tag, {"message": check.sentence, **kind})
    ElementTree.indent(root)
    text = NOT_IN_XML.sub("\ufffd", ElementTree.tostring(root, encoding="unicode"))
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{text}\n'


def _counts(checks: Sequence[CheckOutcome]) -> dict[str, str]:
    tags = [TAGS.get(check.outcome) for check in checks]
    counted = {"failures": "failure", "errors": "error", "skipped": "skipped"}
    return {
        "tests": str(len(tags)),
        **{name: str(tags.count(tag)) for name, tag in counted.items()},
        "time": "0",
    }


def write_junit(checks: Sequence[CheckOutcome], path: Path, *, name: str) -> None:
    """Write JUnit XML into a file, whole or not at all."""
    with disk_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as partial:
            partial.write_text(as_junit(checks, name=name), encoding="utf-8")


def append_summary(page: Page) -> bool:
    """Add a page to GitHub's summary of the job, without examples; False outside of such a job."""
    place = os.environ.get(SUMMARY)
    if not place:
        return False
    text = as_markdown(_without_examples(page)).encode()
    if len(text) > MOST_SUMMARY:
        text = text[:MOST_SUMMARY].rpartition(b"\n")[0] + b"\n\nThe rest is too long for this page.\n"
    with disk_errors(Path(place)), Path(place).open("ab") as stream:
        stream.write(text + b"\n")
    return True


def _without_examples(page: Page) -> Page:
    return replace(page, sections=tuple(replace(section, examples=()) for section in page.sections))


def collector_url(environment: Mapping[str, str]) -> str:
    """Return the address of the collector from OpenTelemetry's variables.

    >>> collector_url({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318/"})
    'http://127.0.0.1:4318/v1/logs'
    """
    base = environment.get("OTEL_EXPORTER_OTLP_ENDPOINT", "").rstrip("/")
    url = environment.get("OTEL_EXPORTER_OTLP_LOGS_ENDPOINT") or (f"{base}/v1/logs" if base else "")
    if urlsplit(url).scheme not in ("http", "https"):
        raise UserError(
            "--otel: name the collector in OTEL_EXPORTER_OTLP_ENDPOINT, such as http://127.0.0.1:4318"
        )
    return url


def send_events(evaluation: Evaluation, environment: Mapping[str, str]) -> str | None:
    """Send `gen_ai.evaluation.result` events to a collector as OTLP JSON; return the problem, if any.

    Only the host is named in a problem, since an address may hold a secret.
    """
    import httpx

    url = collector_url(environment)
    pairs = (part.partition("=") for part in environment.get("OTEL_EXPORTER_OTLP_HEADERS", "").split(","))
    headers = {name.strip(): unquote(value.strip()) for name, equals, value in pairs if equals}
    body = events_body(evaluation, service=environment.get("OTEL_SERVICE_NAME") or "empathy-judge")
    try:
        # json.dumps escapes: a model's name may hold what is no text in UTF-8. No redirects.
        answer = httpx.post(
            url,
            content=json.dumps(body).encode(),
            headers={"Content-Type": "application/json", **headers},
            timeout=WAIT,
            follow_redirects=False,
        )
        problem = "" if answer.is_success else f"status {answer.status_code}"
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        problem = type(error).__name__
    return f"events were not sent to {urlsplit(url).hostname}: {problem}" if problem else None


def events_body(evaluation: Evaluation, *, service: str) -> dict[str, Any]:
    """One event for each model's share of Good, and one for each check."""
    rows: list[dict[str, Any]] = [
        {
            "gen_ai.request.model": model.model,
            "gen_ai.evaluation.name": "empathy.good_share",
            "gen_ai.evaluation.score.value": model.good.as_dict()["value"],
            "empathy_judge.low": model.good.as_dict()["low"],
            "empathy_judge.high": model.good.as_dict()["high"],
            "empathy_judge.replies": model.responses,
            "empathy_judge.unscored": model.unscored,
        }
        for model in evaluation.models
    ]
    rows += [
        {
            "gen_ai.request.model": check.model,
            "gen_ai.evaluation.name": f"empathy.{check.name}",
            "gen_ai.evaluation.score.label": check.outcome,
            "gen_ai.evaluation.explanation": check.sentence,
        }
        for check in evaluation.checks
    ]
    now = str(time_ns())
    about = {"service.name": service}
    judge = {"empathy_judge.judge": evaluation.judge, "empathy_judge.version": evaluation.judge_version}
    records = [
        {
            "timeUnixNano": now,
            "observedTimeUnixNano": now,
            "severityNumber": 9,  # INFO
            "eventName": "gen_ai.evaluation.result",
            "attributes": _attributes({**row, **judge}),
        }
        for row in rows
    ]
    scope = {"scope": {"name": "empathy_judge"}, "logRecords": records}
    return {"resourceLogs": [{"resource": {"attributes": _attributes(about)}, "scopeLogs": [scope]}]}


def _attributes(row: Mapping[str, Any]) -> list[dict[str, Any]]:
    """As OTLP has them: whole numbers are texts there, and what is undefined is left out."""
    kinds = {str: "stringValue", int: "intValue", float: "doubleValue"}
    return [
        {"key": key, "value": {kinds[type(value)]: str(value) if isinstance(value, int) else value}}
        for key, value in row.items()
        if value is not None
    ]


def check_mlflow() -> None:
    """Refuse where MLflow is not installed, before hours of work end at it."""
    if find_spec("mlflow") is None:
        raise UserError("--mlflow needs the package mlflow: pip install mlflow")


def log_mlflow(evaluation: Evaluation, page: Page) -> str:
    """Log an evaluation as a run of MLflow, at the place that MLflow's variables set; return a note on it.

    A night that was logged before goes into the same run.
    """
    for name, value in (("MAX_RETRIES", "1"), ("TIMEOUT", str(int(WAIT)))):  # else minutes, at a dead server
        os.environ.setdefault(f"MLFLOW_HTTP_REQUEST_{name}", value)
    import mlflow

    names = ("name", "outcome", "judge", "judge_version")
    tags = {f"empathy_judge.{name}": getattr(evaluation, name) for name in names}
    try:
        with redirect_stdout(sys.stderr):  # MLflow prints where the run can be seen; our output may be JSON
            same = f"tags.`empathy_judge.name` = '{evaluation.name}'"
            before: list[Any] = mlflow.search_runs(filter_string=same, max_results=1, output_format="list")
            again = {"run_id": before[0].info.run_id} if before else {}
            with mlflow.start_run(run_name=evaluation.name, tags=tags, **again) as run:
                mlflow.log_metrics(mlflow_metrics(evaluation.models))
                mlflow.log_text(as_markdown(_without_examples(page)), "report.md")
                mlflow.log_text(as_page(_without_examples(page)), "report.html")
                # Escaped: a model's name may hold what is no text in UTF-8.
                mlflow.log_text(json.dumps(to_plain(evaluation), indent=2), "evaluation.json")
    except Exception as error:  # whatever it is, the verdict must not be lost with it
        problem = re.sub(r"//[^/@\s]*@", "//", f"{type(error).__name__}: {error}".splitlines()[0])
        return f"MLflow: nothing was logged: {problem[:160]}"
    return f"MLflow: run {run.info.run_id} in experiment {run.info.experiment_id}"


def mlflow_metrics(models: Sequence[EvaluatedModel]) -> dict[str, float]:
    """Return each model's share of Good, its interval and its counts, under names that MLflow accepts.

    >>> model = EvaluatedModel(model="meta/llama-3.1", good=Estimate(0.5, None), responses=20, unscored=0)
    >>> mlflow_metrics([model])
    {'meta_llama-3.1/good': 0.5, 'meta_llama-3.1/replies': 20, 'meta_llama-3.1/unscored': 0}
    """
    metrics: dict[str, float] = {}
    for model in models:
        name = re.sub(r"^\.|[^\w.: -]", "_", model.model)[:200]
        if f"{name}/replies" in metrics:
            name += f"_{len(metrics)}"
        value, low, high = model.good.as_dict().values()
        figures = {"good": value, "good_low": low, "good_high": high}
        figures |= {"replies": model.responses, "unscored": model.unscored}
        metrics |= {f"{name}/{key}": figure for key, figure in figures.items() if figure is not None}
    return metrics
