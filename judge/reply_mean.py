"""The mean over the replies of a conversation, by a judge of replies."""

from dataclasses import replace

from empathy_judge.data.errors import UserError
from empathy_judge.data.readers.conversations import opening_digest, split_conversation
from empathy_judge.data.records import (
    CONVERSATION,
    LABELS,
    Exchange,
    Judgment,
    digest_json,
    judgment_of,
    unscored,
)
from empathy_judge.data.rubric import read_rubric
from empathy_judge.judge.base import DEFAULT, Judge, load_judge


class ReplyMean(Judge):
    """Judges conversations by the mean probabilities of their replies, which the judge `replies` gives."""

    unit = CONVERSATION
    files = ("replies",)
    caveat = (
        "The score of a conversation is the mean over its replies; repetition and lost threads do not count. "
        "A language model as judge reads the whole conversation."
    )

    def __init__(self, *, replies: str = DEFAULT) -> None:
        self.replies = load_judge(replies)
        if self.replies.unit == CONVERSATION:
            raise UserError(f"replies: {replies} judges whole conversations; set a judge of replies")
        self.asked_judges = (self.replies,)
        self.name = f"{CONVERSATION}:{replies}"
        self.rubric = self.replies.rubric if self.replies.rubric.is_part else read_rubric(CONVERSATION)
        self.concurrency = self.replies.concurrency
        self.version = digest_json([self.replies.version, "mean", 1])[:12]

    def judge(self, exchange: Exchange) -> Judgment:
        judged = [self.replies.judge(reply) for reply in split_conversation(exchange)]
        given = [item.probabilities for item in judged if item.probabilities is not None]
        if given:
            mean = {label: sum(item[label] for item in given) / len(given) for label in LABELS}
            judgment = replace(judgment_of(exchange, mean), curve=tuple(item.score for item in judged))
        else:
            judgment = unscored(exchange, judged[0].unscored or "no reply has a score")
        return replace(judgment, prompt_digest=opening_digest(exchange))

    def count_runs(self, exchange: Exchange) -> int:
        return sum(map(self.replies.count_runs, split_conversation(exchange)))

    def most_cost(self, exchange: Exchange) -> float | None:
        costs = [self.replies.most_cost(reply) for reply in split_conversation(exchange)]
        return None if None in costs else sum(filter(None, costs))
