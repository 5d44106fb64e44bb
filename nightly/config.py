"""The TOML configuration of a night; relative paths start at its folder.

name = "nightly"                    # name of these nights in the history; default: the file's name
prompts = "prompts.jsonl"           # default: the 160 sample prompts
unit = "conversation"               # score the whole conversations in files of responses; default: "reply"
judge = "classifier"                # a name, or a judge's TOML file
calibration = "calibration.json"    # or "none"; default: the judge's own
anchors = "anchors.jsonl"           # replies that detect drift of the judge, or "none"; default: 192 samples
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
good_share_drop = 5

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
from typing import Annotated, Any, Final, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
)

from empathy_judge.calibration.artifact import NONE
from empathy_judge.calibration.comparison.published_models import PREFIX, published
from empathy_judge.data.errors import UserError
from empathy_judge.data.files import read_toml
from empathy_judge.data.records import CONVERSATION
from empathy_judge.data.storage import check_table
from empathy_judge.data.tables import SAMPLE_PROMPTS, first_problem, validate
from empathy_judge.judge.llm.answer_prompts import ModelConfig, read_model_config
from empathy_judge.nightly.gates import Gate, read_gates

SAMPLE_ANCHORS: Final = SAMPLE_PROMPTS.with_name("responses.jsonl")  # 192, of three pretend models
NIGHT: Final = "{night}"
OURS: Final = ("path", "digest")  # fields that are no keys of the file
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

    name: Annotated[str, Field(min_length=1)]
    endpoint: ModelConfig | None = None
    responses: str = ""


def check_name(name: str, place: str) -> str:
    """Check that a name is valid for a folder and in the history.

    >>> check_name("2026-11-15", "--night")
    '2026-11-15'
    """
    if not NAME.fullmatch(name):
        raise UserError(
            f"{place}: {name!r} is not a valid name; use letters, digits and . _ : + -, such as 2026-11-15"
        )
    return name


# Validators; their context is the path of the configuration.


def _path_of(info: ValidationInfo) -> Path:
    assert isinstance(info.context, Path)
    return info.context


def _beside(named: Any, info: ValidationInfo) -> Any:
    """Return a path beside the configuration; not resolved, so that it is printed as it was written."""
    return Path(os.path.normpath(_path_of(info).parent / named)) if isinstance(named, str | Path) else named


def _beside_or_none(named: Any, info: ValidationInfo) -> Any:
    return None if named in (NONE, False) else _beside(named, info)


def _read_name(name: Any, info: ValidationInfo) -> Any:
    name = str(name) if isinstance(name, date) else name  # TOML has dates without quotes
    return check_name(name, f"{info.context}: {info.field_name}") if isinstance(name, str) else name


def _read_gates(table: Any, info: ValidationInfo) -> Any:
    return read_gates(table, place=f"{info.context}: gates") if isinstance(table, dict) else table


def _read_study(names: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
    study = tuple(PREFIX + name.removeprefix(PREFIX) for name in names)
    for name in study:
        try:
            published(name)
        except UserError as error:
            raise UserError(f"{info.context}: study: {str(error).removeprefix('--baseline: ')}") from error
    return study


def _read_models(tables: Any, info: ValidationInfo) -> tuple[ModelEntry, ...]:
    path = _path_of(info)
    if not isinstance(tables, list) or not tables or not all(isinstance(table, dict) for table in tables):
        raise UserError(f"{path}: models: none; add at least one table [[models]]")
    entries: dict[str, ModelEntry] = {}
    for number, table in enumerate(tables, start=1):
        place = f"{path}: models, number {number}"
        entry = (_read_responses if "responses" in table else _read_endpoint)(table, place, info)
        if entry.name in entries:
            raise UserError(f"{place}: the name {entry.name!r} is a duplicate; give each model a unique name")
        entries[entry.name] = entry
    return tuple(entries.values())


def _read_endpoint(table: dict[str, Any], place: str, info: ValidationInfo) -> ModelEntry:
    file = table.get("config")
    if file is not None and not isinstance(file, str):
        raise UserError(f"{place}: config: expected the path of a model's TOML file")
    rest = {key: value for key, value in table.items() if key != "config"}
    endpoint = read_model_config(_beside(file, info) if file else None, rest, place=place)
    return ModelEntry(name=endpoint.name or endpoint.model, endpoint=endpoint)


def _read_responses(table: dict[str, Any], place: str, info: ValidationInfo) -> ModelEntry:
    if unknown := sorted(set(table) - {"name", "responses"}):
        raise UserError(f"{place}: {unknown[0]}: unknown with responses; known: name, responses")
    entry = validate(ModelEntry, table, place)
    return replace(entry, responses=str(_beside(entry.responses, info)))


NightName = Annotated[str, BeforeValidator(_read_name)]
FilePath = Annotated[Path, BeforeValidator(_beside)]
OptionalPath = Annotated[Path | None, BeforeValidator(_beside_or_none)]


class ConfigTable(BaseModel):
    """A table of the configuration; unknown keys are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)


class NightlyOutputs(ConfigTable):
    """The table [outputs]."""

    junit: OptionalPath = None
    github: bool = False


class NightlyConfig(ConfigTable):
    """A checked configuration with every path as found from here; `digest` is of all that decides a night."""

    models: Annotated[tuple[ModelEntry, ...], BeforeValidator(_read_models)] = ()
    name: NightName
    prompts: FilePath = SAMPLE_PROMPTS
    unit: Literal["reply", "conversation"] = "reply"
    judge: str = "classifier"
    calibration: str | None = None
    anchors: OptionalPath = SAMPLE_ANCHORS
    min_judge_drift: Annotated[float, Field(ge=0), AfterValidator(lambda points: points / 100)] = 1.0
    baseline: NightName | None = None
    baseline_nights: int = Field(1, ge=1)
    study: Annotated[tuple[str, ...], AfterValidator(_read_study)] = ("human",)
    history: str = "nights.sqlite"
    runs: FilePath = Path("nights")
    dashboard: OptionalPath = Path("dashboard")
    max_cost: float | None = Field(None, ge=0)
    limit: int | None = Field(None, ge=1)
    explain: int = Field(8, ge=0)
    gates: Annotated[tuple[Gate, ...], BeforeValidator(_read_gates)] = ()
    outputs: NightlyOutputs = NightlyOutputs()
    path: Path  # the file
    digest: str

    @field_validator("judge", "calibration", "history")
    @classmethod
    def find(cls, named: str | None, info: ValidationInfo) -> str | None:
        """Return a path beside the configuration; leave a judge's name, "none" and a URL as they are."""
        is_name = named in (None, NONE) or "://" in str(named)
        is_name |= info.field_name == "judge" and not str(named).endswith(".toml")
        return named if is_name else str(_beside(named, info))


def read_config(path: Path) -> NightlyConfig:
    """Read the configuration in a file; an error names the key and what to do."""
    given = read_toml(path)
    known = [key for key in NightlyConfig.model_fields if key not in OURS]
    if unknown := next((key for key in given if key not in known), None):
        problem = OLD_KEYS.get(unknown, f"unknown; known: {', '.join(known)}")
        raise UserError(f"{path}: {unknown}: {problem}")
    deciding = {key: value for key, value in given.items() if key not in ELSEWHERE}
    digest = sha256(json.dumps(deciding, sort_keys=True, default=str).encode()).hexdigest()[:16]
    table = {"name": path.stem, **given, "path": path, "digest": digest}
    try:
        config = NightlyConfig.model_validate(table, context=path)
    except ValidationError as error:
        key, problem = first_problem(error)
        if error.errors()[0]["type"] == "extra_forbidden":
            problem = f"unknown; known: {', '.join(NightlyOutputs.model_fields)}"
        raise UserError(f"{path}: {key}: {problem}") from error
    if any(model.endpoint for model in config.models):
        if config.unit == CONVERSATION:
            raise UserError(f"{path}: unit: conversations are read from files; give each model responses")
        check_table(config.prompts)
    if config.anchors is not None:
        check_table(config.anchors)
    return config
