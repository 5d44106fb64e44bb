"""The interface of a judge, and how one is loaded: by its name, by a language model, or from a TOML file."""

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from difflib import get_close_matches
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from inspect import Parameter, signature
from pathlib import Path
from typing import Any, ClassVar, Final, Protocol, get_type_hints

from empathy_judge.data.errors import UserError
from empathy_judge.data.files import read_toml
from empathy_judge.data.rated_range import RatedRange
from empathy_judge.data.records import CONVERSATION, REPLY, Exchange, Judgment
from empathy_judge.data.rubric import Rubric
from empathy_judge.data.tables import first_problem
from empathy_judge.judge.budget import Budget, GuessedCall, Pace

# The values are paths, so that nothing heavy loads before a judge is asked for by name.
JUDGES = {
    "cascade": "empathy_judge.judge.composite:CascadeJudge",
    "classifier": "empathy_judge.judge.classifier.judge:ClassifierJudge",
    "classifier-large": "empathy_judge.judge.classifier.large_judge:LargeJudge",
    "conversation": "empathy_judge.judge.composite:ReplyMean",
    "decision": "empathy_judge.judge.llm.decision:DecisionJudge",
    "length": "empathy_judge.judge.baselines:LengthJudge",
    "majority": "empathy_judge.judge.baselines:MajorityJudge",
    "panel": "empathy_judge.judge.composite:PanelJudge",
    "prompted": "empathy_judge.judge.llm.prompted:PromptedJudge",
}
DEFAULT = "classifier"
READ_CONVERSATIONS: Final = ("prompted", "decision")  # the kinds that read a conversation as a whole
# The servers of PROVIDER:MODEL, and the variables of their keys.
PROVIDERS: Final = {
    "anthropic": ("https://api.anthropic.com/v1", "ANTHROPIC_API_KEY"),
    "openai": ("https://api.openai.com/v1", "OPENAI_API_KEY"),
}
OLLAMA: Final = "http://127.0.0.1:11434/v1"
MODEL_NAMES: Final = {"gpt": "openai", "o1": "openai", "o3": "openai", "o4": "openai", "claude": "anthropic"}
NEED_OPTIONS: Final = ("cascade", "decision", "panel", "prompted")  # kinds for TOML files only
URL_KEY: Final = "LLM_API_KEY"  # the variable of the key for any other server
OTHERS = "empathy_judge.judges"  # the group of entry points under which other packages offer judges
WEIGHTS = Path(__file__).parent / "weights"  # a folder for each shipped judge, under its name
WEIGHTS_LICENSE = "no commercial use (CC BY-NC 4.0)"

AUTO, CPU, CUDA = "auto", "cpu", "cuda"
DEVICES: Final = (AUTO, CPU, CUDA)
# The device of judges that name none; a command's --device sets it.
DEVICE: ContextVar[str] = ContextVar("DEVICE", default=AUTO)

_OPEN: ContextVar[tuple[Path, ...]] = ContextVar("_OPEN", default=())  # files being read, outermost first

# Whether the client that asked for a judgment has disconnected; a server sets it in the thread that judges.
IS_CANCELLED: ContextVar[Callable[[], bool]] = ContextVar("IS_CANCELLED", default=lambda: False)


class Cancelled(Exception):
    """The client disconnected; the remaining work was cancelled."""


def raise_if_cancelled() -> None:
    """Raise `Cancelled` if the client has disconnected; every run of a network begins with this."""
    if IS_CANCELLED.get()():
        raise Cancelled


class AskedServer(Protocol):
    """A server that a judge asks."""

    budget: Budget
    pace: Pace


class Judge(ABC):
    """An estimator of how people rate an exchange: a subclass sets the first four fields and `judge`."""

    name: str
    version: str  # changes whenever a judgment could
    rubric: Rubric
    concurrency: int  # the threads that call `judge` at once
    spec: str = ""  # the name or the file that `load_judge` was given
    files: ClassVar[tuple[str, ...]] = ()  # options that name files: looked for beside the TOML file first
    is_joint: bool = False  # whether a judgment depends on the other replies to its prompt
    unit: str = REPLY  # `CONVERSATION` where a row with all its earlier turns is judged as one
    caveat: str = ""  # printed under every table of its shares
    rated: RatedRange | None = None  # the replies it learned from; others are counted as outside of these
    folder: Path | None = None  # of its weights, where its calibration may lie
    asked_judges: tuple["Judge", ...] = ()  # the judges of which this one is made

    @abstractmethod
    def judge(self, exchange: Exchange) -> Judgment:
        """Judge one exchange."""

    def judge_many(self, exchanges: Sequence[Exchange]) -> list[Judgment]:
        """Judge exchanges, in the order given."""
        return [self.judge(exchange) for exchange in exchanges]

    @property
    def score_stream(self) -> Callable[..., None] | None:
        """The function that scores a whole input at once, where one reply at a time would be slow."""
        return None

    def identity(self, exchange: Exchange) -> str:
        """Return the digest of all that decides its judgment; the same is paid for once."""
        return exchange.content_digest

    def identify(self, exchanges: Iterable[Exchange]) -> Iterator[tuple[Exchange, str]]:
        """Yield exchanges that are judged together with their identities."""
        return ((exchange, self.identity(exchange)) for exchange in exchanges)

    def count_runs(self, exchange: Exchange) -> int:
        """Count the runs of a network, here or at a server, that a judgment takes at most."""
        return sum(judge.count_runs(exchange) for judge in self.asked_judges) or 1

    def report(self, judgments: Iterable[Judgment]) -> list[str]:
        """Return lines to print under the table of a run."""
        return []

    @property
    def endpoints(self) -> Sequence[AskedServer]:
        """The servers it asks, those of the judges of which it is made included."""
        return [endpoint for judge in self.asked_judges for endpoint in judge.endpoints]

    @property
    def is_language_model(self) -> bool:
        """Whether it asks a language model: without a calibration nobody knows its level."""
        return bool(self.endpoints)

    def use_budget(self, budget: Budget) -> None:
        """Charge every call from here on to this budget."""
        for endpoint in self.endpoints:
            endpoint.budget = budget

    @property
    def spent(self) -> float:
        """The USD spent from its budget in this process."""
        return max((endpoint.budget.spent for endpoint in self.endpoints), default=0.0)

    def group(self, exchanges: Iterable[Exchange]) -> Iterator[Sequence[Exchange]]:
        """Yield the exchanges that are judged in one call together."""
        return ([exchange] for exchange in exchanges)

    def guess_calls(self, *group: Exchange) -> list[GuessedCall]:
        """Guess the calls to servers that judging a group takes at most."""
        return [call for judge in self.asked_judges for call in judge.guess_calls(*group)]

    def batch_engine(self, *, wait: bool) -> Callable[..., None]:
        """Return an engine that asks through the server's Batch API."""
        raise UserError(
            f"--batch: the judge {self.name!r} does not support batches; prompted and decision judges do"
        )

    def prepare(self, count: int) -> None:
        """Prepare for the number of replies to come, for example by choosing a device."""
        return None

    def stop(self) -> None:
        """Finish the calls under way and make no more."""
        for judge in self.asked_judges:
            judge.stop()

    def close(self) -> None:
        """Close all connections; the next call opens them again."""
        for judge in self.asked_judges:
            judge.close()


def load_judge(name: str, *, unit: str = REPLY, allow_joint: bool = False) -> Judge:
    """Load a judge by its name, by a language model's (`openai:MODEL`, `URL#MODEL`), or from a TOML file.

    With the unit `CONVERSATION`, a judge that does not read whole conversations judges their replies. One
    whose judgments depend on the other replies to a prompt is refused unless `allow_joint`.
    """
    judge = _load_judge(name, unit)
    if judge.is_joint and not allow_joint:
        raise UserError(
            f'{name}: mode = "side-by-side" is only for `score` and `compare`, since a grade depends on the '
            'other replies to the prompt; set mode = "shares"'
        )
    return judge


def _load_judge(name: str, unit: str) -> Judge:
    kind, options = _describe(name)
    if unit == CONVERSATION and kind in READ_CONVERSATIONS:
        options.setdefault("rubric", CONVERSATION)
    elif unit == CONVERSATION and kind != CONVERSATION:
        return _make_judge(name, CONVERSATION, {"replies": name})
    if not _is_file(name):
        return _make_judge(name, kind, options)
    path = Path(name).resolve()
    if path in _OPEN.get():
        raise UserError(f"{name}: refers to itself, directly or through others")
    token = _OPEN.set((*_OPEN.get(), path))
    try:
        return _make_judge(name, kind, options, file=Path(name))
    finally:
        _OPEN.reset(token)


def _is_file(name: str) -> bool:
    return name.endswith(".toml") and "://" not in name


def _describe(name: str) -> tuple[str, dict[str, Any]]:
    """Return a judge's kind and options."""
    if not _is_file(name):
        model = language_model_options(name)
        return ("prompted", model) if model else (name, {})
    table = read_toml(Path(name))
    kind = table.pop("kind", None)
    if not isinstance(kind, str):
        raise UserError(f"{name}: kind: missing; use one of {', '.join(_all_kinds())}")
    return kind, table


def language_model_options(name: str) -> dict[str, Any]:
    """Return the options of a language model that is named as PROVIDER:MODEL or URL#MODEL; else none.

    OPENAI_API_KEY goes to OPENAI_BASE_URL if that is set, and likewise ANTHROPIC_API_KEY; a provider's key
    goes to no other server.

    >>> language_model_options("http://127.0.0.1:11434/v1#llama3.1:8b")["model"]
    'llama3.1:8b'
    """
    provider, colon, model = name.partition(":")
    if colon and provider in PROVIDERS:
        base_url, key_env = PROVIDERS[provider]
        base_url = os.environ.get(f"{provider.upper()}_BASE_URL", "").rstrip("/") or base_url
        if provider == "anthropic" and not base_url.endswith("/v1"):  # Anthropic's own clients add it
            base_url += "/v1"
    elif name.startswith(("http://", "https://")):
        base_url, _, model = name.partition("#")
        keys = {url: key for url, key in PROVIDERS.values() if base_url.startswith(url)}
        key_env = next(iter(keys.values()), URL_KEY if os.environ.get(URL_KEY) else "")
    else:
        return {}
    if not model:  # the address is not quoted: it may hold a password
        raise UserError("--judge: the model is missing; use openai:MODEL, or http://127.0.0.1:8000/v1#MODEL")
    options = {"model": model, "base_url": base_url, "key_env": key_env}
    return {**options, "name": model.rpartition("/")[2]}


def load_both_units(name: str) -> tuple[Judge, Judge]:
    """Return a judge as it is named, and the judge of whole conversations that goes with it."""
    judge = load_judge(name)
    return judge, judge if judge.unit == CONVERSATION else load_judge(name, unit=CONVERSATION)


def known_judges() -> list[str]:
    """Return the names that need no TOML file: ours, and those that installed packages offer."""
    return [kind for kind in _all_kinds() if kind not in NEED_OPTIONS]


def _all_kinds() -> list[str]:
    return sorted({*JUDGES, *_offered()})


def _find_meant(name: str, known: Iterable[str]) -> str:
    """Return the judge that a wrong name probably means, or nothing.

    >>> [_find_meant(name, ["length"]) for name in ("lenght", "gpt-4o-mini", "opnai:x", "ollama:qwen3:8b")]
    ['length', 'openai:gpt-4o-mini', 'openai:x', 'http://127.0.0.1:11434/v1#qwen3:8b']
    """
    if close := get_close_matches(name, known, n=1):
        return close[0]
    named, _, model = name.replace("/", ":", 1).partition(":")
    prefixes = {"ollama": f"{OLLAMA}#", **{provider: f"{provider}:" for provider in PROVIDERS}}
    if model and (close := get_close_matches(named.lower(), prefixes, n=1, cutoff=0.8)):
        return prefixes[close[0]] + model
    return next((f"{by}:{name}" for start, by in MODEL_NAMES.items() if name.startswith(start)), "")


@cache
def _offered() -> dict[str, EntryPoint]:
    return {entry.name: entry for entry in entry_points(group=OTHERS)}


def _find_class(kind: str, place: str) -> Any:
    """Return the class of a judge; a name of this program is never another package's."""
    if kind in JUDGES:
        return EntryPoint(kind, JUDGES[kind], OTHERS).load()
    if kind not in _offered():
        is_name = place == "--judge"
        known = known_judges() if is_name else _all_kinds()
        others = ", a language model as openai:MODEL or URL#MODEL, or a .toml file" if is_name else ""
        meant = _find_meant(kind, known)
        hint = f"; did you mean {meant!r}?" if meant else ""
        raise UserError(f"{place}: unknown judge {kind!r}; known: {', '.join(known)}{others}{hint}")
    entry = _offered()[kind]
    try:
        found = entry.load()
        if not (isinstance(found, type) and issubclass(found, Judge)):
            raise TypeError(f"{entry.value} does not subclass judge.base.Judge")
        return found
    except Exception as error:  # whatever goes wrong in code that is not ours
        whose = entry.dist.name if entry.dist else "another package"
        raise UserError(
            f"{place}: the judge {kind!r} of {whose} cannot be loaded: {type(error).__name__}: {error}"
        ) from error


def _make_judge(name: str, kind: str, options: Mapping[str, Any], *, file: Path | None = None) -> Judge:
    place = str(file or "--judge")
    make = _find_class(kind, place)
    # A judge's options are the arguments of its class: their names and types are checked here, once.
    from pydantic import TypeAdapter, ValidationError

    types, checked = option_types(make), {}
    for key, value in options.items():
        if key not in types:
            raise UserError(f"{place}: {key}: unknown; known keys: {', '.join(['kind', *sorted(types)])}")
        try:
            checked[key] = TypeAdapter(types[key]).validate_python(value)
        except ValidationError as error:
            raise UserError(f"{place}: {key}: {first_problem(error)[1]}, not {value!r}") from error
    if file is not None:
        checked |= {key: _find(checked[key], file.parent) for key in make.files if key in checked}
    judge: Judge = make(**checked)
    judge.spec = name
    return judge


def option_types(make: Any) -> dict[str, Any]:
    """Return the types of a judge's options: its class's arguments, with those of an unpacked record."""
    hints = get_type_hints(make.__init__)
    types: dict[str, Any] = {}
    for name, parameter in signature(make).parameters.items():
        if parameter.kind is Parameter.VAR_KEYWORD:  # **options: Unpack[SomeOptions]
            types |= get_type_hints(hints[name].__args__[0])
        else:
            types[name] = hints[name]
    return types


def _find(named: Any, folder: Path) -> Any:
    """Return files as they are found from here: beside the file that names them, if they are there."""
    if isinstance(named, list):
        return [_find(item, folder) for item in named]
    beside = folder / named
    return str(beside) if beside.suffix in (".toml", ".json") and beside.exists() else named
