"""Place numbers of texts seen before, a million of them in 30 MB of memory."""

from array import array

EMPTY, GONE = -1, -2
TABLE_BITS = 4


class Places:
    """Hash tables of arrays, by hand: a `dict` of a million ids takes four times as much.

    A text is known by two hashes, 12 bytes with a key of this process's own, so that two texts are never
    taken for one. There are several tables, since the old arrays of one that grows are held beside the new.

    >>> places = Places()
    >>> places.note("a", 7), places.note("a", 9), len(places)
    (7, 7, 1)
    >>> places.pop("a"), places.pop("a"), len(places)
    (7, None, 0)
    """

    def __init__(self) -> None:
        self._tables = [_Table() for _ in range(1 << TABLE_BITS)]

    def __len__(self) -> int:
        return sum(table.count for table in self._tables)

    def note(self, text: str, place: int) -> int:
        """Where the text was noted first, which is `place` for a new one; places are not negative."""
        table, first, second = self._look_up(text)
        slot = table.find(first, second)
        if table.places[slot] >= 0:
            return table.places[slot]
        table.set(slot, first, second, place)
        return place

    def put(self, text: str, place: int) -> None:
        """Note the text at `place`, wherever it was before."""
        table, first, second = self._look_up(text)
        slot = table.find(first, second)
        if table.places[slot] >= 0:
            table.places[slot] = place
        else:
            table.set(slot, first, second, place)

    def pop(self, text: str) -> int | None:
        """Where the text was noted, which is forgotten with this; None when it was not."""
        table, first, second = self._look_up(text)
        slot = table.find(first, second)
        place = table.places[slot]
        if place < 0:
            return None
        table.places[slot] = GONE  # not empty: others may lie behind it
        table.count -= 1
        return place

    def _look_up(self, text: str) -> tuple["_Table", int, int]:
        first = hash(text)
        return self._tables[first & (1 << TABLE_BITS) - 1], first >> TABLE_BITS, hash(f"{text} ") & 0xFFFFFFFF


class _Table:
    """Open addressing over three arrays."""

    def __init__(self) -> None:
        self.count = self._used = 0
        self._make(1 << 6)

    def find(self, first: int, second: int) -> int:
        """The slot of a text, or the empty one where it would be."""
        firsts, seconds, places, slots = self._firsts, self._seconds, self.places, self._slots
        slot = first % slots
        while places[slot] != EMPTY:
            if firsts[slot] == first and seconds[slot] == second and places[slot] != GONE:
                return slot
            slot = (slot + 1) % slots
        return slot

    def set(self, slot: int, first: int, second: int, place: int) -> None:
        """Note a text at the empty slot that `find` gave."""
        self._firsts[slot], self._seconds[slot], self.places[slot] = first, second, place
        self.count += 1
        self._used += 1
        if 4 * self._used > 3 * self._slots:
            self._grow()

    def _grow(self) -> None:
        held = zip(self._firsts, self._seconds, self.places, strict=True)
        self._make(self._slots * 3 // 2)
        for first, second, place in held:
            if place >= 0:
                slot = self.find(first, second)
                self._firsts[slot], self._seconds[slot], self.places[slot] = first, second, place
        self._used = self.count

    def _make(self, slots: int) -> None:
        self._slots = slots
        self._firsts, self._seconds = array("q", [0]) * slots, array("I", [0]) * slots
        self.places = array("q", [EMPTY]) * slots
