"""A night's configuration, as its TOML file gives it; paths in it are looked for beside the file.

name = "nightly"                    # what the history knows these nights by; the file's name without a word
prompts = "prompts.jsonl"           # the 160 sample prompts without a word
unit = "conversation"               # judge whole conversations; without a word replies, with turns talks
turns = 8                           # hold conversations of so many turns; prompts are situations then
judge = "classifier"                # a name, or a judge's TOML file
calibration = "calibration.json"    # or "none"; the one that came with the judge without a word
anchors = "anchors.jsonl"           # judged every night; our 192 sample responses without a word, or "none"
matters = 1                         # points: a judge that moved by less on the anchors did not move
baseline = 2026-11-15               # the night to hold all others against; a model's first without a word
baseline_nights = 3                 # average it over so many nights from then on; 1 without a word
study = ["human", "gpt-4"]          # models of the crowd study to compare with
history = "nights.sqlite"           # or postgresql+psycopg://...
runs = "nights"                     # the folder of each night's responses and judgments
dashboard = "dashboard"             # the folder of the pages, or false
max_cost = 0.50                     # USD that a night may spend
limit = 20                          # ask for the first so many prompts only
explain = 8                         # mark what drove the score in so many of a model's worst responses

[[models]]                          # asked over the network, with the keys of `respond`'s model file
name = "llama"
model = "llama-3.1-8b"
base_url = "http://127.0.0.1:8000/v1"

[[models]]                          # or such a file itself
config = "gpt.toml"

[[models]]                          # or responses made elsewhere; {night} is the night's name
name = "mine"
responses = "answers/{night}.jsonl"

[gates]                             # see nightly.gates
good_share_drop = 5

[outputs]
junit = "nightly.xml"
github = true                       # lines that GitHub shows beside the run, and its summary
"""

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import date
from hashlib import sha256
from pathlib import Path
from typing import Any, ClassVar, Final, Literal

from calibration.artifact import NONE
from calibration.comparison.published_models import PREFIX, published
from data.errors import UserError
from data.files import read_toml
from data.records import CONVERSATION, REPLY
from data.storage import check_table
from data.tables import SAMPLE_PROMPTS, first_problem
from judge.llm.answer_prompts import ModelConfig, make_model_config, read_model_config
from judge.scripted_conversations import OURS as SITUATIONS
from judge.scripted_conversations import find_speaker
from nightly.gates import Gate, read_gates

SAMPLE_ANCHORS: Final = SAMPLE_PROMPTS.with_name("responses.jsonl")  # 192, of three pretend models
NIGHT: Final = "{night}"
# What may change from one call to the next without another night coming out of it.
ELSEWHERE: Final = frozenset({"history", "runs", "dashboard", "outputs", "max_cost"})
LEAST: Final = {  # of what is a number
    "matters": 0,
    "explain": 0,
    "limit": 1,
    "turns": 2,
    "max_cost": 0,
    "baseline_nights": 1,
}
NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:+-]{0,63}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelEntry:
    """A model of the nights: asked at an `endpoint`, or known by a file of `responses` a night."""

    name: str
    endpoint: ModelConfig | None = None
    responses: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NightlyConfig:
    """Checked, with every path as it is found from here; `digest` is of all that decides a night."""

    path: Path
    name: str
    digest: str
    models: tuple[ModelEntry, ...]
    gates: tuple[Gate, ...]
    prompts: Path
    unit: str
    turns: int | None
    judge: str
    calibration: str | None
    anchors: Path | None
    matters: float
    baseline: str | None
    baseline_nights: int
    study: tuple[str, ...]
    history: str
    runs: Path
    dashboard: Path | None
    junit: Path | None
    github: bool
    max_cost: float | None
    limit: int | None
    explain: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Outputs:
    __pydantic_config__: ClassVar = {"extra": "forbid"}

    junit: str = ""
    github: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class _Table:
    """The file's keys and their kinds; an empty text is as good as none."""

    __pydantic_config__: ClassVar = {"extra": "forbid"}

    models: list[dict[str, Any]]
    name: str = ""
    prompts: str = ""
    unit: Literal["", "reply", "conversation"] = ""
    turns: int | None = None
    judge: str = "classifier"
    calibration: str = ""
    anchors: str = ""
    matters: float = 1.0
    baseline: date | str = ""
    baseline_nights: int = 1
    study: list[str] = field(default_factory=lambda: ["human"])
    history: str = "nights.sqlite"
    runs: str = "nights"
    dashboard: bool | str = "dashboard"
    max_cost: float | None = None
    limit: int | None = None
    explain: int = 8
    gates: dict[str, Any] = field(default_factory=dict)
    outputs: _Outputs = field(default_factory=_Outputs)


def read_config(path: Path) -> NightlyConfig:
    """Read the configuration in a file; what is wrong in it is named with its place and the way out."""
    given = read_toml(path)
    table, folder = _check(given, path), path.parent
    deciding = {key: value for key, value in given.items() if key not in ELSEWHERE}
    calibration: str | None = table.calibration or None
    if calibration not in (None, NONE):
        calibration = str(_beside(folder, table.calibration))
    anchors = None if table.anchors == NONE else SAMPLE_ANCHORS
    if table.anchors not in ("", NONE):
        anchors = _beside(folder, table.anchors)
    baseline = str(table.baseline)  # TOML has dates without quotes; a night is known by the text
    dashboard = "dashboard" if table.dashboard is True else table.dashboard
    config = NightlyConfig(
        path=path,
        name=check_name(table.name or path.stem, f"{path}: name"),
        digest=sha256(json.dumps(deciding, sort_keys=True, default=str).encode()).hexdigest()[:16],
        models=_models(table.models, path),
        gates=read_gates(table.gates, place=f"{path}: gates"),
        prompts=_beside(folder, table.prompts)
        if table.prompts
        else SITUATIONS
        if table.turns
        else SAMPLE_PROMPTS,
        unit=table.unit or (CONVERSATION if table.turns else REPLY),
        turns=table.turns,
        judge=str(_beside(folder, table.judge)) if table.judge.endswith(".toml") else table.judge,
        calibration=calibration,
        anchors=anchors,
        matters=table.matters / 100,
        baseline=check_name(baseline, f"{path}: baseline") if baseline else None,
        baseline_nights=table.baseline_nights,
        study=tuple(PREFIX + name.removeprefix(PREFIX) for name in table.study),
        history=table.history if "://" in table.history else str(_beside(folder, table.history)),
        runs=_beside(folder, table.runs),
        dashboard=_beside(folder, dashboard) if dashboard else None,
        junit=_beside(folder, table.outputs.junit) if table.outputs.junit else None,
        github=table.outputs.github,
        max_cost=table.max_cost,
        limit=table.limit,
        explain=table.explain,
    )
    # What is wrong although its type is right; before anything is asked or paid for.
    if not config.models:
        raise UserError(f"{path}: models: none; name at least one in a table [[models]]")
    for name, least in LEAST.items():
        value = getattr(config, name)
        if value is not None and not value >= least:
            raise UserError(f"{path}: {name}: must be at least {least}")
    if config.turns and config.unit == REPLY:
        raise UserError(
            f"{path}: unit: with turns it is conversations that are judged; leave one of them out"
        )
    if config.turns:
        find_speaker(config.prompts, turns=config.turns)
    elif any(model.endpoint for model in config.models):
        check_table(config.prompts)
    if config.anchors is not None:
        check_table(config.anchors)
    for name in config.study:
        try:
            published(name)
        except UserError as error:
            raise UserError(f"{path}: study: {str(error).removeprefix('--baseline: ')}") from error
    return config


def check_name(name: str, place: str) -> str:
    """Check that a name can stand in a folder's, and in the history.

    >>> check_name("2026-11-15", "--night")
    '2026-11-15'
    """
    if not NAME.fullmatch(name):
        raise UserError(
            f"{place}: {name!r} is no name for nights; use letters, digits and . _ : + -, such as 2026-11-15"
        )
    return name


def _check(given: Mapping[str, Any], path: Path) -> _Table:
    from pydantic import TypeAdapter, ValidationError

    try:
        return TypeAdapter(_Table).validate_python(given)
    except ValidationError as error:
        key, problem = first_problem(error)
        kind = error.errors()[0]["type"]
        if kind == "unexpected_keyword_argument":
            known = fields(_Outputs if key.startswith("outputs.") else _Table)
            problem = f"unknown; known: {', '.join(item.name for item in known)}"
        elif kind in ("missing", "missing_argument"):
            problem = "missing; name at least one in a table [[models]]"
        raise UserError(f"{path}: {key}: {problem}") from error


def _models(tables: list[dict[str, Any]], path: Path) -> tuple[ModelEntry, ...]:
    entries: dict[str, ModelEntry] = {}
    for number, table in enumerate(tables, start=1):
        place = f"{path}: models, number {number}"
        entry = (_read_responses if "responses" in table else _read_endpoint)(table, place, path.parent)
        if entry.name in entries:
            raise UserError(f"{place}: the name {entry.name!r} is taken; give each model its own name")
        entries[entry.name] = entry
    return tuple(entries.values())


def _read_endpoint(table: dict[str, Any], place: str, folder: Path) -> ModelEntry:
    file = table.get("config")
    if file is not None and not isinstance(file, str):
        raise UserError(f"{place}: config: the path of a model's TOML file was expected")
    rest = {key: value for key, value in table.items() if key != "config"}
    if file:
        endpoint = read_model_config(_beside(folder, file), **rest)
    else:
        endpoint = make_model_config(rest, place=place)
    return ModelEntry(name=endpoint.name or endpoint.model, endpoint=endpoint)


def _read_responses(table: dict[str, Any], place: str, folder: Path) -> ModelEntry:
    if unknown := sorted(set(table) - {"name", "responses"}):
        raise UserError(f"{place}: {unknown[0]}: unknown beside responses; known: name, responses")
    name, responses = table.get("name"), table["responses"]
    if not isinstance(name, str) or not name.strip():
        raise UserError(f"{place}: name: missing; say whose responses these are")
    if not isinstance(responses, str) or not responses:
        raise UserError(f"{place}: responses: the path of a .jsonl, .csv or .parquet file was expected")
    return ModelEntry(name=name, responses=str(_beside(folder, responses)))


def _beside(folder: Path, named: str) -> Path:
    return Path(os.path.normpath(folder / named))  # not resolved: what is printed should look as it was given
