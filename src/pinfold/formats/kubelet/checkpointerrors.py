"""Why a checkpoint cannot be used, in pinfold's words and, as `reference`, in the kubelet's.

The kubelet's words help to search the web. Where they quote Go's JSON parser, they quote ours instead.
"""

from __future__ import annotations

import re
from typing import Final

from pinfold.errors import ParseError, StateError, excerpt

KUBELET_FILE: Final = "/var/lib/kubelet/cpu_manager_state"
_REPAIR: Final = "move it away: `pinfold serve` rebuilds it from the running containers"
_ENTRIES_1: Final = (
    "json: cannot unmarshal string into Go struct field CPUManagerCheckpointV2.entries of type map[string]string"
)
_INTEGER: Final = re.compile(r"[+-]?[0-9]+")


class CheckpointError(StateError):
    """A checkpoint that cannot be used; *reference* is the kubelet's text for the same file."""

    def __init__(self, message: str, reference: str, advice: str = _REPAIR) -> None:
        super().__init__(f"{message}; {advice}")
        self.message = message
        """Without advice, which is another one for a kubelet's own file."""
        self.reference = (
            f"could not restore state from checkpoint: {reference}, please drain this node and delete the CPU manager "
            f'checkpoint file "{KUBELET_FILE}" before restarting Kubelet'
        )


class MalformedCheckpoint(CheckpointError):  # noqa: N818 - the fact, as the others in this family
    """A file that is not JSON, or has a value of the wrong type."""

    def __init__(self, problem: ParseError, before: str = "") -> None:
        super().__init__(f"the checkpoint cannot be read: {problem}", f"{before}{problem}")
        self.problem = problem


class CorruptCheckpoint(CheckpointError):  # noqa: N818 - the same
    """A file with a wrong checksum."""

    def __init__(self, field: str, written: int, found: int, before: str = "") -> None:
        super().__init__(
            f"the checkpoint was changed or cut after it was written: {field} is {written}, but the content has "
            f"{found}",
            f"{before}checkpoint is corrupted",
        )
        self.field = field
        self.written = written
        self.found = found


class CheckpointTooOld(CheckpointError):  # noqa: N818 - the same
    """A file of version 1: kubelets before 1.18 named containers by ID, without their pods."""

    def __init__(self, *, with_entries: bool) -> None:
        super().__init__(
            "the checkpoint is of version 1 (kubelet 1.17 or older), which does not name pods",
            _ENTRIES_1 if with_entries else "checkpoint is corrupted",
        )


class OtherPolicy(CheckpointError):  # noqa: N818 - the same
    """A file that was written under another policy than the one configured."""

    def __init__(self, configured: str, found: str) -> None:
        super().__init__(
            f"the checkpoint was written under {excerpt(found)}, but {excerpt(configured)} is configured",
            f"configured policy {quoted(configured)} differs from state checkpoint policy {quoted(found)}",
            "configure the previous policy, or move the file away",
        )
        self.configured = configured
        self.found = found


class UnreadableCPUs(CheckpointError):  # noqa: N818 - the same
    """A file with an invalid CPU set; *problem* says where."""

    def __init__(self, problem: ParseError, before: str) -> None:
        words = _go_words(problem.text or "") or problem.problem
        super().__init__(
            f"the checkpoint has CPUs that cannot be read: {problem}",
            f"{before}{words}",
        )
        self.problem = problem


def quoted(text: str) -> str:
    """Return *text* as Go's %q prints it."""
    plain = text.replace("\\", r"\\").replace('"', r"\"")
    if not plain.isprintable():
        plain = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in plain)
    return f'"{plain}"'


def _go_words(text: str) -> str:
    """Return Go's error for a list of CPUs; nothing if Go accepts it."""
    for part in text.split(","):
        numbers = part.split("-", 1)
        for number in numbers:
            if not _INTEGER.fullmatch(number):
                return f"strconv.Atoi: parsing {quoted(number)}: invalid syntax"
        if _magnitude(numbers[0]) > _magnitude(numbers[-1]):
            return f"invalid range {quoted(part)} ({numbers[0]} > {numbers[-1]})"
    return ""


def _magnitude(number: str) -> tuple[int, str]:
    digits = number.lstrip("+-0")
    return len(digits), digits
