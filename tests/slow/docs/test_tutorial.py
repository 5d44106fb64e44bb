"""The tutorial and the guides: every command in them runs, and prints what they show."""

import shutil
from pathlib import Path

import pytest
import tutorial

pytest.importorskip("sklearn", reason="calibrate needs what the extra `calibrate` brings")
pytest.importorskip("sqlalchemy", reason="nightly needs what the extra `nightly` brings")
PAGES = tutorial.pages()


@pytest.fixture(autouse=True)
def _shell() -> None:
    for tool in ("bash", "make"):
        if shutil.which(tool) is None:
            pytest.skip(f"the pages are for a shell: no {tool} here")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_shows_what_its_commands_print(page: Path) -> None:
    problems = tutorial.check(page)
    assert not problems, "refresh with: python tests/support/tutorial.py --write\n" + "\n".join(problems)


def test_the_tutorial_gets_from_an_order_to_levels() -> None:
    """Its prose says so: where this fails, the words around the commands must change too."""
    steps = tutorial.steps_of(tutorial.DOCS / "tutorial.md")
    compared = [step.printed for step in steps if " compare " in step.command]
    assert len(compared) == 2
    assert "demo-warm is better than demo-plain" in compared[0]
    assert "(judge): demo-warm is beyond every model people rated" in compared[0]
    assert "demo-warm is better than demo-plain" in compared[1]


@pytest.mark.parametrize(
    ("shown", "printed"),
    [
        ("judged in 4.1 s", "judged in 11 s"),
        ("calibration ec477460e182 until 2031-11-14", "calibration 0123456789ab until 2030-01-02"),
        ("59.3 [46.4, 72.0]", "59.4  [46.2, 72.1]"),
        ("about 2,400 more", "about 2,500 more"),
        ("run runs/responses-classifier-1b979139", "run runs/responses-classifier-00000001"),
    ],
)
def test_another_machine_or_day_is_no_difference(shown: str, printed: str) -> None:
    assert tutorial.differ(shown, printed) is None


@pytest.mark.parametrize(
    ("shown", "printed"),
    [
        ("59.3 [46.4, 72.0]", "59.6 [46.4, 72.0]"),
        ("64 judged", "66 judged"),
        ("192 judged", "193 judged"),
        ("is better", "is worse"),
        ("one", "one two"),
        ("p = .150", "p = .190"),
        ("[-.33, 1.00]", "[\N{MINUS SIGN}.33, 1.00]"),
    ],
)
def test_another_result_is(shown: str, printed: str) -> None:
    assert tutorial.differ(shown, printed)


def test_writing_puts_in_what_is_printed_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = tmp_path / "page.md"
    page.write_text("Before.\n\n```console\n$ echo one\n1\n$ echo two \\\n    three\n```\n\nAfter.\n")
    monkeypatch.setattr(tutorial, "SHOWN", ())
    assert tutorial.write(page) == 2
    assert page.read_text() == (
        "Before.\n\n```console\n$ echo one\none\n$ echo two \\\n    three\ntwo three\n```\n\nAfter.\n"
    )
    assert tutorial.write(page) == 0
