"""Plans the same pods in many random orders of arrival, and counts how often each is refused or spread.

Everything follows from a seed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from pinfold.planning.dice import Dice
from pinfold.planning.plan import Walk

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pinfold.core.admission import Admitter
    from pinfold.core.explaining.alignment import Ruler
    from pinfold.core.explaining.outcome import Outcome
    from pinfold.core.pods.pod import Pod
    from pinfold.core.state import State

# After this many arrivals, on average, one running pod leaves, and arrives again at the end.
_LEAVES_ONE_IN: Final = 4


class Order(NamedTuple):
    """The result of one order: the refused pods, and those with a spread container, by number."""

    refused: frozenset[int]
    misaligned: frozenset[int]


def sample(admitter: Admitter, ruler: Ruler, state: State, pods: Sequence[Pod], seed: int) -> Iterator[Order]:
    """Yield the results of random orders, without end.

    All pods arrive in random order. After some arrivals a pod leaves; at the end those that left arrive again. So the
    last arrival of every pod counts.
    """
    dice = Dice(seed)
    while True:
        yield _one(_Try(admitter, ruler, state, pods), dice)


class _Try(NamedTuple):
    """A node and the pods that will arrive."""

    admitter: Admitter
    ruler: Ruler
    state: State
    pods: Sequence[Pod]

    def lies_badly(self, outcome: Outcome) -> bool:
        cpus = (outcome.cpus(container) for container in outcome.pod.all_containers)
        return any(not self.ruler.measure(own).is_aligned for own in cpus if own is not None)


def _one(trial: _Try, dice: Dice) -> Order:
    walk = Walk(trial.admitter, trial.state)
    there: dict[int, Outcome] = {}
    refused: set[int] = set()
    waiting = list(range(len(trial.pods)))
    dice.shuffle(waiting)
    first = len(waiting)
    for step, number in enumerate(waiting):  # it grows while pods leave, and only the first pods leave
        outcome = walk.admit(trial.pods[number])
        if outcome.refusal is None:
            there[number] = outcome
        else:
            refused.add(number)
        if step < first - 1 and there and not dice.below(_LEAVES_ONE_IN):
            leaving = [*there][dice.below(len(there))]
            del there[leaving]
            walk.remove(trial.pods[leaving].uid)
            waiting.append(leaving)
    spread = frozenset(number for number, outcome in there.items() if trial.lies_badly(outcome))
    return Order(frozenset(refused), spread)


class OrderTally(NamedTuple):
    """How often each pod was refused or spread, and how many pods were refused at once, over all orders."""

    orders: int
    refused: tuple[int, ...]
    """Orders in which the pod of this number was refused."""
    misaligned: tuple[int, ...]
    histogram: tuple[int, ...]
    """How many orders refused 0, 1, 2 … pods."""


def tally(orders: Sequence[Order], pods: int) -> OrderTally:
    """Return the counts over all orders."""
    refused, misaligned, histogram = [0] * pods, [0] * pods, [0] * (pods + 1)
    for order in orders:
        histogram[len(order.refused)] += 1
        for number in order.refused:
            refused[number] += 1
        for number in order.misaligned:
            misaligned[number] += 1
    return OrderTally(len(orders), tuple(refused), tuple(misaligned), tuple(histogram))
