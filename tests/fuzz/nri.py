"""Throws bytes at what reads NRI: the two codecs, and the dispatcher behind them.

    python -m tests.fuzz.nri --seconds 30     random changes of good conversations
    python -m tests.fuzz.nri --atheris ...    guided by coverage, if atheris is installed; libFuzzer's options follow

For any bytes, the codecs raise nothing but a ParseError and keep no more than one message, and the dispatcher gives
an answer that is no internal error.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import time
from typing import TYPE_CHECKING, Final

from pinfold.errors import ParseError
from pinfold.formats.wire import nrimux, ttrpc
from pinfold.formats.wire.nrimux import Connection, format_frames
from pinfold.formats.wire.ttrpc import MOST_MESSAGE, MessageKind, format_message
from pinfold.proto import nri_pb2 as nri
from pinfold.proto import ttrpc_pb2 as envelope
from pinfold.runtimes.nri.plugin import PluginIdentity
from pinfold.runtimes.nri.requests import SERVICE, Dispatcher

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from google.protobuf.message import Message

ALLOWED: Final = {0, 3, 8, 12}


class Quiet:
    """A handler that looks at everything it is given and changes nothing."""

    def synchronize(
        self, pods: Sequence[nri.PodSandbox], containers: Sequence[nri.Container]
    ) -> list[nri.ContainerUpdate]:
        return [nri.ContainerUpdate(container_id=container.id) for container in containers] if pods else []

    def create(
        self,
        pod: nri.PodSandbox,  # noqa: ARG002 - as a handler has it
        container: nri.Container,
    ) -> tuple[nri.ContainerAdjustment, list[nri.ContainerUpdate]]:
        made = nri.ContainerAdjustment()
        made.linux.resources.CopyFrom(container.linux.resources)
        return made, []

    def update(
        self, pod: nri.PodSandbox, container: nri.Container, wanted: nri.LinuxResources
    ) -> list[nri.ContainerUpdate]:
        made = nri.ContainerUpdate(container_id=f"{pod.id}{container.id}")
        made.linux.resources.CopyFrom(wanted)
        return [made]

    def stop(self, pod: nri.PodSandbox, container: nri.Container) -> list[nri.ContainerUpdate]:
        return [nri.ContainerUpdate(container_id=f"{pod.id}{container.id}")]

    async def start(self, pod: nri.PodSandbox, container: nri.Container) -> None:
        pod.SerializeToString() + container.SerializeToString()

    def post_start(self, pod: nri.PodSandbox, container: nri.Container) -> None:
        str(pod) + str(container)

    def remove(self, pod: nri.PodSandbox, container: nri.Container) -> None:
        repr(pod) + repr(container)

    def run_pod(self, pod: nri.PodSandbox) -> None:
        str(pod)

    def stop_pod(self, pod: nri.PodSandbox) -> None:
        str(pod)

    def remove_pod(self, pod: nri.PodSandbox) -> None:
        str(pod)


class Target:
    """What bytes are thrown at; stands for the plugin's end of a connection, again and again."""

    def __init__(self, runner: asyncio.Runner) -> None:
        self.runner = runner
        self.answers = 0

    def hit(self, data: bytes) -> None:
        """Take *data* as what came from a socket; its first byte says in pieces of which size."""
        size = data[0] + 1 if data else 1
        try:
            self._converse(data[1:], size)
        except ParseError as error:
            assert "\n" not in str(error)  # noqa: PT017 - an error is a way out as good as any
        self._answer(Dispatcher(Quiet(), PluginIdentity().mask, raise_error), data)

    def _converse(self, data: bytes, size: int) -> None:
        messages = nrimux.Messages()
        dispatcher = Dispatcher(Quiet(), PluginIdentity().mask, raise_error)
        for at in range(0, len(data), size):
            for _, message in messages.feed(data[at : at + size]):
                self._answer(dispatcher, message.body)
            assert messages.buffered < 8 + 3 * MOST_MESSAGE  # a frame, and a message of each connection

    def _answer(self, dispatcher: Dispatcher, body: bytes) -> None:
        response = envelope.Response.FromString(self.runner.run(dispatcher.answer(body)))
        assert response.status.code in ALLOWED, response.status
        self.answers += 1


def raise_error(method: str, error: Exception) -> None:
    raise AssertionError(method) from error


def seeds() -> list[bytes]:
    """Return a good conversation, and each of its requests alone."""
    pod = nri.PodSandbox(id="p", name="web", labels={"a": "b"}, linux=nri.LinuxPodSandbox(cgroup_parent="/kubepods/p"))
    container = nri.Container(id="c", pod_sandbox_id="p", name="main", labels=pod.labels, pid=7)
    container.linux.resources.cpu.shares.value = 2048
    container.linux.resources.cpu.cpus = "0-3"
    about = nri.ContainerRequest(pod=pod, container=container)
    sent: list[tuple[str, Message]] = [
        ("Configure", nri.ConfigureRequest(runtime_name="containerd", request_timeout=2000)),
        ("Synchronize", nri.SynchronizeRequest(pods=[pod], containers=[container], more=True)),
        ("Synchronize", nri.SynchronizeRequest(containers=[container])),
        ("CreateContainer", about),
        ("StateChange", nri.StateChangeEvent(event=nri.START_CONTAINER, pod=pod, container=container)),
        ("PostStartContainer", about),
        ("UpdateContainer", nri.UpdateContainerRequest(pod=pod, container=container)),
        ("StopContainer", about),
        ("Shutdown", nri.Empty()),
    ]
    bodies = [
        envelope.Request(service=SERVICE, method=method, payload=message.SerializeToString()).SerializeToString()
        for method, message in sent
    ]
    framed = [
        format_frames(Connection.PLUGIN, format_message(ttrpc.Message(1, MessageKind.REQUEST, body))) for body in bodies
    ]
    return [*bodies, *(b"\x20" + frame for frame in framed), b"\xff" + b"".join(framed)]


def mutations(chance: random.Random) -> Iterator[bytes]:
    """Yield the seeds with some bytes changed, cut out, doubled or put in, without end."""
    good = seeds()
    yield from good
    while True:
        data = bytearray(chance.choice(good))
        for _ in range(chance.randint(1, 8)):
            at = chance.randrange(len(data) + 1)
            end = min(len(data), at + chance.choice([0, 1, 1, 2, 4, 30]))
            middle = chance.choice([bytes(data[at:end]) * 2, chance.randbytes(chance.randint(0, 5)), b"\xff" * 4, b""])
            data[at:end] = middle
        yield bytes(data)


def main(arguments: list[str]) -> int:
    """Run until the time is over, or for as long as libFuzzer likes."""
    options = argparse.ArgumentParser(prog="tests.fuzz.nri", description="fuzz what reads NRI")
    options.add_argument("--seconds", type=float, default=30.0)
    options.add_argument("--seed", type=int, default=0, help="the same seed throws the same bytes")
    options.add_argument("--atheris", action="store_true", help="guided by coverage; further options are libFuzzer's")
    given, further = options.parse_known_args(arguments)
    with asyncio.Runner() as runner:
        target = Target(runner)
        if given.atheris:
            guided(target, further)
        print(throw(target, given.seconds, given.seed))  # noqa: T201 - the result
    return 0


def throw(target: Target, seconds: float, seed: int) -> str:
    """Throw changed conversations for a while, and return how many."""
    end = time.monotonic() + seconds
    thrown = 0
    for data in mutations(random.Random(seed)):  # noqa: S311 - repeatable, not secret
        target.hit(data)
        thrown += 1
        if time.monotonic() > end:
            break
    return f"{thrown:,} inputs, {target.answers:,} answers, nothing unexpected"


def guided(target: Target, options: list[str]) -> None:
    """Let atheris choose the bytes; does not return."""
    # Optional: a large package that few need.
    import atheris  # type: ignore[import-not-found,import-untyped,unused-ignore]

    atheris.instrument_all()
    atheris.Setup([sys.argv[0], *options], target.hit)
    atheris.Fuzz()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
