"""How a reply is written, in a few counts: what separates one model's manner from another's.

Seeing them beside the text helps a judge with an unseen model a little, within noise (`docs/experiments.md`).
"""

import math
import re

STYLE = (
    "length",
    "sentence_length",
    "sentences",
    "questions",
    "exclamations",
    "word_length",
    "contractions",
    "addresses_speaker",
    "speaks_of_itself",
    "opens_formally",
    "gives_advice",
    "lower_case",
)
_WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)*")  # noqa: RUF001  (the typographic apostrophe is meant)
# The look back is for speed: without it 100,000 dots before a letter are tried from each dot anew.
_SENTENCE = re.compile(r"(?<![.!?…])[.!?…]+(?=\s|$)")
_CONTRACTION = re.compile(r"\b\w+['’](?:s|m|re|ve|d|ll|t)\b", re.IGNORECASE)  # noqa: RUF001
_YOU = re.compile(r"\byou(?:r|rs|rself)?\b", re.IGNORECASE)
_SELF = re.compile(r"\b(?:i|me|my|mine|myself)\b", re.IGNORECASE)
_FORMAL = re.compile(
    r"\s*i (?:can |completely |fully |truly )?(?:understand|empathize|acknowledge|recognize)", re.I
)
_ADVICE = re.compile(
    r"\b(?:try|consider|perhaps|remember|should|important to|make sure|have you)\b", re.IGNORECASE
)


def count_style(response: str) -> tuple[float, ...]:
    """One number for every name in `STYLE`, each of the order of one.

    >>> dict(zip(STYLE, count_style("Oh no! Are you okay?")))["questions"]
    1.0
    """
    words = max(1, len(_WORD.findall(response)))
    sentences = max(1, len(_SENTENCE.findall(response)))
    letters = sum(len(word) for word in _WORD.findall(response))
    return (
        math.log(words) - 3.5,
        math.log(words / sentences) - 2.4,
        min(sentences, 6) - 3.0,
        float(min(response.count("?"), 2)),
        float(min(response.count("!"), 3)),
        min(letters / words, 8.0) - 4.5,
        min(10 * len(_CONTRACTION.findall(response)) / words, 3.0),
        min(10 * len(_YOU.findall(response)) / words, 3.0),
        min(10 * len(_SELF.findall(response)) / words, 3.0),
        float(bool(_FORMAL.match(response))),
        float(bool(_ADVICE.search(response))),
        float(response[:1].islower() or " i " in response),
    )
