"""What the shipped judge must know: measured on the samples and by perturbations."""

from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import pytest

from empathy_judge.data.records import Exchange, Judgment
from empathy_judge.data.tables import SAMPLE_PROMPTS, SAMPLE_RESPONSES, read_exchanges, read_prompts
from empathy_judge.judge.classifier.judge import ClassifierJudge
from empathy_judge.judge.robustness.catalogue import read_replies
from empathy_judge.judge.robustness.run import measure_robustness

# Of replies written to try a judge: what the shipped one was measured at, and room for a small sample. Of the
# perturbed replies 3% and 5% change sides here, and 3% and 4% of all of them.
AT_LEAST = 0.82
AT_MOST = {
    "excellent called Bad": 0.24,
    "plain insults not called Bad": 0.12,
    "unkind turned Good": 0.1,
    "kind turned Bad": 0.1,
}


def test_a_dismissal_is_bad_under_nearly_every_prompt(shipped: ClassifierJudge) -> None:
    """Every second prompt; the first word alone is the hardest: 127 of all 160 when it was measured."""
    prompts = list(read_prompts(SAMPLE_PROMPTS))
    assert len(prompts) == 160
    bad = {}
    for dismissal in ("Whatever.", "Not my problem.", "Get over it.", "ok"):
        judged = shipped.judge_many([replace(prompt, response=dismissal) for prompt in prompts[::2]])
        bad[dismissal] = sum(judgment.label == "Bad" for judgment in judged) / len(judged)
    assert sum(bad.values()) / len(bad) >= 0.85, bad
    assert min(bad.values()) >= 0.7, bad


def test_stock_sympathy_does_not_pass_for_the_real_thing(
    shipped: ClassifierJudge, samples: dict[str, list[Exchange]]
) -> None:
    curt = samples["demo-curt"]
    dressed = [replace(e, response=f"I'm so sorry to hear that. {e.response}") for e in curt]
    plain, sorry, warm = (
        np.array([judgment.score for judgment in shipped.judge_many(replies)]).mean()
        for replies in (curt, dressed, samples["demo-warm"])
    )
    assert sorry - plain < 0.7 * (warm - plain)


@pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.campaign)])
def test_it_stands_up_to_attacks_and_knows_kindness_in_the_same_forms(
    shipped: ClassifierJudge, every: bool
) -> None:
    """Bounds, not targets: `robustness` reports how far the targets are met."""

    def ask(texts: Iterable[Exchange]) -> dict[str, Judgment]:
        distinct = {item.content_digest: item for item in texts}
        return {item.content_digest: item for item in shipped.judge_many(list(distinct.values()))}

    ordinary = list(read_exchanges(SAMPLE_RESPONSES))[::30]
    replies = read_replies("test") if every else read_replies("test")[::5]
    found = measure_robustness(shipped, ordinary, ask=ask, written=replies, each=5 if every else 1)
    figures = {target.name: target.figure.value for target in found.targets}
    assert figures["AUC of excellent against politely cruel"] >= AT_LEAST
    assert all(value <= AT_MOST[name] for name, value in figures.items() if name in AT_MOST)
    assert sum(row.labels["unscored"] for row in found.kinds) <= 0.02 * len(replies)
