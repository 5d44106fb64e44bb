"""pytest: the fixture `assert_good_share`, a test of the Good share of replies."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pytest

from empathy_judge.client import JudgeClient, ModelShares, shared_judge

AssertGoodShare = Callable[..., ModelShares]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options that set the judge."""
    group = parser.getgroup("empathy_judge")
    group.addoption("--empathy-judge", metavar="JUDGE", help="judge of assert_good_share")
    group.addoption("--empathy-url", metavar="URL", help="URL of `empathy-judge serve` to use instead")


@pytest.fixture(scope="session")
def empathy_judge(request: pytest.FixtureRequest) -> JudgeClient:
    """Return the judge of this session: in this process, or on a server."""
    option = request.config.getoption
    return shared_judge(option("--empathy-judge"), url=option("--empathy-url"))


@pytest.fixture
def assert_good_share(empathy_judge: JudgeClient) -> AssertGoodShare:
    """Return a function that asserts the least Good share of replies.

    Call it with rows that have a prompt and a response, and with `at_least`. The test passes if the 95%
    interval of the corrected share is above it, fails if it is below, and is skipped as inconclusive if
    `at_least` is within. The interval covers every possible label of unscored replies.
    """

    def check(replies: Iterable[Mapping[str, Any]], *, at_least: float) -> ModelShares:
        __tracebackhide__ = True
        if not 0 < at_least < 1:
            raise ValueError(f"at_least: expected a share between 0 and 1, not {at_least!r}")
        judgments = empathy_judge.judge_all({**row, "model": "replies"} for row in replies)
        if not judgments:
            raise ValueError("replies: none were given")
        (model,) = empathy_judge.shares(judgments)
        share = model.good_at_worst
        if share is None or share.low is None or share.high is None:
            why = model.refused or f"{model.judged} of {len(judgments)} scored replies are too few"
            pytest.skip(f"inconclusive: {why}")
        said = f"{share} of {len(judgments)} replies are Good"
        if model.unscored:
            said += f" ({model.unscored} unscored: {', '.join(model.reasons)})"
        if share.high < at_least:
            pytest.fail(f"{said}, and at least {at_least:.0%} were expected", pytrace=False)
        if share.low < at_least:
            pytest.skip(
                f"inconclusive: {said}, and the 95% CI includes {at_least:.0%}; more replies narrow it"
            )
        return model

    return check
