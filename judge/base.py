"""What a judge is, and how one is found: by name, or by a TOML file that sets its options."""

from collections.abc import Mapping
from contextvars import ContextVar
from difflib import get_close_matches
from importlib import import_module
from inspect import signature
from pathlib import Path
from typing import Any, Protocol, get_type_hints

from data.errors import UserError
from data.files import read_toml
from data.records import Exchange, Judgment
from data.rubric import Rubric
from data.tables import first_problem

# The values are paths, so that nothing heavy loads before a judge is asked for by name.
JUDGES = {
    "cascade": "judge.cascade:CascadeJudge",
    "classifier": "judge.classifier.judge:ClassifierJudge",
    "classifier-large": "judge.classifier.large:LargeClassifierJudge",
    "decision": "judge.llm.decision:DecisionJudge",
    "length": "judge.baselines:LengthJudge",
    "majority": "judge.baselines:MajorityJudge",
    "panel": "judge.panel:PanelJudge",
    "prompted": "judge.llm.prompted:PromptedJudge",
}
WEIGHTS = Path(__file__).parent / "weights"  # a folder for each shipped judge, under its name

_OPEN: ContextVar[tuple[Path, ...]] = ContextVar("_OPEN", default=())  # files being read, outermost first


class Judge(Protocol):
    """Says what a crowd would have said of one exchange, or that it cannot, and why.

    `version` changes whenever a judgment could. `judge` is called from `concurrency` threads at once. A judge
    may also have a `caveat`, a line that is printed under every table of its shares, and `report`, which
    takes a run's judgments and gives lines to print there. Its class may list in `files` which options name
    files: these are looked for beside the TOML file first.
    """

    @property
    def name(self) -> str: ...
    @property
    def version(self) -> str: ...
    @property
    def rubric(self) -> Rubric: ...
    @property
    def concurrency(self) -> int: ...

    def judge(self, exchange: Exchange) -> Judgment: ...


def load_judge(name: str) -> Judge:
    """A judge by its name in `JUDGES`, or by the path of a TOML file."""
    if not name.endswith(".toml"):
        return _make_judge(name, {}, place="--judge")
    path = Path(name)
    place = path.resolve()
    if place in _OPEN.get():
        raise UserError(f"{path}: names itself, directly or through others; a judge cannot be part of itself")
    token = _OPEN.set((*_OPEN.get(), place))
    try:
        table = read_toml(path)
        kind = table.pop("kind", None)
        if not isinstance(kind, str):
            raise UserError(f"{path}: kind: missing; use one of {', '.join(sorted(JUDGES))}")
        return _make_judge(kind, table, place=str(path), folder=path.parent)
    finally:
        _OPEN.reset(token)


def _make_judge(kind: str, options: Mapping[str, Any], *, place: str, folder: Path | None = None) -> Judge:
    if kind not in JUDGES:
        close = get_close_matches(kind, JUDGES, n=1)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        raise UserError(f"{place}: unknown judge {kind!r}; known: {', '.join(sorted(JUDGES))}{hint}")
    module, _, class_name = JUDGES[kind].partition(":")
    make = getattr(import_module(module), class_name)
    # A judge's options are the arguments of its class: their names and types are checked here, once.
    from pydantic import TypeAdapter, ValidationError

    names, hints = sorted(signature(make).parameters), get_type_hints(make.__init__)
    checked = {}
    for key, value in options.items():
        if key not in names:
            raise UserError(f"{place}: {key}: unknown; this kind knows {', '.join(['kind', *names])}")
        try:
            checked[key] = TypeAdapter(hints[key]).validate_python(value)
        except ValidationError as error:
            raise UserError(f"{place}: {key}: {first_problem(error)[1]}, not {value!r}") from error
    if folder is not None:
        checked |= {key: _find(checked[key], folder) for key in getattr(make, "files", ()) if key in checked}
    judge: Judge = make(**checked)
    return judge


def _find(named: Any, folder: Path) -> Any:
    """Files as they are found from here: beside the file that names them, if they are there."""
    if isinstance(named, list):
        return [_find(item, folder) for item in named]
    beside = folder / named
    return str(beside) if beside.suffix in (".toml", ".json") and beside.exists() else named
