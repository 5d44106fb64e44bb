"""The two baseline judges: one knows only how crowds rate, the other counts words."""

from math import exp, log

from empathy_judge.calibration.comparison.published_models import count_labels
from empathy_judge.data.errors import UserError
from empathy_judge.data.files import digest_json
from empathy_judge.data.records import LABELS, Exchange, Judgment, judgment_of
from empathy_judge.data.rubric import read_rubric
from empathy_judge.judge.base import WEIGHTS, Judge
from empathy_judge.judge.onnx_model import CARD, read_card

FITTED_WITH = WEIGHTS / "classifier"


class MajorityJudge(Judge):
    """A judge that gives every reply the shares of all ratings in the study."""

    name = "majority"
    concurrency = 1  # no work worth a second thread

    def __init__(self, *, rubric: str = "crowd") -> None:
        self.rubric = read_rubric(rubric)
        models = count_labels().values()
        counts = {label: sum(model[label] for model in models) for label in LABELS}
        self.shares = {label: count / sum(counts.values()) for label, count in counts.items()}
        self.version = digest_json([self.name, self.shares])[:12]

    def judge(self, exchange: Exchange) -> Judgment:
        return judgment_of(exchange, self.shares)


class LengthJudge(Judge):
    """A multinomial logistic regression on the logarithm of the word count alone."""

    name = "length"
    concurrency = 1

    def __init__(self, *, rubric: str = "crowd") -> None:
        self.rubric = read_rubric(rubric)
        if "length" not in (card := read_card(FITTED_WITH)):
            raise UserError(f"{FITTED_WITH / CARD}: length: missing; install again")
        self.bias, self.slope = card["length"]["bias"], card["length"]["slope"]
        self.version = digest_json([self.name, card["length"]])[:12]

    def judge(self, exchange: Exchange) -> Judgment:
        length = log(max(1, len(exchange.response.split())))
        logits = [bias + slope * length for bias, slope in zip(self.bias, self.slope, strict=True)]
        powers = [exp(logit - max(logits)) for logit in logits]
        chances = (power / sum(powers) for power in powers)
        return judgment_of(exchange, dict(zip(LABELS, chances, strict=True)))
