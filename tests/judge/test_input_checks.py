"""How a reply is read: tricks undone, other languages and code unscored, English of every kind judged."""

import json
import tomllib
from collections import Counter
from pathlib import Path

import pytest
from command_line import run_checked
from hypothesis import given
from hypothesis import strategies as st
from repository import SAMPLES, SHARED

from empathy_judge.data.importers import import_source
from empathy_judge.data.records import Exchange
from empathy_judge.data.tables import read_exchanges, write_rows
from empathy_judge.judge.classifier.judge import ClassifierJudge
from empathy_judge.judge.classifier.preprocessing import normalize
from empathy_judge.judge.input_checks import why_unreadable
from empathy_judge.judge.robustness.catalogue import REPLIES, read_perturbations, read_replies, rewrite
from empathy_judge.training.rated_sets import RATED_SETS, read_rated_set

LANGUAGES = {
    language: [*texts["kind"], *texts["unkind"]]
    for language, texts in tomllib.loads((REPLIES / "languages.toml").read_text(encoding="utf-8")).items()
}
WRITTEN = [*read_replies("training"), *read_replies("test")]
UNREADABLE = {"reply in base64", "reply in rot13"}  # nobody reads these at sight


def refused(text: str) -> str | None:
    return why_unreadable(normalize(text))


def test_replies_in_other_languages_are_caught() -> None:
    assert len(LANGUAGES) >= 22 and all(len(texts) == 12 for texts in LANGUAGES.values())
    reasons = [(language, refused(text)) for language, texts in LANGUAGES.items() for text in texts]
    caught = [found for _, found in reasons if found and found.startswith("another language")]
    named = [found for language, found in reasons if found == f"another language ({language})"]
    assert len(caught) >= 0.99 * len(reasons)
    assert len(named) >= 0.95 * len(reasons)


def test_no_english_of_ours_is_refused() -> None:
    ours = [text for reply in WRITTEN for text in reply.stages()]
    files = (SAMPLES / "responses.jsonl", SAMPLES / "wry.jsonl")
    samples = [exchange.response for path in files for exchange in read_exchanges(path)]
    assert [text for text in [*ours, *samples] if refused(text)] == []
    assert list(map(normalize, samples)) == samples, "ordinary replies are left as they are"


@pytest.mark.parametrize(
    "text",
    [
        "oof. call me.",
        "Ew, pigeons.",
        "u ok hun? x",
        "Och, yer heid must be fair birlin, hen. Sit doon a wee minute.",
        "Aiyo, like that also can ah. Don't so stress lah.",
        'Ay, mi amor, come sit with me. My abuela would say "no hay mal que por bien no venga". Tell me all.',
        "Je suis désolé, as my Paris friends say: I am so sorry. Tell me what happened with the house.",
        "```\nI'm so sorry you had to go through that. What happened next?\n```",
        '{"reply": "I\'m so sorry you had to go through that. What happened next?"}',
        "- You could rest.\n- Call a friend.\n- Eat something warm.",
        "let me know :) (really); class dismissed! (just kidding)",
        "me = so proud of you!!",
        "I am sorry for your loss. He was a good dog, and you were good to him all his life.\n\n[Your Name]",
    ],
)
def test_these_are_english(text: str) -> None:
    assert refused(text) is None


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (" \n…!", "no words"),
        ("Dear [Name], thank you for contacting us about [insert topic].", "template text"),
        ("{{user.first_name}}, that sounds hard.", "template text"),
        ("Lorem ipsum dolor sit amet", "template text"),
        ("[object Object]", "template text"),
        ('print("Hello, world!")', "code"),
        ("def reply(text):\n    return text.upper()", "code"),
        ("```js\nconst total = rows.map((row) => row.n);\nconsole.log(total);\n```", "code"),
        ('{"status": "ok", "id": 12}', "code"),
        ("SELECT name FROM users WHERE id = 3;", "code"),
        ("Yaar tension mat le, sab theek ho jayega, main hoon na tere saath.", "another language"),
        ("That's good. Pero no puedo creer que te lo haya dicho así, delante de todos.", "(Spanish)"),
    ],
)
def test_these_are_unscored_and_told_why(text: str, reason: str) -> None:
    assert reason in (refused(text) or "")


def test_a_kind_reply_in_any_disguise_that_people_see_through_is_english() -> None:
    attacks = [item for item in read_perturbations() if item.family and "translated" not in item.family]
    replies = [reply.exchange() for reply in WRITTEN if reply.kind == "kind"][::8]
    wrong = Counter(
        attack.name
        for attack in attacks
        for reply in replies
        if (changed := rewrite(attack, reply)) and refused(changed.response)
    )
    assert {name for name, count in wrong.items() if count > 0.1 * len(replies)} <= UNREADABLE
    seen = sum(count for name, count in wrong.items() if name not in UNREADABLE)
    assert seen <= 0.005 * len(attacks) * len(replies)


def test_the_judge_gives_the_reason_in_place_of_a_label(shipped: ClassifierJudge, tmp_path: Path) -> None:
    replies = ["Lo siento mucho, de verdad.", "I'm so sorry. Do you want to talk?", "return {};"]
    rows = [Exchange(id=str(n), prompt="I lost my job.", response=text) for n, text in enumerate(replies)]
    judgments = [shipped.judge(row) for row in rows]
    assert [item.unscored for item in judgments] == ["another language (Spanish)", None, "code"]
    assert [item.label is None for item in judgments] == [True, False, True]
    write_rows(tmp_path / "replies.jsonl", rows)
    run_checked("score", tmp_path / "replies.jsonl", "--out", tmp_path / "run")
    summary = json.loads((tmp_path / "run" / "summary.json").read_text(encoding="utf-8"))
    assert summary["counts"] == {"judged": 1, "unscored": 2, "set_aside": 0}


@pytest.mark.slow
@pytest.mark.skipif(not SHARED.is_dir(), reason="needs the public datasets")
def test_the_english_of_all_rated_sets_is_read(capsys: pytest.CaptureFixture[str]) -> None:
    """Prints the figures of `docs/responsible-use.md` (`pytest -m slow -s`)."""
    sets = {name: read_rated_set(name, SHARED) for name in RATED_SETS}
    replies = {
        name: {reply.response for item in items for reply in item.exchanges} for name, items in sets.items()
    }
    study = import_source("empathy-study", SHARED / "empathy-study").exchanges
    replies["empathy-study"] = {exchange.response for exchange in study}
    reasons = {name: Counter(filter(None, map(refused, sorted(texts)))) for name, texts in replies.items()}
    with capsys.disabled():
        for name, texts in replies.items():
            print(f"{name}: {sum(reasons[name].values())} of {len(texts)} refused, {dict(reasons[name])}")
    every = set().union(*replies.values())
    assert len(every) > 30_000
    assert sum(1 for text in every if refused(text)) <= 0.005 * len(every)


@pytest.mark.parametrize(
    ("written", "seen"),
    [
        ("You are a f\u200bo\u00adol.", "You are a fool."),
        ("Y\u043eu \u0430re a f\u043e\u043el.", "You are a fool."),
        ("\U0001d418\U0001d428\U0001d42e are a fool.", "You are a fool."),
        ("Y\u0336o\u0336u\u0336 f\u0323\u0307o\u0323\u0307ol.", "You fool."),
        ("\u028f\u1d0f\u1d1c \ua730\u1d0f\u1d0f\u029f.", "you fool."),
        ("Y o u   a r e   a   f o o l .", "You   are   a   fool."),
        ("Y0u 4r3 s1mply 57up1d.", "You are simply stupid."),
        ("You \u202e.loof\u202c", "You fool."),
        ("Мне очень жаль.", "Мне очень жаль."),
        ("Bạn đã rất mệt rồi, để mình giúp nhé.", "Bạn đã rất mệt rồi, để mình giúp nhé."),
        ("i m so sorry , i m .", "i m so sorry , i m ."),
        ("word3 hug word14 hug word5", "word3 hug word14 hug word5"),
        ("No, no. Really, really?", "No, no. Really, really?"),
    ],
)
def test_what_hides_a_reply_is_undone(written: str, seen: str) -> None:
    assert normalize(written) == seen


@given(st.text(max_size=200))
def test_seen_twice_is_seen_once(text: str) -> None:
    assert normalize(normalize(text)) == normalize(text)
