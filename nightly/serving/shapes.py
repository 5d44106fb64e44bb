"""How the loosely typed fields of a request are described: what we can read of them, not all we let pass."""

from typing import Any, Final

from data.records import LABELS

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
