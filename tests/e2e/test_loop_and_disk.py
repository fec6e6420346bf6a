"""The thread of the event loop changes nothing on the disk once a daemon is ready: a disk that is slow or frozen would
keep everyone waiting. Python itself reports each call, so that none is forgotten.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from tests.e2e.daemon import Daemon, container, needs_two_cpus, pod, wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

# Runs before the daemon, and writes each change of the directory $KEPT by the main thread to the file $SEEN.
PROGRAM: Final = """
import os, sys, threading, traceback
kept, seen = os.environ["KEPT"], os.open(os.environ["SEEN"], os.O_WRONLY | os.O_APPEND)
changes = {"os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate", "os.chmod", "os.link", "shutil.rmtree"}
writing = os.O_WRONLY | os.O_RDWR | os.O_CREAT
def place(file):
    if isinstance(file, int):
        return os.readlink(f"/proc/self/fd/{file}")
    return os.path.abspath(os.fsdecode(file))
def hear(event, values):
    if event not in changes and not (event == "open" and values[2] & writing):
        return
    if threading.current_thread() is threading.main_thread() and place(values[0]).startswith(kept):
        os.write(seen, (event + " " + "".join(traceback.format_stack(limit=4)) + "\\n").encode())
sys.addaudithook(hear)
from pinfold.cli.main import main
sys.exit(main(sys.argv[1:]))
"""
MACHINES: Final = {
    "processes": ["--cpu-manager-reconcile-period", "1s"],
    "simulated": ["--runtime", "simulated", "--preset", "epyc-7303-2s", "--policy", "dynamic"],
}
PODS: Final = ("owner", "shared", "failing")

pytestmark = needs_two_cpus


@pytest.fixture(params=MACHINES)
def watched(request: pytest.FixtureRequest) -> Iterator[Daemon]:
    """A daemon that reports what its main thread changes on the disk."""
    with Daemon(*MACHINES[request.param]) as daemon:
        if request.param == "simulated":
            daemon.groups = []
        daemon.command = [daemon.user.python, "-c", PROGRAM]
        seen = daemon.place.directory / "seen"
        daemon.environment |= {"KEPT": str(daemon.state_dir), "SEEN": str(seen)}
        seen.touch()
        daemon.start("--notice-grace", "0s")
        assert "os.mkdir" in seen.read_text(), "what is changed before it is ready is seen"
        seen.write_text("")
        yield daemon


def test_the_event_loop_changes_nothing_on_the_disk(watched: Daemon) -> None:
    watched.apply(pod("owner", container(cpus=1)), pod("shared"), pod("failing", container("exit 1")))
    wait_for(lambda: len(watched.events("started")) >= len(PODS), "all containers have started")
    is_simulated = "simulated" in watched.options
    if is_simulated:  # with more CPUs than there may be here
        for count in (3, 2):
            assert watched.verb("resize", "owner/app", "--cpus", str(count)).returncode == 0
        assert len(list(watched.state_dir.glob("notices/*/generation"))) == 1
    else:
        wait_for(lambda: watched.events("ended"), "one has ended")
    for name in PODS:
        watched.delete(name)
    watched.flush()
    assert (watched.place.directory / "seen").read_text() == ""
