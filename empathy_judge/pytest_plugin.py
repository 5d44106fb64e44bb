"""pytest: the fixture `assert_good_share`, a test of the Good share of replies."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pytest

from empathy_judge.client import JudgeClient, ModelShares, ReplyJudgment, shared_judge

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
    """Return a function that asserts the least Good share of replies, or that none was lost.

    Call it with rows that have a prompt and a response. With `at_least`, the test passes if the 95% interval
    of the corrected share is above it, fails if it is below, and is skipped as inconclusive if `at_least` is
    within; the interval covers every possible label of unscored replies. With `baseline`, rows of another
    version, it passes if the replies are better, probably better, similar, or at least as good: worse by no
    more than `max_drop` points. It fails if they are worse, and is skipped otherwise.
    """

    def check(
        replies: Iterable[Mapping[str, Any]],
        *,
        at_least: float | None = None,
        baseline: Iterable[Mapping[str, Any]] | None = None,
        max_drop: float = 10.0,
    ) -> ModelShares:
        __tracebackhide__ = True
        if (at_least is None) == (baseline is None):
            raise ValueError("pass either at_least or baseline")
        if at_least is not None and not 0 < at_least < 1:
            raise ValueError(f"at_least: expected a share between 0 and 1, not {at_least!r}")
        judgments = _judge(empathy_judge, replies, "replies" if baseline is None else "new")
        (model,) = empathy_judge.shares(judgments)
        if baseline is not None:
            judgments += _judge(empathy_judge, baseline, "baseline")
            (pair,) = empathy_judge.compare(judgments, "baseline", max_drop=max_drop)
            print(pair.sentence)  # which `pytest -rA` shows
            if pair.exit_code:
                (pytest.fail if pair.exit_code == 1 else pytest.skip)(pair.sentence)
        else:
            _check_share(model, at_least or 0.0, len(judgments))
        return model

    return check


def _judge(judge: JudgeClient, rows: Iterable[Mapping[str, Any]], name: str) -> list[ReplyJudgment]:
    judgments = judge.judge_all({**row, "model": name} for row in rows)
    if not judgments:
        raise ValueError(f"{name}: none were given")
    return judgments


def _check_share(model: ModelShares, at_least: float, count: int) -> None:
    __tracebackhide__ = True
    share = model.good_at_worst
    if share is None or share.low is None or share.high is None:
        why = model.refused or f"{model.judged} of {count} scored replies are too few"
        pytest.skip(f"inconclusive: {why}")
    said = f"{share} of {count} replies are Good"
    if model.unscored:
        said += f" ({model.unscored} unscored: {', '.join(model.reasons)})"
    if share.high < at_least:
        pytest.fail(f"{said}, and at least {at_least:.0%} were expected", pytrace=False)
    if share.low < at_least:
        pytest.skip(f"inconclusive: {said}, and the 95% CI includes {at_least:.0%}")
