"""What systemd is asked and told, by a stand-in for systemctl: no systemd runs where tests do."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pinfold.errors import ParseError
from pinfold.node.podgroups import systemd
from pinfold.node.podgroups.settings import GroupSetting, Quota
from pinfold.node.podgroups.systemd import Systemd, SystemdError, parse_shown, parse_span, units

BURSTABLE = "kubepods-burstable.slice"
SCOPE = "cri-containerd-1.scope"
STAND_IN = f"""#!{sys.executable} -IS
import json, os, pathlib, sys, time
here = pathlib.Path(__file__).parent
with open(here / "calls", "a") as calls:
    print(json.dumps(sys.argv[1:]), file=calls)
if (here / "hangs").exists():
    time.sleep(1000)
verb = "show" if "show" in sys.argv else "set-property"
if (here / f"{{verb}}.fails").exists():
    sys.exit((here / f"{{verb}}.fails").read_text())
if verb == "show":
    print((here / "shown").read_text())
"""


@pytest.fixture
def systemctl(tmp_path: Path) -> Path:
    """Return a stand-in that writes down how it was called, and says what the file "shown" holds."""
    path = tmp_path / "systemctl"
    path.write_text(STAND_IN)
    path.chmod(0o755)
    (tmp_path / "shown").write_text("")
    return path


def setting(group: Path, *properties: str, file: str = "cpuset.cpus") -> GroupSetting:
    return GroupSetting(group, file, "", "", properties)


def calls(systemctl: Path, verb: str) -> list[str]:
    path = systemctl.parent / "calls"
    lines = path.read_text().splitlines() if path.exists() else []
    return [line for line in lines if f'"{verb}"' in line]


def keep(systemctl: Path, *settings: GroupSetting) -> tuple[str, ...]:
    return asyncio.run(Systemd(str(systemctl)).keep(settings))


def test_a_unit_gets_all_its_properties_in_one_command(systemctl: Path, tmp_path: Path) -> None:
    group = tmp_path / SCOPE
    told = keep(
        systemctl,
        setting(group, "AllowedCPUs=2-3"),
        setting(group, "AllowedMemoryNodes=0", file="cpuset.mems"),
        setting(group, *Quota(None).properties(), file="cpu.max"),
    )
    assert told == (SCOPE,)
    (call,) = calls(systemctl, "set-property")
    options = ["--no-ask-password", "--runtime", "set-property", "--", "cri-containerd-1.scope"]
    assert json.loads(call) == [*options, "AllowedCPUs=2-3", "AllowedMemoryNodes=0", "CPUQuota="]
    assert len(calls(systemctl, "show")) == 1


def test_what_systemd_knows_is_not_told_again(systemctl: Path, tmp_path: Path) -> None:
    (tmp_path / "shown").write_text(
        f"Id={BURSTABLE}\nAllowedCPUs=0-3 8\nAllowedMemoryNodes=\nCPUQuotaPerSecUSec=infinity\n"
        "CPUQuotaPeriodUSec=infinity\n\n"
        f"Id={SCOPE}\nAllowedCPUs=0-1\nCPUQuotaPerSecUSec=1.500000s\nCPUQuotaPeriodUSec=100ms\n"
    )
    known = setting(tmp_path / BURSTABLE, "AllowedCPUs=0-3,8", "CPUQuota=")
    quota = setting(tmp_path / SCOPE, *Quota(150_000).properties())
    assert keep(systemctl, known, quota) == ()
    assert calls(systemctl, "set-property") == []
    more = setting(tmp_path / SCOPE, "AllowedCPUs=0-2")
    assert keep(systemctl, known, quota, more) == (SCOPE,)
    (call,) = calls(systemctl, "set-property")
    assert call.endswith('"AllowedCPUs=0-2"]')
    assert "CPUQuota" not in call


def test_groups_that_are_no_units_are_not_told_and_nothing_is_run(systemctl: Path, tmp_path: Path) -> None:
    names = ("burstable", "pod1", "-rf.slice", "a*.slice", "a b.scope", ".slice", "x.service")
    assert keep(systemctl, *(setting(tmp_path / name, "AllowedCPUs=0") for name in names)) == ()
    assert keep(systemctl, setting(tmp_path / BURSTABLE)) == ()
    assert not (tmp_path / "calls").exists()


def test_units_are_told_in_the_order_of_the_settings(systemctl: Path, tmp_path: Path) -> None:
    names = [f"kubepods-pod{i}.slice" for i in range(250)][::-1]
    assert keep(systemctl, *(setting(tmp_path / name, "AllowedCPUs=0") for name in names[:3])) == tuple(names[:3])
    asyncio.run(Systemd(str(systemctl)).show(names))
    assert len(calls(systemctl, "show")) == 1 + 3


def test_a_unit_that_has_gone_is_passed_over_and_another_is_an_error(systemctl: Path, tmp_path: Path) -> None:
    (tmp_path / "set-property.fails").write_text(f"Failed to set unit properties: Unit {SCOPE} not found.")
    group = tmp_path / SCOPE
    assert keep(systemctl, setting(group, "AllowedCPUs=0")) == ()
    group.mkdir()
    with pytest.raises(SystemdError, match=r"exit code 1: .*Failed to set unit properties"):
        keep(systemctl, setting(group, "AllowedCPUs=0"))


def test_a_systemd_that_cannot_be_asked_is_an_error(systemctl: Path, tmp_path: Path) -> None:
    (tmp_path / "show.fails").write_text("Failed to connect to bus: Host is down\nmore")
    with pytest.raises(SystemdError, match=r"exit code 1: .*Failed to connect to bus") as refusal:
        keep(systemctl, setting(tmp_path / SCOPE, "AllowedCPUs=0"))
    assert "\n" not in str(refusal.value)
    with pytest.raises(SystemdError, match="cannot be run: No such file"):
        keep(tmp_path / "missing", setting(tmp_path / SCOPE, "AllowedCPUs=0"))


def test_a_systemctl_that_hangs_is_ended(systemctl: Path, tmp_path: Path) -> None:
    (tmp_path / "hangs").touch()
    slow = Systemd(str(systemctl), seconds=0.05)
    with pytest.raises(SystemdError, match=r"no answer within 0\.05 s"):
        asyncio.run(slow.keep([setting(tmp_path / SCOPE, "AllowedCPUs=0")]))


def test_what_is_shown_in_a_way_we_cannot_read_is_told_again(systemctl: Path, tmp_path: Path) -> None:
    (tmp_path / "shown").write_text(f"Id={SCOPE}\nAllowedCPUs=[not set]\nCPUQuotaPerSecUSec=soon\ngarbage\n\n\n=\n")
    assert keep(systemctl, setting(tmp_path / SCOPE, "AllowedCPUs=0", "CPUQuota=")) == (SCOPE,)


def test_the_last_value_of_a_unit_counts() -> None:
    group = Path("/x", SCOPE)
    (unit,) = units([setting(group, "AllowedCPUs=0"), setting(group, "AllowedCPUs=1")])
    assert unit.properties == {"AllowedCPUs": "1"}


@given(st.text())
def test_any_output_of_systemctl_is_read_or_refused(text: str) -> None:
    parse_shown(text)
    try:
        span = parse_span(text)
    except ParseError:
        return
    assert span is None or span >= 0


@pytest.mark.parametrize(
    ("text", "span"),
    [("100ms", 100_000), ("1.5s", 1_500_000), ("500us", 500), ("1min 40s", 100_000_000), ("1h", 3_600_000_000)],
)
def test_spans_of_time_are_read_as_systemd_prints_them(text: str, span: int) -> None:
    assert parse_span(text) == span


def test_the_systemd_of_the_host_is_found_from_a_pod_whose_first_process_is_pinfold(tmp_path: Path) -> None:
    (tmp_path / "proc/1").mkdir(parents=True)
    (tmp_path / "proc/1/comm").write_text("pinfold\n")
    assert not systemd.runs(tmp_path)
    (tmp_path / "run/systemd/system").mkdir(parents=True)
    assert systemd.runs(tmp_path)
