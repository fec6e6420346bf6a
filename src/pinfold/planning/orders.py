"""Plans the same pods in many random orders of arrival, and counts how often each is refused or spread.

Everything follows from a seed. The numbers are drawn by SplitMix64, in plain arithmetic: the same on every machine and
with every version of Python.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from pinfold.planning.plan import Walk

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pinfold.core.admission import Admitter
    from pinfold.core.alignment import Ruler
    from pinfold.core.outcome import Outcome
    from pinfold.core.pods.pod import Pod
    from pinfold.core.state import State

_MASK: Final = (1 << 64) - 1
# After this many arrivals, on average, one running pod leaves, and arrives again at the end.
_LEAVES_ONE_IN: Final = 4


class Dice:
    """Random numbers from a seed.

    >>> dice = Dice(1)
    >>> [dice.below(6) for _ in range(8)]
    [3, 4, 5, 2, 2, 4, 5, 3]
    """

    __slots__ = ("_state",)

    def __init__(self, seed: int) -> None:
        self._state = seed & _MASK

    def below(self, count: int) -> int:
        """Return a number from 0 to *count* - 1; the bias is below 2**-40 for the counts that occur."""
        self._state = (self._state + 0x9E3779B97F4A7C15) & _MASK
        mixed = self._state
        mixed = (mixed ^ mixed >> 30) * 0xBF58476D1CE4E5B9 & _MASK
        mixed = (mixed ^ mixed >> 27) * 0x94D049BB133111EB & _MASK
        return ((mixed ^ mixed >> 31) * count) >> 64

    def shuffled(self, count: int) -> list[int]:
        """Return the numbers from 0 to *count* - 1 in random order."""
        numbers = list(range(count))
        for i in range(count - 1, 0, -1):
            j = self.below(i + 1)
            numbers[i], numbers[j] = numbers[j], numbers[i]
        return numbers


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
    waiting = dice.shuffled(len(trial.pods))
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


class Tally(NamedTuple):
    """How often each pod was refused or spread, and how many pods were refused at once, over all orders."""

    orders: int
    refused: tuple[int, ...]
    """Orders in which the pod of this number was refused."""
    misaligned: tuple[int, ...]
    histogram: tuple[int, ...]
    """How many orders refused 0, 1, 2 … pods."""


def tally(orders: Sequence[Order], pods: int) -> Tally:
    """Return the counts over all orders."""
    refused, misaligned, histogram = [0] * pods, [0] * pods, [0] * (pods + 1)
    for order in orders:
        histogram[len(order.refused)] += 1
        for number in order.refused:
            refused[number] += 1
        for number in order.misaligned:
            misaligned[number] += 1
    return Tally(len(orders), tuple(refused), tuple(misaligned), tuple(histogram))
