"""What is counted of a whole conversation: its replies as judged, and what no single reply shows.

Every feature has a direction: a conversation in which the listener repeats itself is never better for it. So
a fit on few sets cannot turn a chance of one set into a rule for the next.
"""

import math
import re
from collections.abc import Sequence
from typing import Final

import numpy as np

from empathy_judge.data.records import Exchange

# Each feature with the weight that a fit starts from, for one standard deviation of it, and its description.
# The sign is what the feature means: a fit may take a weight to 0, and never past it. What the speaker's
# words show (`speaker_`) counts only where a person spoke.
FEATURES: Final = {
    "replies_mean": (0.25, "mean score of the single replies"),
    "lost": (-0.3, "replies that repeat, or that ignore what the speaker said"),
    "repeats_itself": (-0.05, "repeated words"),
    "asks_again": (-0.05, "repeated questions"),
    "new_questions": (0.1, "new questions"),
    "feeling_words": (0.1, "emotion words"),
    "validates": (0.1, "signs of understanding"),
    "advice_early": (-0.05, "advice in the first third"),
    "own_stories": (-0.1, "stories about the listener"),
    "dismisses": (-0.05, "dismissive words"),
    "words": (0.05, "length of the replies"),
    "speaker_thanks": (0.1, "thanks by the speaker"),
    "speaker_warm": (0.1, "warm words by the speaker"),
    "speaker_cold": (-0.1, "cold words by the speaker"),
    "speaker_asks_back": (-0.05, "questions back by the speaker"),
}
START: Final = {name: weight for name, (weight, _) in FEATURES.items()}
MOST_EARLIER: Final = 20  # replies before one that it is compared with

_words: Final = re.compile(r"[^\W_]+(?:'[^\W_]+)*").findall
_SENTENCE_END: Final = re.compile(r"(?<=[.!?])")
_SMALL: Final = frozenset(
    "a an the and or but so if of to in on at for with from by as is are was were be been being am do does"  # noqa: SIM905
    " did have has had will would can could should may might must it its it's this that these those there"
    " here i me my mine we us our you your yours he him his she her they them their what which who whom when"
    " where why how not no yes just very really too also than then now up down out about into over all any"
    " some i'm i've you're that's don't didn't isn't it'll i'll".split()
)
# Words of any reply: to have them in common with the speaker says nothing about the subject.
_COMMON: Final = _SMALL | frozenset(
    "sorry hear great good nice glad happy hope sure know think feel feeling feels like want get got go going"  # noqa: SIM905
    " thing things lot much well oh wow okay ok yeah thanks thank love time day way make makes made sounds"
    " sound sad bad better best fun cool awesome amazing wonderful exciting right see say said tell talk"
    " something anything someone everything kind let".split()
)
_ADVICE: Final = re.compile(
    r"\b(?:you (?:should|could|need to|might want|may want|can (?:also )?(?:try|talk|go|do|start|take))"
    r"|try (?:to|and|not|\w+ing|a\b|some)|have you (?:tried|considered|thought)|why (?:don't|not)|consider"
    r"|i(?:'d| would) (?:suggest|recommend|advise)|make sure|how about|maybe you)\b"
)
_STORY: Final = re.compile(
    r"\b(?:i (?:had|went|lost|got|was|used to|did|have been|once|remember|also)"
    r"|my (?:own|mom|mother|dad|father|friend|sister|brother|wife|husband|boss|job|dog|cat|family))\b"
)
_FEELING: Final = re.compile(
    r"\b(?:sorry|understand|feel\w*|sounds?|hard|tough|difficult|hurt\w*|sad|upset\w*|frustrat\w*|worr\w+"
    r"|scar\w+|glad|happy|proud|great|wonderful|amazing|congrat\w*|hope\w*|care|must (?:be|have)|imagine"
    r"|overwhelm\w*|stress\w*|anxious|lonely|love\w*|exciting|awesome)\b"
)
_VALID: Final = re.compile(
    r"\b(?:makes sense|understandable|i understand|i can (?:see|imagine|understand|hear)|i hear you"
    r"|i get (?:it|that)|of course|no wonder|it's (?:okay|ok|normal|natural|hard|tough)"
    r"|must (?:be|have been|feel)|sounds? (?:like|really|so|very|hard|tough))\b"
)
_DISMISSAL: Final = re.compile(
    r"\b(?:at least|get over|calm down|no(?:t a)? big deal|don't worry|could be worse|cheer up"
    r"|just (?:relax|ignore|forget|move on|stop)|whatever|relax|everyone|everybody|suck it up)\b"
)
_THANKS: Final = re.compile(
    r"\b(?:thank\w*|appreciat\w*|grateful|helpful|helped|helps|you're right"
    r"|(?:good|great) (?:idea|point|advice)|means a lot|comforting|feel better|better now|kind of you|so kind"
    r"|nice of you)\b"
)
_WARM: Final = re.compile(
    r"\b(?:thank\w*|appreciat\w*|glad|good|great|nice|love\w*|happy|hope\w*|better|yes|yeah|exactly|definitely"
    r"|sure|wow|awesome|cool|lol|haha|fun|enjoy\w*|wonderful|amazing)\b"
)
_COLD: Final = re.compile(
    r"\b(?:what\?|huh|no|not|don't (?:understand|get|know what)|confus\w*"
    r"|already (?:said|told|asked|answered)|(?:i|like i) (?:just )?(?:said|told you)|nonsense|doesn't make"
    r"|makes? no sense|weird|wrong|random"
    r"|off topic|are you (?:a bot|okay|ok|listening|real)|what are you talking|what do you mean|stop|rude"
    r"|repeat\w*|again|unrelated|end conversation|bye)\b|\?{2,}"
)
_ENDINGS: Final = ("ing", "edly", "ed", "ies", "ly", "es", "s")


def conversation_features(replies: Sequence[Exchange], scores: Sequence[float | None]) -> dict[str, float]:
    """The features of a conversation, from its replies in order and the judge's score of each.

    >>> talk = [("I lost my job.", "What was your job?"), ("A cook.", "What was your job?")]
    >>> replies = [Exchange(id="", prompt=said, response=reply) for said, reply in talk]
    >>> features = conversation_features(replies, [2.0, 1.5])
    >>> features["repeats_itself"], features["asks_again"], features["replies_mean"]
    (1.0, 1.0, 1.75)
    """
    said = [_plain(reply.response) for reply in replies]
    heard = [_plain(reply.prompt) for reply in replies]
    mean = _mean([score for score in scores if score is not None])
    return {"replies_mean": mean, **_listener_features(said, heard), **_speaker_features(heard)}


def _listener_features(said: Sequence[str], heard: Sequence[str]) -> dict[str, float]:
    words = [_words(text) for text in said]
    known: list[set[str]] = []
    for text in heard:
        known.append((known[-1] if known else set()) | _subject(_words(text)))
    repeats = [0.0, *(_repeats(words, place) for place in range(1, len(words)))]
    strays = [float(not _subject(item) & told) for item, told in zip(words, known, strict=True)]
    again = _asked_again(said)
    return {
        # A reply that says again what was said, or nothing about what the speaker spoke of.
        "lost": _mean([max(pair) for pair in zip(repeats, strays, strict=True)]),
        "repeats_itself": _mean(repeats[1:]),
        "asks_again": again,
        "new_questions": _mean([float("?" in text) for text in said]) * (1 - again),
        "feeling_words": _rate(_FEELING, said, words),
        "validates": _share(_VALID, said),
        "advice_early": _share(_ADVICE, said[: max(1, len(said) // 3)]),
        "own_stories": _rate(_STORY, said, words),
        "dismisses": _share(_DISMISSAL, said),
        "words": _mean([math.log1p(len(item)) for item in words]),
    }


def _speaker_features(heard: Sequence[str]) -> dict[str, float]:
    """What the speaker says after the first reply; what was said before no reply can have moved."""
    later = heard[1:]
    lengths = [max(5, len(_words(text))) for text in later]
    pairs = list(zip(later, lengths, strict=True))
    return {
        "speaker_thanks": _share(_THANKS, later),
        "speaker_warm": _mean([len(_WARM.findall(text)) / length for text, length in pairs]),
        "speaker_cold": _mean([len(_COLD.findall(text)) / length for text, length in pairs]),
        "speaker_asks_back": _mean([float("?" in text) for text in later]),
    }


def _plain(text: str) -> str:
    """Small letters, straight apostrophes, and "i ' m" as one word, as some bots write it."""
    return text.casefold().replace("\u2019", "'").replace(" ' ", "'")


def _subject(words: Sequence[str]) -> set[str]:
    """What is spoken of: the words that not every reply has, without their endings."""
    return {_stem(word) for word in words if word not in _COMMON and len(word) > 2}


def _stem(word: str) -> str:
    word = word.split("'")[0]
    for ending in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            return word[: -len(ending)]
    return word


def _repeats(words: Sequence[Sequence[str]], place: int) -> float:
    """The largest part of a reply, in runs of three words, that one earlier reply has too."""
    own = _runs(words[place])
    earlier = words[max(0, place - MOST_EARLIER) : place]
    return max(len(own & _runs(item)) for item in earlier) / max(1, len(own))


def _runs(words: Sequence[str]) -> set[tuple[str, ...]]:
    return {tuple(words[start : start + 3]) for start in range(max(1, len(words) - 2))}


def _asked_again(said: Sequence[str]) -> float:
    """The part of the later questions that were asked before, in much the same words."""
    asked: list[set[str]] = []
    again = []
    for place, text in enumerate(said):
        questions = [
            item
            for sentence in _SENTENCE_END.split(text)
            if sentence.endswith("?")
            and (item := {_stem(word) for word in _words(sentence) if word not in _SMALL})
        ]
        if place:
            again += [any(2 * len(item & old) > len(item | old) for old in asked) for item in questions]
        asked = [*asked, *questions][-MOST_EARLIER:]
    return _mean([float(item) for item in again])


def _share(pattern: re.Pattern[str], texts: Sequence[str]) -> float:
    return _mean([float(bool(pattern.search(text))) for text in texts])


def _rate(pattern: re.Pattern[str], texts: Sequence[str], words: Sequence[Sequence[str]]) -> float:
    """How many of its words are such, in a reply; of very short ones no more than one in four."""
    rates = [len(pattern.findall(text)) / max(4, len(item)) for text, item in zip(texts, words, strict=True)]
    return _mean([min(1.0, rate) for rate in rates])


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values)) if len(values) else 0.0
