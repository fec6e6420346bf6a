"""The names of groups, as systemd and /proc write them."""

from __future__ import annotations

from pinfold.node.podgroups import paths


def test_slices_nest_by_their_dashes() -> None:
    assert paths.expand_slice("-.slice") == ()
    assert paths.expand_slice("a-b-c.slice") == ("a.slice", "a-b.slice", "a-b-c.slice")


def test_the_v2_line_and_the_cpuset_line_of_proc_are_told_apart() -> None:
    text = "12:cpu,cpuacct:/cpu\n3:cpuset:/kubepods/pod1/v1\n2:name=cpuset2:/named\n0::/kubepods/pod1/v2\n"
    assert paths.parse_membership(text, unified=True) == ("kubepods", "pod1", "v2")
    assert paths.parse_membership(text, unified=False) == ("kubepods", "pod1", "v1")
    assert paths.parse_membership("0::/\n", unified=True) is None
    assert paths.parse_membership("0::/\n", unified=False) is None
    assert paths.parse_membership("nonsense", unified=True) is None
