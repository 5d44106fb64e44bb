"""A finished night as OpenTelemetry events and as a run of MLflow, without prompts and responses."""

import json
import os
import re
import sys
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from importlib.util import find_spec
from time import time_ns
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from empathy_judge.calibration.estimate import UNDEFINED
from empathy_judge.data.errors import UserError, install_hint
from empathy_judge.judge.llm.endpoint import is_loopback
from empathy_judge.nightly.output import FinishedNight, as_dict
from empathy_judge.nightly.schema import ModelResult, NightRecord
from empathy_judge.reports.html import as_page as as_html_page
from empathy_judge.reports.markdown import as_markdown
from empathy_judge.reports.page import Page

WAIT: Final = 10.0  # seconds for a collector to answer


def collector_url(environment: Mapping[str, str]) -> str:
    """Return the address of the collector from OpenTelemetry's variables.

    >>> collector_url({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318/"})
    'http://127.0.0.1:4318/v1/logs'
    """
    base = environment.get("OTEL_EXPORTER_OTLP_ENDPOINT", "").rstrip("/")
    url = environment.get("OTEL_EXPORTER_OTLP_LOGS_ENDPOINT") or (f"{base}/v1/logs" if base else "")
    if urlsplit(url).scheme not in ("http", "https"):
        raise UserError("--otel: set OTEL_EXPORTER_OTLP_ENDPOINT, such as http://127.0.0.1:4318")
    is_secret = environment.get("OTEL_EXPORTER_OTLP_HEADERS") or "@" in urlsplit(url).netloc
    if is_secret and urlsplit(url).scheme == "http" and not is_loopback(url):
        raise UserError(
            "--otel: the headers or the password for the collector would be sent unencrypted; use https"
        )
    return url


def send_events(record: NightRecord, environment: Mapping[str, str]) -> str | None:
    """Send `gen_ai.evaluation.result` events to a collector as OTLP JSON; return the problem, if any.

    Only the host is named in a problem, since an address may hold a secret.
    """
    import httpx

    url = collector_url(environment)
    pairs = (part.partition("=") for part in environment.get("OTEL_EXPORTER_OTLP_HEADERS", "").split(","))
    headers = {name.strip(): unquote(value.strip()) for name, equals, value in pairs if equals}
    body = events_body(record, service=environment.get("OTEL_SERVICE_NAME") or "empathy-judge")
    try:
        # json.dumps escapes: a model's name may hold what is no text in UTF-8. No redirects.
        with httpx.stream(
            "POST",
            url,
            content=json.dumps(body).encode(),
            headers={"Content-Type": "application/json", **headers},
            timeout=WAIT,
            follow_redirects=False,
        ) as answer:  # its body is not read
            problem = "" if answer.is_success else f"status {answer.status_code}"
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        problem = type(error).__name__
    return f"events were not sent to {urlsplit(url).hostname}: {problem}" if problem else None


def events_body(record: NightRecord, *, service: str) -> dict[str, Any]:
    """Return one event for each model's share of Good, and one for each gate."""
    rows: list[dict[str, Any]] = [
        {
            "gen_ai.request.model": model.model,
            "gen_ai.evaluation.name": "empathy.good_share",
            "gen_ai.evaluation.score.value": good["value"],
            "empathy_judge.low": good["low"],
            "empathy_judge.high": good["high"],
            "empathy_judge.replies": model.n,
            "empathy_judge.unscored": model.missing,
        }
        for model in record.models
        for good in [model.shares.get("Good", UNDEFINED).as_dict()]
    ]
    rows += [
        {
            "gen_ai.request.model": gate.model,
            "gen_ai.evaluation.name": f"empathy.{gate.name}",
            "gen_ai.evaluation.score.label": gate.outcome,
            "gen_ai.evaluation.explanation": gate.sentence,
        }
        for gate in record.gates
    ]
    now = str(time_ns())
    about = {"service.name": service}
    judge = {"empathy_judge.judge": record.judge, "empathy_judge.version": record.judge_version}
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
        raise UserError(f"--mlflow needs the package mlflow: {install_hint('mlflow')}")


def log_mlflow(night: FinishedNight, page: Page) -> str:
    """Log a night as a run of MLflow, at the place that MLflow's variables set; return a note on it.

    A night that was logged before goes into the same run.
    """
    for key, value in (("MAX_RETRIES", "1"), ("TIMEOUT", str(int(WAIT)))):  # else minutes, at a dead server
        os.environ.setdefault(f"MLFLOW_HTTP_REQUEST_{key}", value)
    import mlflow

    record = night.record
    name = f"{record.config}, night {record.night}"
    about = {"name": name, "outcome": record.status}
    about |= {"judge": record.judge, "judge_version": record.judge_version}
    tags = {f"empathy_judge.{key}": value for key, value in about.items()}
    try:
        with redirect_stdout(sys.stderr):  # MLflow prints where the run can be seen; our output may be JSON
            same = f"tags.`empathy_judge.name` = '{name}'"
            before: list[Any] = mlflow.search_runs(filter_string=same, max_results=1, output_format="list")
            again = {"run_id": before[0].info.run_id} if before else {}
            with mlflow.start_run(run_name=name, tags=tags, **again) as run:
                mlflow.log_metrics(mlflow_metrics(record.models))
                mlflow.log_text(as_markdown(page), "report.md")
                mlflow.log_text(as_html_page(page), "report.html")
                # Escaped: a model's name may hold what is no text in UTF-8.
                mlflow.log_text(json.dumps(as_dict(night), indent=2), "evaluation.json")
    except Exception as error:  # whatever it is, the verdict must not be lost with it
        problem = re.sub(r"//[^/@\s]*@", "//", f"{type(error).__name__}: {error}".splitlines()[0])
        return f"MLflow: nothing was logged: {problem[:160]}"
    return f"MLflow: run {run.info.run_id} in experiment {run.info.experiment_id}"


def mlflow_metrics(models: Sequence[ModelResult]) -> dict[str, float]:
    """Return each model's share of Good, its interval and its counts, under names that MLflow accepts.

    >>> from empathy_judge.calibration.estimate import Estimate
    >>> mlflow_metrics([ModelResult(model="meta/llama-3.1", n=20, raw={"Good": Estimate(0.5, None)})])
    {'meta_llama-3.1/good': 0.5, 'meta_llama-3.1/replies': 20, 'meta_llama-3.1/unscored': 0}
    """
    metrics: dict[str, float] = {}
    for model in models:
        name = re.sub(r"^\.|[^\w.: -]", "_", model.model)[:200]
        if f"{name}/replies" in metrics:
            name += f"_{len(metrics)}"
        value, low, high = model.shares.get("Good", UNDEFINED).as_dict().values()
        figures = {"good": value, "good_low": low, "good_high": high}
        figures |= {"replies": model.n, "unscored": model.missing}
        metrics |= {f"{name}/{key}": figure for key, figure in figures.items() if figure is not None}
    return metrics
