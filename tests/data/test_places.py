"""The dictionary of places, against an ordinary one."""

from hypothesis import given, settings
from hypothesis import strategies as st

from data.places import Places


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["note", "put", "pop"]), st.integers(0, 40), st.integers(0, 9))))
def test_places_are_a_dictionary(steps: list[tuple[str, int, int]]) -> None:
    places, held = Places(), dict[str, int]()
    for step, number, place in steps:
        text = f"\ud800{number}"
        if step == "note":
            assert places.note(text, place) == held.setdefault(text, place)
        elif step == "put":
            places.put(text, place)
            held[text] = place
        else:
            assert places.pop(text) == held.pop(text, None)
        assert len(places) == len(held)


def test_places_grow() -> None:
    places = Places()
    for number in range(20_000):
        assert places.note(f"r{number}", number) == number
    assert all(places.note(f"r{number}", 0) == number for number in range(20_000))
    assert all(places.pop(f"r{number}") == number for number in range(20_000))
    assert not places
