"""Many tests at once: adjusted p-values, and the order of models with its ties."""

from collections.abc import Callable, Collection, Sequence
from string import ascii_lowercase

import numpy as np
from numpy.typing import ArrayLike

from calibration.estimate import Floats

Rule = Callable[[Floats, int], Floats]  # p-values in ascending order and their number -> adjusted ones


def holm(p_values: ArrayLike) -> Floats:
    """Adjusted so that any false finding at all among those below .05 has a chance of 5 %.

    By hand: scipy has none. An undefined one (nan) stays so and is not counted as a test.

    >>> holm([0.01, 0.04, np.nan, 0.03]).round(2).tolist()
    [0.03, 0.06, nan, 0.06]
    """

    def step_down(ordered: Floats, count: int) -> Floats:
        least: Floats = np.maximum.accumulate(ordered * (count - np.arange(count)))
        return least

    return _adjust(p_values, step_down)


def benjamini_hochberg(p_values: ArrayLike) -> Floats:
    """Adjusted so that of those below .05 at most one in twenty is expected to be false.

    By hand, since nights load nothing else of scipy.stats, which takes seconds; the tests hold it to scipy's.

    >>> benjamini_hochberg([0.01, 0.04, np.nan, 0.03]).round(2).tolist()
    [0.03, 0.04, nan, 0.04]
    """

    def step_up(ordered: Floats, count: int) -> Floats:
        raised = ordered * count / np.arange(1, count + 1)
        least: Floats = np.minimum.accumulate(raised[::-1])[::-1]
        return least

    return _adjust(p_values, step_up)


def _adjust(p_values: ArrayLike, rule: Rule) -> Floats:
    values = np.asarray(p_values, dtype=float)
    found: Floats = np.full(values.shape, np.nan)
    known = np.flatnonzero(np.isfinite(values))
    order = known[np.argsort(values[known], kind="stable")]
    if len(order):
        found[order] = np.minimum(rule(values[order], len(order)), 1.0)
    return found


def tie_letters(names: Sequence[str], told_apart: Collection[frozenset[str]]) -> dict[str, str]:
    """Letters for each name, best first: two that share a letter are not told apart.

    `told_apart` are the pairs that are. Each letter stands for a largest set of names none of which is told
    apart from another (Piepho 2004, insert and absorb).

    >>> tie_letters(["a", "b", "c"], [frozenset("ac")])
    {'a': 'a', 'b': 'ab', 'c': 'b'}
    """
    groups = [frozenset(names)]
    for pair in told_apart:
        split = [group - {name} for group in groups if pair <= group for name in pair]
        groups = list(dict.fromkeys([*(group for group in groups if not pair <= group), *split]))
        groups = [group for group in groups if not any(group < other for other in groups)]
    place = {name: number for number, name in enumerate(names)}
    groups.sort(key=lambda group: sorted(place[name] for name in group))
    return {
        name: "".join(letter_of(number) for number, group in enumerate(groups) if name in group)
        for name in names
    }


def letter_of(number: int) -> str:
    """a to z, then a1 to z1 and so on.

    >>> letter_of(0), letter_of(26)
    ('a', 'a1')
    """
    around, letter = divmod(number, len(ascii_lowercase))
    return ascii_lowercase[letter] + (str(around) if around else "")
