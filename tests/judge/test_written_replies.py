"""Our own replies: enough of every kind, in two halves that never mix."""

from collections import Counter
from hashlib import sha256
from itertools import pairwise

from empathy_judge.judge.robustness.catalogue import KIND, TEST_REPLIES, UNKIND, read_replies

TRAINING = read_replies("training")
TEST = tuple(reply for reply in read_replies("test") if reply.round == 1)
SECOND = tuple(reply for reply in read_replies("test") if reply.round == 2)
EVERYTHING = (*TRAINING, *TEST)


def test_there_are_enough_of_every_kind_in_either_half() -> None:
    counts = Counter(reply.kind for reply in EVERYTHING)
    assert counts.keys() <= {*KIND, *UNKIND}
    assert all(counts[kind] >= 150 for kind in ("cruel", "insults", "excellent", "kind"))
    assert counts["growing"] >= 30 and counts["unkind-dialects"] >= 50
    assert sum(reply.family == "kind question" for reply in EVERYTHING) >= 40
    for half in (TRAINING, TEST):
        here = Counter(reply.kind for reply in half)
        assert all(here[kind] >= 60 for kind in ("cruel", "insults", "excellent", "kind"))
        assert here["growing"] >= 10
    assert len({reply.family for reply in EVERYTHING if reply.kind == "cruel"}) >= 15
    assert len({reply.dialect for reply in EVERYTHING if reply.dialect}) >= 10


def test_no_reply_is_in_both_halves_and_no_prompt_comes_twice() -> None:
    texts = [text for reply in EVERYTHING for text in (reply.text, *reply.paragraphs) if text]
    assert len(set(texts)) == len(texts)
    tested = [reply for reply in EVERYTHING if not reply.is_lesson]  # a lesson's prompt has several answers
    assert len({reply.prompt for reply in tested}) == len(tested)
    lessons = [reply for reply in EVERYTHING if reply.is_lesson]
    assert len(lessons) == 450 and not TEST_REPLIES & {reply.family for reply in lessons}
    assert not {reply.prompt for reply in lessons} & {reply.prompt for reply in tested}


def test_a_reply_never_changes_sides() -> None:
    """Its own words decide, by a rule written down here: a change of the rule would mix the halves."""
    for reply in EVERYTHING:
        text = reply.text or reply.paragraphs[0]
        is_odd = sha256(f"{reply.prompt}\n{text}".encode()).digest()[0] % 2
        is_test = not reply.is_lesson and (reply.family in TEST_REPLIES or not is_odd)
        assert reply.half == ("test" if is_test else "training")
    assert {reply.family for reply in TEST} > TEST_REPLIES


def test_the_second_round_is_for_tests_alone_and_repeats_nothing_of_the_first() -> None:
    assert {reply.half for reply in SECOND} == {"test"}
    counts = Counter(reply.kind for reply in SECOND)
    assert counts == {"cruel": 108, "excellent": 120, "insults": 20, "mistaken": 12}
    assert len({reply.text for reply in SECOND} - {reply.text for reply in EVERYTHING}) == len(SECOND)
    assert not {reply.prompt for reply in SECOND} & {reply.prompt for reply in EVERYTHING}
    # A cruel and an excellent answer to the same words: what was said to them cannot tell the two apart.
    said = [{reply.prompt for reply in SECOND if reply.kind == kind} for kind in ("cruel", "excellent")]
    assert len(said[0] & said[1]) >= 45


def test_growing_replies_grow_by_paragraphs_under_ids_of_their_own() -> None:
    for reply in (reply for reply in EVERYTHING if reply.kind == "growing"):
        stages = reply.stages()
        assert len(stages) == 5 and all(later.startswith(former) for former, later in pairwise(stages))
        assert len({reply.exchange(text).id for text in stages}) == 5
