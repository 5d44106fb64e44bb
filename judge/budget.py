"""Money: what calls to servers cost, within a limit that several judges may share."""

from collections.abc import Iterable, Mapping
from threading import Condition

from empathy_judge.data.errors import BudgetSpent


class Budget:
    """Money in USD. Several endpoints may share one budget, as those of a panel do."""

    def __init__(self, most: float | None = None) -> None:
        self.most = most
        self.spent = 0.0
        self._reserved = 0.0
        self._dearest = 1.0  # the largest cost of a call, in multiples of its estimate
        self._change = Condition()

    def reserve(self, estimate: float) -> float:
        """Reserve what a call may cost, and return it; raise `BudgetSpent` if the budget does not cover it.

        Estimates are raised by the largest excess so far. Wait for the calls under way while it would be
        covered if they cost less than estimated.
        """

        def can_decide() -> bool:
            cost = self._dearest * estimate
            return self._is_spent(cost) or self._has_room(cost)

        with self._change:
            self._change.wait_for(can_decide)
            cost = self._dearest * estimate
            self.check(cost)
            self._reserved += cost
            return cost

    def check(self, cost: float) -> None:
        """Raise `BudgetSpent` if a call of this cost would exceed the budget."""
        if self._is_spent(cost):
            raise BudgetSpent(
                f"the budget of USD {self.most:g} is reached: USD {self.spent:.4f} is spent, and the next "
                f"call may cost USD {cost:.4f}. Finished judgments are saved. Run the command again to "
                "continue with a fresh budget, or raise --max-cost"
            )

    def settle(self, reserved: float, cost: float, *, estimate: float = 0.0) -> None:
        """Replace a call's reservation by its cost."""
        with self._change:
            self._dearest = max(self._dearest, cost / estimate if estimate else 0.0)
            self._reserved = max(0.0, self._reserved - reserved)
            self.spent += cost
            self._change.notify_all()

    def _is_spent(self, cost: float) -> bool:
        return self.most is not None and self.spent + cost > self.most

    def _has_room(self, cost: float) -> bool:
        # The tolerance: a rounding error must not block a call when nothing is under way.
        return self.most is None or self.spent + self._reserved + cost <= self.most + 1e-12


def add_usage(used: Iterable[Mapping[str, float] | None]) -> dict[str, float]:
    """Sum the usage of several calls or judgments.

    >>> add_usage([{"cost": 1.0}, None, {"cost": 0.5, "input_tokens": 7.0}])
    {'cost': 1.5, 'input_tokens': 7.0}
    """
    total: dict[str, float] = {}
    for usage in used:
        for name, amount in (usage or {}).items():
            total[name] = round(total.get(name, 0.0) + amount, 9)
    return total
