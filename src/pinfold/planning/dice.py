"""Dice: random numbers that follow from seeds alone, by SplitMix64: the same on every machine and Python."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import MutableSequence

_WORD: Final = (1 << 64) - 1


class Dice:
    """Random numbers from a seed.

    >>> dice = Dice(1)
    >>> [dice.below(6) for _ in range(8)]
    [3, 4, 5, 2, 2, 4, 5, 3]
    """

    __slots__ = ("_state",)

    def __init__(self, seed: int) -> None:
        self._state = seed & _WORD

    @classmethod
    def of(cls, *seeds: int) -> Dice:
        """Return dice that depend on all of the seeds and on their order.

        >>> Dice.of(1, 2).roll() == Dice.of(1, 2).roll() != Dice.of(2, 1).roll()
        True
        """
        dice = cls(0)
        for seed in seeds:
            dice._state = dice.roll() ^ seed & _WORD
        return dice

    def roll(self) -> int:
        """Return the next number, of 64 bits."""
        self._state = state = self._state + 0x9E3779B97F4A7C15 & _WORD
        state = (state ^ state >> 30) * 0xBF58476D1CE4E5B9 & _WORD
        state = (state ^ state >> 27) * 0x94D049BB133111EB & _WORD
        return state ^ state >> 31

    def below(self, count: int) -> int:
        """Return a number from 0 to *count* - 1; the bias is below 2**-40 for the counts that occur."""
        return self.roll() * count >> 64

    def shuffle(self, values: MutableSequence[int]) -> None:
        """Put *values* into a random order; all orders are equally likely."""
        for last in range(len(values) - 1, 0, -1):
            other = self.below(last + 1)
            values[last], values[other] = values[other], values[last]
