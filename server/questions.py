"""Typed questions that our judges can answer, and the numbers of their answers; the same for both wires."""

from collections.abc import Iterable, Sequence
from typing import Any, Final, NoReturn

from data.records import LABELS, Judgment
from server.http_errors import Refused
from server.served_judge import Served

REFUSAL = "refusal"


def check_levels(place: str, given: Sequence[Any]) -> None:
    """Levels must be Bad, Okay and Good, in this order, in whatever case.

    >>> check_levels("questions.0", ["bad", "Okay", "GOOD"])
    """
    if [fold(item) for item in given] != [fold(label) for label in LABELS]:
        refuse_labels(place, "the levels of a score", "in this order")


def check_choices(place: str, given: Iterable[Any]) -> list[str]:
    """Our label for each choice: Bad, Okay and Good must be there, in any order."""
    labels = {fold(label): label for label in LABELS}
    found = [labels.get(fold(item), "") for item in given]
    if sorted(found) != sorted(LABELS):
        refuse_labels(place, "the values of a choice", "and nothing else")
    return found


def check_component(place: str, name: str | None, served: Served) -> None:
    """A predicate must bear the name of one of the rubric's components."""
    known = served.judge.rubric.components
    if name not in known:
        raise Refused(
            400,
            f"{place}: {name!r} is no component of empathy; a predicate may be named {', '.join(known)}"
            f"{_but(served)}; {_score()}",
            param=place,
            code="unsupported_question",
        )


def check_answerable(places: Sequence[tuple[str, bool]], served: Served) -> None:
    """One question at least must be such as this judge can answer; `places` says of each whether it is.

    A component asked for beside them that the judge does not know comes back as a refusal.
    """
    if not any(can for _, can in places):
        place = places[0][0]
        raise Refused(
            400,
            f"{place}: the judge {served.judge.name!r} gives no components of empathy; {_score()}",
            param=place,
            code="unsupported_question",
        )


def refuse_labels(place: str, what: str, how: str) -> NoReturn:
    """For levels and choices that are not our labels."""
    raise Refused(
        400,
        f"{place}: {what} must be {', '.join(LABELS)}, {how}: this judge knows no others",
        param=place,
        code="unsupported_question",
    )


def check_model(model: str, served: Served) -> None:
    """There is one model here."""
    if model != served.judge.name:
        raise Refused(
            404,
            f"the model {model[:80]!r} does not exist here; this server has {served.judge.name!r}",
            param="model",
            code="model_not_found",
        )


def choose(values: Sequence[Any], judgment: Judgment) -> tuple[Any, list[tuple[Any, float]]]:
    """The value that stands for the judgment's label, and every value with its probability."""
    labels = check_choices("", values)
    by_label = judgment.probabilities or {}
    pairs = [(value, by_label[label]) for value, label in zip(values, labels, strict=True)]
    return values[labels.index(judgment.label or "")], pairs


def probabilities_of(judgment: Judgment) -> list[float]:
    """Of Bad, Okay and Good."""
    return [(judgment.probabilities or {})[label] for label in LABELS]


def score_confidence(probabilities: Sequence[float]) -> float:
    """1 where all lies on one level, 0 where it lies as far from the likeliest as evenly spread, or farther.

    >>> score_confidence([0.0, 0.0, 1.0]), score_confidence([0.5, 0.0, 0.5])
    (1.0, 0.0)
    """
    count = len(probabilities)
    best = max(range(count), key=probabilities.__getitem__)
    distance = sum(part * abs(place - best) for place, part in enumerate(probabilities))
    even = sum(abs(place - (count - 1) / 2) for place in range(count)) / count
    return round(max(0.0, 1 - distance / even), 6)


def choice_confidence(probabilities: Sequence[float]) -> float:
    """How far the likeliest choice lies above chance, from 0 to 1.

    >>> choice_confidence([0.0, 0.0, 1.0])
    1.0
    """
    even = 1 / len(probabilities)
    return round(max(0.0, (max(probabilities) - even) / (1 - even)), 6)


def fold(name: Any) -> str:
    """A label however it is written; what is no text is no label."""
    return name.strip().casefold() if isinstance(name, str) else ""


def _but(served: Served) -> str:
    return "" if served.component_names else f", though the judge {served.judge.name!r} gives none"


def _score() -> str:
    return f"it answers a score or a choice over {', '.join(LABELS)}"


# How the loosely typed fields of a request are described: what we can read of them, not all we let pass.

TEXT: Final = {"type": "string"}
PARTS: Final = {
    "type": "array",
    "items": {
        "type": "object",
        "required": ["type", "text"],
        "properties": {"type": {"enum": ["input_text", "output_text"]}, "text": TEXT},
    },
}
MESSAGES: Final = {
    "type": "array",
    "items": {
        "type": "object",
        "required": ["role", "content"],
        "properties": {
            "role": {"enum": ["user", "assistant", "system", "developer"]},
            "content": {"anyOf": [TEXT, PARTS]},
        },
    },
}
FIELDS: Final = {
    "type": "object",
    "required": ["prompt", "response"],
    "properties": {"prompt": TEXT, "response": TEXT, "emotion": TEXT, "situation": TEXT},
}
LEVELS: Final = {
    "type": "array",
    "minItems": len(LABELS),
    "maxItems": len(LABELS),
    "prefixItems": [
        {
            "type": "object",
            "required": ["label"],
            "properties": {"label": {"const": label}, "description": TEXT},
        }
        for label in LABELS
    ],
}
CHOICES: Final = {
    "type": "array",
    "minItems": len(LABELS),
    "maxItems": len(LABELS),
    "uniqueItems": True,
    "items": {"type": "object", "required": ["value"], "properties": {"value": {"enum": list(LABELS)}}},
}
CRITERIA: Final = {
    "type": "array",
    "minItems": len(LABELS),
    "maxItems": len(LABELS),
    "prefixItems": [{"type": "string", "pattern": f"^{label}(:|$)"} for label in LABELS],
}
KEYED_CRITERIA: Final = {
    "type": "object",
    "required": list(LABELS),
    "properties": {label: {"anyOf": [TEXT, {"type": "null"}]} for label in LABELS},
    "additionalProperties": False,
}


def one_of(*shapes: dict[str, Any]) -> dict[str, Any]:
    """Any of these shapes."""
    return {"anyOf": list(shapes)}
