from pinfold.planning.dice import Dice


def test_the_numbers_are_those_of_splitmix64() -> None:
    dice = Dice(1234567)
    assert [dice.below(1 << 64) for _ in range(3)] == [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
    ]


def test_every_number_is_drawn_about_equally_often() -> None:
    dice = Dice(7)
    counts = [0] * 6
    for _ in range(6000):
        counts[dice.below(6)] += 1
    assert all(850 < count < 1150 for count in counts)


def test_a_shuffle_keeps_every_number() -> None:
    numbers = list(range(100))
    Dice(3).shuffle(numbers)
    assert sorted(numbers) == list(range(100))
    assert numbers != list(range(100))
