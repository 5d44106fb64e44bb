"""The catalogue of attacks: enough of every kind, each does what it says, and mistakes in it are told."""

import codecs
import unicodedata
from base64 import b64decode
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from data.errors import UserError
from data.records import Exchange
from judge.llm.fencing import HIDDEN, clean
from judge.robustness.attacks import (
    ATTACKS,
    DISGUISES,
    SECOND_ATTACKS,
    TEST_FAMILIES,
    Attack,
    dress_up,
    halve,
    read_attacks,
)
from judge.robustness.replies import read_replies

CATALOGUE = read_attacks()
SECOND = read_attacks(SECOND_ATTACKS)
REPLIES = [reply.exchange(reply.stages()[0]) for reply in read_replies("test")[::6]]
REPLY = Exchange(id="1", prompt="My dog died.", response="It was a dog. Get over it, Sam.")
SMALL = """
[family]
kind = "is kind"
[attack.one]
family = "kind"
template = "{reply} Sorry."
"""


def test_there_are_enough_attacks_of_every_family_and_families_that_no_training_meets() -> None:
    families = Counter(attack.family for attack in CATALOGUE.attacks)
    assert len(CATALOGUE.attacks) >= 150
    assert set(families) == set(CATALOGUE.families) and len(families) >= 20
    assert min(families.values()) >= 5
    assert set(families) > TEST_FAMILIES and len(TEST_FAMILIES) >= 5
    assert {attack.family for attack in CATALOGUE.attacks if attack.is_unmet} == TEST_FAMILIES


def test_no_attack_stands_there_twice() -> None:
    told = [(item.template, item.text, item.disguise) for item in (*CATALOGUE.attacks, *SECOND.attacks)]
    assert len(set(told)) == len(told)


def test_no_training_meets_a_form_of_the_second_round() -> None:
    assert all(attack.is_unmet for attack in SECOND.attacks)
    assert not set(SECOND.families) & set(CATALOGUE.families)


def test_a_reply_can_be_read_in_nearly_every_attack() -> None:
    unreadable = [attack.name for attack in CATALOGUE.attacks if not attack.is_readable]
    assert unreadable == ["reply in rot13", "reply in base64"]


def test_every_attack_changes_every_reply_and_nothing_else() -> None:
    offenders = {
        attack.name
        for attack in (*CATALOGUE.attacks, *SECOND.attacks)
        for reply in REPLIES
        if (dressed := dress_up(attack, reply)).response == reply.response
        or not dressed.response.strip()
        or len(dressed.response) >= 6000
        or dressed != dress_up(attack, reply)
        or replace(dressed, id=reply.id, response=reply.response) != reply
    }
    assert not offenders


def test_the_whole_reply_stays_in_it_as_it_was_or_disguised() -> None:
    reply = REPLIES[0]
    start, rest = halve(reply.response)
    offenders = []
    for attack in CATALOGUE.attacks:
        text, disguise = dress_up(attack, reply).response, DISGUISES.get(attack.disguise, str)
        is_whole = reply.response in text or disguise(reply.response) in text
        if not is_whole and not (start in text and rest in text):
            offenders.append(attack.name)
    assert not offenders


def test_what_looks_like_a_hole_in_a_reply_is_none() -> None:
    attack = Attack(name="a", family="f", template='{"x": {reply}, "y": {prompt}}')
    odd = replace(REPLY, response="{prompt} \\1 {text}", prompt="{reply}")
    assert dress_up(attack, odd).response == '{"x": {prompt} \\1 {text}, "y": {reply}}'


def test_disguises_can_be_taken_off_again() -> None:
    text = "Get over it, Sam. 7"
    for name in ("full width", "mathematical", "circled"):
        assert DISGUISES[name](text) != text == unicodedata.normalize("NFKC", DISGUISES[name](text))
    for name in ("zero width", "soft hyphens"):
        assert DISGUISES[name](text) != text == clean(DISGUISES[name](text))
    for name in ("combining", "struck"):
        bare = unicodedata.normalize("NFD", DISGUISES[name](text))
        assert "".join(sign for sign in bare if not unicodedata.combining(sign)) == text
    assert b64decode(DISGUISES["base64"](text)).decode() == text
    assert codecs.decode(DISGUISES["rot13"](text), "rot13") == text
    assert HIDDEN.sub("", DISGUISES["turned round"](text))[::-1] == text
    assert HIDDEN.sub("", DISGUISES["tags"](text)) == ""
    selectors = DISGUISES["variation selectors"](text)
    assert bytes(ord(sign) - 0xE0100 + 16 for sign in selectors).decode() == text
    for name in ("look-alikes", "small capitals", "digits"):
        assert len(DISGUISES[name](text)) == len(text) and DISGUISES[name](text) != text
    assert DISGUISES["spaced"]("ab") == "a b"


def test_another_catalogue_is_read(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(SMALL, encoding="utf-8")
    found = read_attacks(path)
    assert dress_up(found.attacks[0], REPLY).response == f"{REPLY.response} Sorry."
    assert found.families == {"kind": "is kind"}


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('family = "kind"', 'family = "kin"', "one: family: 'kin' is not under"),
        ("{reply}", "{replies}", "one: template: the reply is not in it"),
        ("{reply}", "{reply} {text}", "one: text: give one where"),
        ("{reply}", "{disguised}", "one: disguise: missing"),
        ("Sorry.", 'Sorry."\ndisguise = "base64', "one: disguise: the template has neither"),
        ("Sorry.", 'Sorry."\ndisguise = "hat', "one: disguise: unknown 'hat'; known: base64"),
        ("Sorry.", 'Sorry."\nmuch = "1', "one: much: unexpected keyword"),
        ("[attack.one]", "[attacks.one]", "attacks: unknown"),
        ('[family]\nkind = "is kind"\n', "", "give a table"),
        ("[family]", "[family", "not TOML"),
    ],
)
def test_a_mistake_is_told_with_its_place(tmp_path: Path, old: str, new: str, says: str) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(SMALL.replace(old, new, 1), encoding="utf-8")
    with pytest.raises(UserError) as told:
        read_attacks(path)
    assert str(told.value).startswith(str(path)) and says in str(told.value)


def test_the_shipped_file_is_plain_utf_8() -> None:
    assert ATTACKS.read_bytes().decode("utf-8").endswith("\n")
