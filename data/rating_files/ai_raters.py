"""Which raters are AIs: those said to be, and those named like a known model. People alone calibrate."""

import re
from collections.abc import Collection, Mapping
from typing import Final

ALL: Final = "all"
PEOPLE: Final = "people"
AI_KINDS: Final = frozenset({"ai", "model", "llm", "machine", "bot", "judge", "synthetic", "automatic"})
PEOPLE_KINDS: Final = frozenset({"human", "person", "people", "crowd", "expert", "annotator", "user"})
# Bare first names (Claude, Gemma) are people's: a family's name needs a number or a known word behind it.
_MODEL: Final = re.compile(
    r"(?:[\w.-]+[/:])?"  # a maker before the name
    r"(?:(?:chat)?gpt[-_ ]?\d|chatgpt\b|text-davinci|o[134](?:-mini|-preview|-pro)?$"
    r"|claude[-_ ]?(?:\d|v\d|opus|sonnet|haiku|instant|fable|mythos)|gemini[-_ ]?(?:\d|pro|flash|ultra|nano)"
    r"|gemma[-_ ]?\d|palm[-_ ]?2|(?:meta[-_ ])?(?:code[-_ ]?)?llama[-_ ]?\d|vicuna|alpaca[-_ ]\d"
    r"|(?:open-)?mi[sx]tral(?:[-_ ]|$)|ministral|magistral|qwen|qwq|deepseek|grok[-_ ]?\d|phi[-_ ]\d"
    r"|command[-_ ](?:r|a|light|nightly|xlarge)\b|yi[-_ ]\d|falcon[-_ ]?\d|glm[-_ ]?\d|chatglm|kimi[-_ ]"
    r"|nova[-_ ](?:pro|lite|micro|premier)|olmo|zephyr[-_ ]\d|solar[-_ ]\d|granite[-_ ]?\d|minimax"
    r"|gpt[-_ ]?(?:neo|oss|j)|prometheus[-_ ]?\d|nemotron|internlm|baichuan|dbrx|jamba)",
    re.IGNORECASE,
)


def is_model_name(name: str) -> bool:
    """Whether somebody of this name is an AI, as far as names tell.

    >>> [name for name in ("gpt-4o", "Claude", "claude-3-opus", "meta-llama/Llama-3-8B", "Gemma", "r07")
    ...  if is_model_name(name)]
    ['gpt-4o', 'claude-3-opus', 'meta-llama/Llama-3-8B']
    """
    return _MODEL.match(name.strip()) is not None


def is_ai(rater: str, kind: str | None = None, *, declared: Collection[str] = ()) -> bool:
    """Whether a rater is an AI: as the command says, else as the file says, else by the name."""
    if ALL in declared or rater in declared:
        return True
    said = (kind or "").strip().casefold()
    if said in AI_KINDS or said in PEOPLE_KINDS:
        return said in AI_KINDS
    return is_model_name(rater)


def name_ais(raters: Collection[str]) -> str:
    """AIs in words, as "gpt-4o, an AI".

    >>> name_ais(["gpt-4o"]), name_ais(["gpt-4o", "claude-3-opus"])
    ('gpt-4o, an AI', 'claude-3-opus and gpt-4o, AIs')
    """
    names = sorted(raters)
    if len(names) == 1:
        return f"{names[0]}, an AI"
    return f"{', '.join(names[:-1])} and {names[-1]}, AIs"


def count_ai_ratings(counts: Mapping[str, int], what: str = "rating") -> str:
    """What is set aside of a file in which people rated too."""
    total = sum(counts.values())
    plural = "s" if total != 1 else ""
    return f"{total:,} {what}{plural} by {name_ais(counts)}, set aside: people's are used"
