"""Place numbers of texts seen before, a million of them in 30 MB of memory."""

from array import array

EMPTY, GONE = -1, -2


class Places:
    """Open addressing over three arrays, by hand: a `dict` of a million ids takes four times as much.

    A text is known by two hashes, 12 bytes with a key of this process's own, so that two texts are never
    taken for one. The arrays grow by half, since the old ones are held beside the new until all have moved.

    >>> places = Places()
    >>> places.note("a", 7), places.note("a", 9), len(places)
    (7, 7, 1)
    >>> places.pop("a"), places.pop("a"), len(places)
    (7, None, 0)
    """

    def __init__(self) -> None:
        self._count = self._used = 0
        self._make(1 << 10)

    def __len__(self) -> int:
        return self._count

    def note(self, text: str, place: int) -> int:
        """Where the text was noted first, which is `place` for a new one; places are not negative."""
        first, second = _halves(text)
        slot = self._find(first, second)
        if self._places[slot] >= 0:
            return self._places[slot]
        self._set(slot, first, second, place)
        return place

    def put(self, text: str, place: int) -> None:
        """Note the text at `place`, wherever it was before."""
        first, second = _halves(text)
        slot = self._find(first, second)
        if self._places[slot] >= 0:
            self._places[slot] = place
        else:
            self._set(slot, first, second, place)

    def pop(self, text: str) -> int | None:
        """Where the text was noted, which is forgotten with this; None when it was not."""
        slot = self._find(*_halves(text))
        place = self._places[slot]
        if place < 0:
            return None
        self._places[slot] = GONE  # not empty: others may lie behind it
        self._count -= 1
        return place

    def _find(self, first: int, second: int) -> int:
        """The slot of a text, or the empty one where it would be."""
        firsts, seconds, places, slots = self._firsts, self._seconds, self._places, self._slots
        slot = first % slots
        while places[slot] != EMPTY:
            if firsts[slot] == first and seconds[slot] == second and places[slot] != GONE:
                return slot
            slot = (slot + 1) % slots
        return slot

    def _set(self, slot: int, first: int, second: int, place: int) -> None:
        self._firsts[slot], self._seconds[slot], self._places[slot] = first, second, place
        self._count += 1
        self._used += 1
        if 4 * self._used > 3 * self._slots:
            self._grow()

    def _grow(self) -> None:
        held = zip(self._firsts, self._seconds, self._places, strict=True)
        self._make(self._slots * 3 // 2)
        for first, second, place in held:
            if place >= 0:
                slot = self._find(first, second)
                self._firsts[slot], self._seconds[slot], self._places[slot] = first, second, place
        self._used = self._count

    def _make(self, slots: int) -> None:
        self._slots = slots
        self._firsts, self._seconds = array("q", [0]) * slots, array("I", [0]) * slots
        self._places = array("q", [EMPTY]) * slots


def _halves(text: str) -> tuple[int, int]:
    return hash(text), hash(f"{text} ") & 0xFFFFFFFF
