"""Laws of CPU sets: they behave as Python's sets of ints, and what is written is read back."""

from __future__ import annotations

import itertools
import pickle

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from pinfold.core.machine.cpuset import MAX_CPU, CPUSet
from pinfold.errors import ParseError

# A busy machine may take its time.
untimed = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
# Dense enough to overlap, and around the edges of chunks and of what is allowed.
cpus = st.integers(0, 70) | st.integers(0, MAX_CPU) | st.sampled_from([31, 32, 63, 64, MAX_CPU - 1, MAX_CPU])
sets = st.frozensets(cpus, max_size=40)
spaces = st.text(" \t\r\n", max_size=3)
zeros = st.text("0", max_size=4)


@st.composite
def ranges(draw: st.DrawFn) -> tuple[str, set[int]]:
    """Draw a range as the kernel accepts it, perhaps with a stride, and the CPUs that are in it."""
    first = draw(cpus)
    last = min(MAX_CPU, first + draw(st.integers(0, 200)))
    text = f"{draw(zeros)}{first}-{draw(zeros)}{last}"
    if draw(st.booleans()):
        return text, set(range(first, last + 1))
    group = draw(st.integers(1, 70))
    used = draw(st.integers(1, group))
    return f"{text}:{draw(zeros)}{used}/{draw(zeros)}{group}", {
        cpu for cpu in range(first, last + 1) if (cpu - first) % group < used
    }


@untimed
@given(sets, sets)
def test_operators_are_those_of_sets(a: frozenset[int], b: frozenset[int]) -> None:
    x, y = CPUSet.from_cpus(a), CPUSet.from_cpus(b)
    assert set(x | y) == a | b
    assert set(x & y) == a & b
    assert set(x - y) == a - b
    assert set(x ^ y) == a ^ b


@untimed
@given(sets, sets, st.booleans())
def test_comparisons_are_those_of_sets(a: frozenset[int], b: frozenset[int], nested: bool) -> None:  # noqa: FBT001 - drawn
    b = a | b if nested else b
    x, y = CPUSet.from_cpus(a), CPUSet.from_cpus(b)
    assert (x <= y, x < y, x >= y, x > y) == (a <= b, a < b, a >= b, a > b)
    assert (x == y, x != y) == (a == b, a != b)
    assert x.isdisjoint(y) == a.isdisjoint(b)


@untimed
@given(sets, cpus)
def test_size_members_and_lowest_are_those_of_the_set(a: frozenset[int], cpu: int) -> None:
    x = CPUSet.from_cpus(a)
    assert (len(x), bool(x), cpu in x) == (len(a), bool(a), cpu in a)
    assert x.lowest == min(a, default=-1)


@untimed
@given(sets)
def test_iteration_ascends(a: frozenset[int]) -> None:
    assert list(CPUSet.from_cpus(a)) == sorted(a)


@untimed
@given(sets.flatmap(lambda a: st.tuples(st.permutations(sorted(a)), st.permutations(sorted(a) * 2))))
def test_equality_and_hash_do_not_depend_on_how_the_set_was_made(orders: tuple[list[int], list[int]]) -> None:
    once, twice = orders
    x, y, z = CPUSet.from_cpus(once), CPUSet.of(*twice), CPUSet.parse(",".join(map(str, twice)))
    assert x == y == z
    assert hash(x) == hash(y) == hash(z)
    assert len({x, y, z}) == 1


@untimed
@given(sets)
def test_pickle_gives_the_set_back(a: frozenset[int]) -> None:
    x = CPUSet.from_cpus(a)
    assert pickle.loads(pickle.dumps(x)) == x  # noqa: S301 - our own


@untimed
@given(sets, sets)
def test_operands_stay_as_they_were(a: frozenset[int], b: frozenset[int]) -> None:
    x, y = CPUSet.from_cpus(a), CPUSet.from_cpus(b)
    _ = x | y, x & y, x - y, x ^ y
    assert (frozenset(x), frozenset(y)) == (a, b)


@untimed
@given(sets, spaces, spaces)
def test_written_list_is_read_back(a: frozenset[int], before: str, after: str) -> None:
    x = CPUSet.from_cpus(a)
    assert CPUSet.parse(f"{before}{x.format()}{after}") == x


@untimed
@given(sets)
def test_written_list_is_the_shortest_one(a: frozenset[int]) -> None:
    bounds = [part.split("-") for part in CPUSet.from_cpus(a).format().split(",") if part]
    numbers = [(int(bound[0]), int(bound[-1])) for bound in bounds]
    assert all(last + 1 < first for (_, last), (first, _) in itertools.pairwise(numbers))
    assert all(len(bound) == 1 or first < last for bound, (first, last) in zip(bounds, numbers, strict=True))


@untimed
@given(sets, st.integers(0, 70000), spaces, spaces)
def test_a_written_mask_of_any_width_is_read_back(a: frozenset[int], width: int, before: str, after: str) -> None:
    x = CPUSet.from_cpus(a)
    text = x.format_mask(width)
    assert CPUSet.parse_mask(f"{before}{text}{after}") == x
    assert len(text.replace(",", "")) * 4 >= width
    assert all(len(chunk) == 8 for chunk in text.split(",")[1:])


@untimed
@given(sets, st.integers(0, 20), st.sampled_from(["", "0x", "0X"]), st.booleans())
def test_mask_in_one_piece_is_read_with_zeros_prefix_and_capitals(
    a: frozenset[int],
    padding: int,
    prefix: str,
    capitals: bool,  # noqa: FBT001 - drawn
) -> None:
    x = CPUSet.from_cpus(a)
    digits = f"{x.mask:X}" if capitals else f"{x.mask:x}"
    assert CPUSet.parse_mask(prefix + "0" * padding + digits) == x


@untimed
@given(st.lists(st.integers(0, 0xFFFFFFFF), min_size=1, max_size=20), st.booleans())
def test_chunks_of_a_mask_are_read_padded_or_not(chunks: list[int], padded: bool) -> None:  # noqa: FBT001 - drawn
    text = ",".join(f"{chunk:08x}" if padded else f"{chunk:x}" for chunk in chunks)
    bits = [32 * place + bit for place, chunk in enumerate(reversed(chunks)) for bit in range(32) if chunk >> bit & 1]
    assert list(CPUSet.parse_mask(text)) == sorted(bits)


@untimed
@given(st.lists(ranges(), max_size=5))
@example([("0-31:2/4", {cpu for cpu in range(32) if cpu % 4 < 2})])
def test_ranges_and_strides_hold_the_cpus_that_the_kernel_puts_there(drawn: list[tuple[str, set[int]]]) -> None:
    text = ",".join(text for text, _ in drawn)
    assert set(CPUSet.parse(text)) == set().union(*(found for _, found in drawn))


@untimed
@given(st.text() | st.text("0123456789,-:/xf \n\0", max_size=30))
def test_any_text_is_a_set_or_an_error_that_points_into_the_text(text: str) -> None:
    for parse in (CPUSet.parse, CPUSet.parse_mask):
        try:
            found = parse(text)
        except ParseError as error:
            assert error.text == text.strip(" \t\r\n")  # noqa: PT017 - either way is right
            assert 0 <= error.at <= len(error.text)  # noqa: PT017
            assert "\n" not in str(error)  # noqa: PT017
        else:
            assert all(0 <= cpu <= MAX_CPU for cpu in found)
            assert CPUSet.parse(found.format()) == found
