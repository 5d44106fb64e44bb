"""Replies rewritten on purpose, to see what a judge makes of it: the rewritings of `probes.toml`."""

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Final, Literal

from data.errors import UserError
from data.records import EMOTIONS, POSITIVE_EMOTIONS, Exchange

PROBES: Final = Path(__file__).parent / "probes.toml"
Does = Literal["before", "after", "instead", "exclaim", "upper", "lower", "swap"]
Should = Literal["up", "not up", "same", "not down", "down"]
_STOP: Final = re.compile(r"(?<![.])[.](?=\s|$)")  # a full stop, not the end of a row of dots


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """One way to rewrite a reply, and what a good judge does: see the head of `probes.toml`."""

    __pydantic_config__ = {"extra": "forbid"}  # noqa: RUF012  (pydantic wants it so)

    name: str
    does: Does
    should: Should
    limit: float
    why: str
    texts: tuple[str, ...] = ()
    positive: tuple[str, ...] = ()
    negative: tuple[str, ...] = ()
    fits: bool = True
    against: str | None = None


def read_probes(path: Path = PROBES) -> tuple[Probe, ...]:
    """The shipped probes, or those of another file of the same shape."""
    from pydantic import TypeAdapter, ValidationError

    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path}: not TOML: {error}") from error
    if not tables:
        raise UserError(f"{path}: no probes; give one table for each")
    probes = []
    for name, table in tables.items():
        if not isinstance(table, dict):
            raise UserError(f"{path}: {name}: a table of a probe was expected")
        try:
            probe = TypeAdapter(Probe).validate_python({**table, "name": name})
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            place = ".".join(str(part) for part in first["loc"])
            raise UserError(f"{path}: {name}: {place}: {first['msg']}") from error
        probes.append(_check(probe, path, tables))
    return tuple(probes)


def rewrite(probe: Probe, exchange: Exchange, others: Sequence[Exchange], *, seed: int = 0) -> str | None:
    """The rewritten reply; None where there is no other than the reply itself.

    Which text is taken follows from the seed and the exchange, never from the order of exchanges, and probes
    with as many texts take the same one. `others` are where replies to other prompts are taken from.
    """
    chance = Random(f"{seed} {exchange.id} {exchange.content}")
    reply = exchange.response.rstrip()
    if probe.does == "swap":
        return _swap(exchange, others, chance)
    if probe.does in ("upper", "lower"):
        turned = reply.upper() if probe.does == "upper" else reply.lower()
        return turned if turned != reply else None
    texts = _fitting(probe, exchange)
    if not texts:
        return None
    text = texts[chance.randrange(len(texts))]
    if probe.does == "exclaim":
        return f"{_STOP.sub('!', reply)} {text}"
    return {"before": f"{text} {reply}", "after": f"{reply} {text}", "instead": text}[probe.does]


def _fitting(probe: Probe, exchange: Exchange) -> tuple[str, ...]:
    """The texts for the speaker's feeling, or those that do not fit it; none where it is not known."""
    if probe.texts:
        return probe.texts
    emotion = (exchange.emotion or "").strip().lower()
    if emotion not in EMOTIONS:
        return ()
    return probe.positive if (emotion in POSITIVE_EMOTIONS) == probe.fits else probe.negative


def _swap(exchange: Exchange, others: Sequence[Exchange], chance: Random) -> str | None:
    fit = [
        other.response
        for other in others
        if other.model == exchange.model and other.prompt != exchange.prompt
        if other.response != exchange.response
    ]
    return fit[chance.randrange(len(fit))] if fit else None


def _check(probe: Probe, path: Path, tables: Mapping[str, object]) -> Probe:
    has_feelings = bool(probe.positive and probe.negative)
    needs_texts = probe.does in ("before", "after", "instead", "exclaim")
    if needs_texts and bool(probe.texts) == has_feelings:
        raise UserError(f"{path}: {probe.name}: give either texts, or positive and negative")
    if probe.against is not None and (probe.against not in tables or probe.against == probe.name):
        raise UserError(f"{path}: {probe.name}: against: no other probe is called {probe.against!r}")
    if not 0 <= probe.limit < float("inf"):
        raise UserError(f"{path}: {probe.name}: limit: must be 0 or more, not {probe.limit}")
    return probe
