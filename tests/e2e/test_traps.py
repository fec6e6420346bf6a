"""Traps of runtimes and of the kernel: each is shown to exist, and pinfold is shown to avoid it.

The third, systemd taking cpusets back that were written behind its back, is shown in a guest that systemd manages
(guest/systemd.py). A sixth, of cgroup v2, is shown in the guest too (guest/pods.py).
"""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Self

import pytest

from pinfold.errors import PinfoldError
from pinfold.formats.wire import nrimux, ttrpc
from pinfold.formats.wire.nrimux import Connection, format_frames
from pinfold.formats.wire.ttrpc import MessageKind, format_message
from pinfold.node import cgroupfiles
from pinfold.node.cgroupfiles import CgroupError
from pinfold.proto import nri_pb2 as nri
from pinfold.proto import ttrpc_pb2 as envelope
from tests.e2e.containerd import Ask, Containerd, allowed
from tests.e2e.daemon import ONLINE, RESERVED, SPARE, needs_two_cpus
from tests.e2e.kubedaemon import KubeDaemon
from tests.e2e.nrirelay import Relay
from tests.needs import needs_lab

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.slow, needs_lab, needs_two_cpus]

OWN = ONLINE - RESERVED
ALL = Ask(milli=SPARE * 1000)
TRIES = 40
HANG = 15.0
"""Seconds after which a call that takes a tenth of a second is taken for hung."""


@pytest.fixture(scope="module", params=["trixie", "sid"])
def containerd(request: pytest.FixtureRequest) -> Iterator[Containerd]:
    with Containerd(request.param) as found:
        yield found


@pytest.fixture
def relay(containerd: Containerd) -> Iterator[Relay]:
    with Relay(containerd.run / "relay.sock", containerd.nri_socket) as found:
        yield found
    (containerd.run / "relay.sock").unlink()


@pytest.fixture
def node(containerd: Containerd, relay: Relay) -> Iterator[KubeDaemon]:
    assert relay.called == []
    with KubeDaemon(containerd, "nri", "--nri-socket", str(containerd.run / "relay.sock")) as daemon:
        daemon.start()
        try:
            yield daemon
        finally:
            containerd.remove_all()


# -- 1: an update while a container is being started is lost


async def started_and_updated(containerd: Containerd, container: str, cpus: str) -> int:
    """Start a container and at the same time have CRI change its CPUs; return its process."""

    async def update() -> None:
        with suppress(PinfoldError):  # the kernel refuses what leaves its parent's CPUs
            await containerd.update_async(container, cpuset_cpus=cpus)

    pid, _ = await asyncio.gather(containerd.start_async(container), update())
    return pid


def lost_updates(containerd: Containerd, tries: int) -> Iterator[bool]:
    """Yield for each of so many containers whether an update of its CPUs was accepted and then lost."""
    pod = containerd.run_pod("bare")
    for number in range(tries):
        container = containerd.create(pod, Ask(f"c{number}", 500))
        pid = containerd.wait(started_and_updated(containerd, container, str(RESERVED)))
        yield allowed(pid) != RESERVED
        containerd.wait(containerd.remove_container_async(container))


def test_an_update_during_a_start_is_lost_without_care(containerd: Containerd) -> None:
    try:
        assert any(lost_updates(containerd, TRIES)), f"in none of {TRIES} attempts"
    finally:
        containerd.remove_all()


def test_an_update_during_a_start_moves_no_owner(containerd: Containerd, node: KubeDaemon) -> None:
    pod = containerd.run_pod("db")
    for attempt in range(TRIES // 2):
        container = containerd.create(pod, ALL._replace(attempt=attempt))
        pid = containerd.wait(started_and_updated(containerd, container, str(RESERVED)))
        assert allowed(pid) == OWN
        node.check()
        containerd.wait(containerd.remove_container_async(container))


def test_a_container_that_starts_while_an_owner_comes_is_never_on_its_cpus(
    containerd: Containerd, node: KubeDaemon
) -> None:
    webs = [containerd.run_pod(f"web-{qos}", qos) for qos in ("burstable", "guaranteed")]

    async def together(number: int) -> None:
        db = await containerd.run_pod_async(f"db-{number}")
        shared = [await containerd.create_async(web, Ask(f"c{number}", 500)) for web in webs]
        starts = asyncio.gather(*map(containerd.start_async, shared))
        (_, owner), pids = await asyncio.gather(containerd.run_container_async(db, ALL), starts)
        assert allowed(owner) == OWN
        assert [allowed(found) for found in pids] == [RESERVED] * len(pids)
        await containerd.remove_pod_async(db)

    for number in range(TRIES // 4):
        containerd.wait(together(number))
        node.settled()


# -- 2: an unsolicited UpdateContainers can hang the runtime for good


class Bare:
    """A plugin that asks for nothing, and changes containers whenever it likes."""

    def __init__(self, path: Path) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.connect(str(path))
        self._sending = threading.Lock()
        self._stream = 1
        self.registered = threading.Event()
        self._reader = threading.Thread(target=self._read, daemon=True)

    def __enter__(self) -> Self:
        self._reader.start()
        self._call("RegisterPlugin", nri.RegisterPluginRequest(plugin_name="bare", plugin_idx="20").SerializeToString())
        assert self.registered.wait(HANG)
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._reader.join()

    def update(self, container: str, cpus: str) -> None:
        """Ask for other CPUs of a container, unasked."""
        change = nri.ContainerUpdate(container_id=container, ignore_failure=True)
        change.linux.resources.cpu.cpus = cpus
        # A list of updates as field 1 is all that UpdateContainersRequest is.
        self._call("UpdateContainers", nri.UpdateContainerResponse(update=[change]).SerializeToString())

    def _call(self, method: str, payload: bytes) -> None:
        request = envelope.Request(service="nri.pkg.api.v1alpha1.Runtime", method=method, payload=payload)
        with self._sending:
            stream, self._stream = self._stream, self._stream + 2
            message = ttrpc.Message(stream, MessageKind.REQUEST, request.SerializeToString())
            self._socket.sendall(format_frames(Connection.RUNTIME, format_message(message)))

    def _read(self) -> None:
        messages = nrimux.Messages()
        with suppress(OSError):
            while data := self._socket.recv(1 << 16):
                for connection, message in messages.feed(data):
                    if connection is Connection.PLUGIN:
                        self._answer(message)

    def _answer(self, message: ttrpc.Message) -> None:
        method = envelope.Request.FromString(message.body).method
        answer = nri.ConfigureResponse(events=1 << nri.CREATE_CONTAINER - 1) if method == "Configure" else nri.Empty()
        response = envelope.Response(payload=answer.SerializeToString())
        answered = ttrpc.Message(message.stream, MessageKind.RESPONSE, response.SerializeToString())
        with self._sending:
            self._socket.sendall(format_frames(Connection.PLUGIN, format_message(answered)))
        if method == "Synchronize":
            self.registered.set()


@pytest.mark.parametrize("suite", ["trixie", "sid"])
def test_unsolicited_updates_hang_the_runtime(suite: str) -> None:
    with Containerd(suite) as own:  # it is of no use afterwards
        pod = own.run_pod("web", "burstable")
        known = own.run_container(pod, Ask("known", 100))[0]
        with Bare(own.nri_socket) as bare:
            over = threading.Event()

            def update() -> None:
                with suppress(OSError):
                    while not over.wait(0.005):
                        bare.update(known, str(RESERVED))

            updater = threading.Thread(target=update, daemon=True)
            updater.start()
            try:
                assert any(_hangs(own, pod, number) for number in range(200)), "200 creations beside updates went well"
            finally:
                over.set()
                updater.join()


def _hangs(containerd: Containerd, pod: object, number: int) -> bool:
    async def create() -> bool:
        try:
            async with asyncio.timeout(HANG):
                await containerd.create_async(pod, Ask(f"c{number}", 100))  # type: ignore[arg-type]  # a pod
        except TimeoutError:
            return True
        return False

    return bool(containerd.wait(create()))


def test_we_never_call_the_runtime_unasked_and_nothing_hangs(
    containerd: Containerd, node: KubeDaemon, relay: Relay
) -> None:
    pod = containerd.run_pod("web", "burstable")
    known = containerd.run_container(pod, Ask("known", 100))[0]

    async def update() -> None:
        for quota in range(60):
            await containerd.update_async(known, cpu_quota=10_000 + 100 * quota)

    async def create(first: int) -> None:
        for number in range(first, first + 10):
            container, _ = await containerd.run_container_async(pod, Ask(f"c{number}", 100))
            await containerd.remove_container_async(container)

    async def own() -> None:
        for number in range(5):
            db = await containerd.run_pod_async(f"db-{number}")
            await containerd.run_container_async(db, ALL)
            await containerd.remove_pod_async(db)

    async def together() -> None:
        await asyncio.gather(update(), own(), *(create(first) for first in range(0, 40, 10)))

    containerd.wait(together())
    node.settled()
    assert relay.called == ["RegisterPlugin"]
    assert relay.longest <= 4096
    assert len(relay.times("CreateContainer")) >= 46
    assert {found.code for found in relay.answered} == {0}


# -- 4: Python hides the kernel's refusal of what it has buffered


def test_an_error_of_a_buffered_write_is_not_swallowed(containerd: Containerd) -> None:
    pod = containerd.run_pod("bare")
    file = containerd.group(pod) / "cpuset.cpus"
    before = file.read_text()
    try:
        subprocess.run([sys.executable, "-c", f"open({str(file)!r}, 'w').write('4095')"], check=True)
        assert file.read_text() == before, "it was not even refused"
        with pytest.raises(CgroupError, match="4095"):
            cgroupfiles.write_once(file, "4095")
    finally:
        containerd.remove_all()
