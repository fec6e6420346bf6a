"""Runs the commands of docs/tutorial/kubernetes-node.md on a host that systemd manages, and compares what they print.

    python -m tests.e2e.guest.walk

The package is unpacked here instead of installed: tests/e2e/test_debian.py installs it. There is no kubelet: for
`kubectl` a client of CRI makes and removes the pods of a manifest, as a kubelet would.
"""

from __future__ import annotations

import os
import re
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pinfold.errors import PinfoldError
from pinfold.formats.pods.manifest import parse_pods
from tests.e2e.containerd import Ask
from tests.e2e.guest.machine import prepare
from tests.e2e.guest.slices import SliceContainerd

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pinfold.core.pods.pod import Pod
    from tests.e2e.containerd import Containerd, PodOnNode

ROOT: Final = Path(__file__).parents[3]
PAGE: Final = ROOT / "docs/tutorial/kubernetes-node.md"
PACKAGE: Final = "PINFOLD_PACKAGE"
"""The variable that names the directory with the unpacked package."""
_BLOCK: Final = re.compile(r"^```(sh|text)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_SOCKETS: Final = {"/run/nri/nri.sock": "nri/nri.sock", "/run/containerd/containerd.sock": "containerd.sock"}


def main() -> int:
    """Return 0 if every command has succeeded and printed what the page says."""
    prepare()
    with SliceContainerd("sid") as containerd:
        Walk(containerd).run()
    return 0


class Walk:
    """Goes through the page."""

    def __init__(self, containerd: Containerd) -> None:
        self.containerd = containerd
        self.pods: dict[str, PodOnNode] = {}
        for usual, name in _SOCKETS.items():
            Path(usual).parent.mkdir(exist_ok=True)
            Path(usual).symlink_to(containerd.run / name)

    def run(self) -> None:
        """Run all commands, each block's output against the text that follows it."""
        printed = ""
        for kind, text in _BLOCK.findall(PAGE.read_text()):
            if kind == "sh":
                printed = "".join(map(self.do, commands(text)))
            else:
                missing = [line for line in text.splitlines() if squeezed(line) not in squeezed(printed)]
                assert not missing, (missing, printed)

    def do(self, command: str) -> str:
        """Run a command, print it with its output, and return its output."""
        began = time.monotonic()
        words = command.split()
        if words[0] == "kubectl":
            out = self.kubectl(words[1], ROOT / words[3])
        elif words[0] == "make":
            out = ""  # test_guest.py has built the package
        elif words[0] == "dpkg":
            out = shell(f"tar -C {os.environ[PACKAGE]} -c . | tar -C / -x --keep-directory-symlink")
        else:
            out = shell(command)
        print(f"$ {command}   ({time.monotonic() - began:.1f} s)\n{out}", end="", flush=True)  # noqa: T201 - progress
        return out

    def kubectl(self, verb: str, manifest: Path) -> str:
        """Make or remove the pods of a manifest."""
        for pod in parse_pods(manifest.read_text()).pods:
            if verb == "delete":
                self.containerd.remove_pod(self.pods.pop(pod.name))
            else:
                self.make(pod)
        return ""

    def make(self, pod: Pod) -> None:
        """Run a pod; a refused container is left out, as a kubelet tries it again later."""
        container = pod.containers[0]
        milli = container.resources.requests.cpu or 0
        is_guaranteed = container.resources.limits.cpu is not None
        qos = "guaranteed" if is_guaranteed else "burstable"
        made = self.pods[pod.name] = self.containerd.run_pod(pod.name, qos, milli=milli if is_guaranteed else 0)
        try:
            self.containerd.run_container(made, Ask(container.name, milli, quota=is_guaranteed))
        except PinfoldError as error:
            print(f"refused: {error}")  # noqa: T201 - progress


def commands(block: str) -> Iterator[str]:
    """Yield the commands of a block; a here-document belongs to its command."""
    lines = iter(block.splitlines())
    for line in lines:
        command = line
        if here := re.search(r"<<'(\w+)'$", line):
            for more in lines:
                command += f"\n{more}"
                if more == here[1]:
                    break
        yield command


def shell(command: str) -> str:
    """Run a command, which must succeed; return what it prints."""
    done = subprocess.run(["bash", "-euc", command], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, (command, done.stdout, done.stderr)
    return done.stdout


def squeezed(text: str) -> str:
    """Return the text with single spaces."""
    return re.sub(r"[ \t]+", " ", text).strip()


if __name__ == "__main__":
    raise SystemExit(main())
