"""A part of empathy judged by counts of the reply's words: no network, no key, and refused below a floor."""

from pathlib import Path
from typing import Any, Final

from data.errors import UserError
from data.records import Exchange, Judgment, digest_json, judgment_of, unscored
from data.rubric import in_words, read_rubric
from data.text import show
from judge.base import WEIGHTS
from judge.conversations.conversation_features import conversation_features
from judge.conversations.conversation_judge import read_weights, sealed_card
from judge.guards import why_unreadable

NAME: Final = "part"


class PartJudge:
    """Judges the `dimension` of a reply by what the card of heads has for it.

    A head that was not shown to beat counting words on a set that it had not met is refused with its figures.
    """

    concurrency = 1  # no work worth a second thread

    def __init__(self, *, dimension: str = "", weights: str = "") -> None:
        folder = Path(weights) if weights else WEIGHTS / NAME
        heads = read_heads(folder)
        if dimension not in heads:
            known = ", ".join(f"{NAME}:{name}" for name, head in heads.items() if not head["refused"])
            raise UserError(f"dimension: no head for {dimension!r}; use one of {known}")
        head = heads[dimension]
        if head["refused"]:
            raise UserError(
                f"{in_words(dimension)}: refused, since counting its signs is not shown to tell more than "
                f"counting words: {say_figures(head)}. A language model can try: rubric = {dimension!r}"
            )
        self.weights = read_weights(head)
        self.rubric = read_rubric(dimension)
        self.name = self.rubric.name_judge(NAME)
        self.caveat = f"It counts words and understands none: {say_figures(head)}."
        self.version = digest_json([self.name, head])[:12]

    def judge(self, exchange: Exchange) -> Judgment:
        if why := why_unreadable(exchange.response):
            return unscored(exchange, why)
        features = conversation_features([exchange], [])
        return judgment_of(exchange, self.weights.probabilities(self.weights.place(features)))


def say_figures(head: dict[str, Any]) -> str:
    """How a head did on replies that it had not met, beside length."""
    trial = head["trial"]
    own, length = (show(trial[key], digits=2, interval_digits=2, zero=False) for key in ("head", "length"))
    return (
        f"on {trial['replies']:,} replies of {trial['set']}, which it had not met, its ranks agree with "
        f"people's by {own} (1 is perfect), those of length by {length}"
    )


def read_heads(folder: Path) -> dict[str, dict[str, Any]]:
    """The heads of a card by their dimension; refused where the card was changed."""
    with sealed_card(folder, "heads for parts of empathy") as card:
        return dict(card["heads"])
