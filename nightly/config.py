"""The TOML configuration of a night; relative paths start at its folder.

name = "nightly"                    # name of these nights in the history; default: the file's name
prompts = "prompts.jsonl"           # default: the 160 sample prompts
unit = "conversation"               # score the whole conversations in files of responses; default: "reply"
judge = "classifier"                # a name, or a judge's TOML file
calibration = "calibration.json"    # or "none"; default: the judge's own
anchors = "anchors.jsonl"           # replies that detect drift, or "none"; default: 192 samples (LLM: fewer)
min_judge_drift = 1                 # smallest relevant drift of the judge on the anchors, in points
baseline = 2026-11-15               # the night to compare all others with; default: a model's first
baseline_nights = 3                 # nights to average for the baseline; default: 1
study = ["human", "gpt-4"]          # models of the published study to compare with
history = "nights.sqlite"           # or postgresql+psycopg://...
runs = "nights"                     # the folder of each night's responses and judgments
dashboard = "dashboard"             # the folder of the pages, or false
max_cost = 0.50                     # USD that a night may spend
limit = 20                          # use only the first N prompts
explain = 8                         # worst replies per model with explained scores

[[models]]                          # a model on a server; keys as in the model file of `respond`
name = "llama"
model = "llama-3.1-8b"
base_url = "http://127.0.0.1:8000/v1"

[[models]]                          # or the path of such a file
config = "gpt.toml"

[[models]]                          # or finished replies; {night} is the name of the night
name = "mine"
responses = "answers/{night}.jsonl"

[gates]                             # see nightly.gates
max_drop = 10

[outputs]
junit = "nightly.xml"
github = true                       # annotations and job summary of GitHub Actions
"""

import json
import os
import re
from dataclasses import dataclass, replace
from datetime import date
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import AfterValidator, Field

from empathy_judge.calibration.artifact import NONE
from empathy_judge.calibration.comparison.published_models import PREFIX, published
from empathy_judge.data.errors import UserError
from empathy_judge.data.files import read_toml
from empathy_judge.data.records import CONVERSATION
from empathy_judge.data.storage import check_table
from empathy_judge.data.tables import SAMPLE_PROMPTS, validate
from empathy_judge.judge.llm.responder import ModelConfig, read_model_config
from empathy_judge.nightly.gates import Gate, read_gates

SAMPLE_ANCHORS: Final = SAMPLE_PROMPTS.with_name("responses.jsonl")  # 192, of three pretend models
NIGHT: Final = "{night}"
OLD_KEYS: Final = {
    "matters": "renamed to min_judge_drift",
    "turns": "conversations are read from files; set unit and give each model responses",
}
# Keys that do not change the result of a night.
ELSEWHERE: Final = frozenset({"history", "runs", "dashboard", "outputs", "max_cost"})
NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:+-]{0,63}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelEntry:
    """A model of the nights: asked at an `endpoint`, or known by a file of `responses` a night."""

    __pydantic_config__: ClassVar = {"extra": "forbid"}

    name: Annotated[str, Field(min_length=1)]
    endpoint: ModelConfig | None = None
    responses: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NightlyOutputs:
    """The table [outputs]."""

    __pydantic_config__: ClassVar = {"extra": "forbid"}

    junit: Path | None = None
    github: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class NightlyConfig:
    """A checked configuration with every path as found from here; `digest` is of all that decides a night."""

    models: tuple[ModelEntry, ...]
    name: str
    prompts: Path = SAMPLE_PROMPTS
    unit: Literal["reply", "conversation"] = "reply"
    judge: str = "classifier"
    calibration: str | None = None
    anchors: Path | None = SAMPLE_ANCHORS
    min_judge_drift: Annotated[float, Field(ge=0), AfterValidator(lambda points: points / 100)] = 0.01
    baseline: str | None = None
    baseline_nights: Annotated[int, Field(ge=1)] = 1
    study: tuple[str, ...] = (f"{PREFIX}human",)
    history: str
    runs: Path
    dashboard: Path | None
    max_cost: Annotated[float | None, Field(ge=0)] = None
    limit: Annotated[int | None, Field(ge=1)] = None
    explain: Annotated[int, Field(ge=0)] = 8
    gates: tuple[Gate, ...] = ()
    outputs: NightlyOutputs = NightlyOutputs()
    path: Path  # the file
    digest: str


KEYS: Final = tuple(name for name in NightlyConfig.__slots__ if name not in ("path", "digest"))


def check_name(name: str, place: str) -> str:
    """Check that a name is valid for a folder and in the history."""
    if not NAME.fullmatch(name):
        raise UserError(
            f"{place}: {name!r} is not a valid name; use letters, digits and . _ : + -, such as 2026-11-15"
        )
    return name


def read_config(path: Path) -> NightlyConfig:
    """Read the configuration in a file; an error names the key and what to do."""
    given = read_toml(path)
    if unknown := next((key for key in given if key not in KEYS), None):
        reason = OLD_KEYS.get(unknown, f"unknown; known: {', '.join(KEYS)}")
        raise UserError(f"{path}: {unknown}: {reason}")
    deciding = {key: value for key, value in given.items() if key not in ELSEWHERE}
    digest = sha256(json.dumps(deciding, sort_keys=True, default=str).encode()).hexdigest()[:16]
    table = {
        "name": path.stem,
        "history": "nights.sqlite",
        "runs": "nights",
        "dashboard": "dashboard",
        **given,
    }
    table["models"] = _read_models(given.get("models"), path)
    for key in ("name", "baseline"):
        if isinstance(table.get(key), date | str):  # TOML has dates without quotes
            table[key] = check_name(str(table[key]), f"{path}: {key}")
    if isinstance(given.get("gates"), dict):
        table["gates"] = read_gates(given["gates"], place=f"{path}: gates")
    table = _place_paths(table, path) | {"path": path, "digest": digest}
    config = validate(NightlyConfig, table, str(path))
    if any(model.endpoint for model in config.models):
        if config.unit == CONVERSATION:
            raise UserError(f"{path}: unit: conversations are read from files; give each model responses")
        check_table(config.prompts)
    if config.anchors is not None:
        check_table(config.anchors)
    return replace(config, study=tuple(_find_published(name, path) for name in config.study))


def _find_published(name: str, path: Path) -> str:
    name = PREFIX + name.removeprefix(PREFIX)
    try:
        published(name)
    except UserError as error:
        raise UserError(f"{path}: study: {str(error).removeprefix('--baseline: ')}") from error
    return name


def _beside(path: Path, named: str) -> str:
    """Return a path beside the configuration; not resolved, so that it is printed as it was written."""
    return os.path.normpath(path.parent / named)


def _place_paths(table: dict[str, Any], path: Path) -> dict[str, Any]:
    """Return the table with its paths as found from here; a judge's name, "none" and a URL stay."""
    for key in ("prompts", "anchors", "runs", "dashboard", "judge", "calibration", "history"):
        named = table.get(key)
        if key in ("anchors", "dashboard") and named in (NONE, False):
            table[key] = None
        elif isinstance(named, str) and named != NONE and "://" not in named:
            is_path = key != "judge" or named.endswith(".toml")
            table[key] = _beside(path, named) if is_path else named
    outputs = table.get("outputs")
    if isinstance(outputs, dict) and isinstance(outputs.get("junit"), str):
        table["outputs"] = {**outputs, "junit": _beside(path, outputs["junit"])}
    return table


def _read_models(tables: Any, path: Path) -> list[ModelEntry]:
    if not isinstance(tables, list) or not tables or not all(isinstance(table, dict) for table in tables):
        raise UserError(f"{path}: models: none; add at least one table [[models]]")
    entries: dict[str, ModelEntry] = {}
    for number, table in enumerate(tables, start=1):
        place = f"{path}: models, number {number}"
        if "responses" in table:
            entry = validate(ModelEntry, table, place)
            entry = replace(entry, responses=_beside(path, entry.responses))
        else:
            file = table.get("config")
            if file is not None and not isinstance(file, str):
                raise UserError(f"{place}: config: expected the path of a model's TOML file")
            rest = {key: value for key, value in table.items() if key != "config"}
            endpoint = read_model_config(Path(_beside(path, file)) if file else None, rest, where=place)
            entry = ModelEntry(name=endpoint.name or endpoint.model, endpoint=endpoint)
        if entry.name in entries:
            raise UserError(f"{place}: the name {entry.name!r} is a duplicate; give each model a unique name")
        entries[entry.name] = entry
    return list(entries.values())
