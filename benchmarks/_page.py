"""Writes docs/reference/benchmarks.md and its plots from figures measured now.

    python -m benchmarks._page [--small]

Runs `decide`, `plan`, `cli`, `fleet`, `admissions`, `nri` and `ready`, each in a process of its own, about 15 minutes
on a quiet machine; `--small` leaves out the fleet of 100,000 nodes.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from benchmarks._plot import Series, duration, plot
from benchmarks.decide import Scenario, fastest
from pinfold.benefit.host import conditions
from pinfold.core.pods.pod import PodUID

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

DOCS: Final = Path(__file__).parents[1] / "docs"
_SIZES: Final = (16, 64, 128, 256, 512)
_CONTAINERS: Final = (1, 10, 50, 100, 200, 400)
_TABLE: Final = (
    "default/cpus=64/half/req=2",
    "default/cpus=512/half/req=8",
    "full-pcpus-only/cpus=512/half/req=8",
    "distribute/numa=8/cpus=512/half/req=48",
    "uncore/cpus=128/half/req=8",
    "uncore/cpus=512/half/req=32",
    "hints/numa=4/cpus=64/half/req=8",
    "hints/numa=8/cpus=512/empty/req=8",
    "merge/best-effort/numa=8/providers=3",
    "admit/restricted/numa=2/cpus=128/req=8",
    "admit/restricted/numa=4/cpus=512/req=8",
    "admit/restricted/numa=8/cpus=512/req=8",
)


def figures(name: str, *options: str) -> list[dict[str, Any]]:
    """Return what a benchmark prints with --json."""
    print(f"measuring: {name}", file=sys.stderr, flush=True)
    command = [sys.executable, "-m", "benchmarks", name, "--json", *options]
    found = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=False).stdout)
    rows: list[dict[str, Any]] = found["figures"] if isinstance(found, dict) else found
    return rows


def beside_others() -> list[tuple[float, float]]:
    """Return the ns of an admission and its release beside so many containers, on 512 CPUs."""
    scenario = Scenario("default/cpus=512/empty/req=1")
    state, found = scenario.state, []
    for number in range(1, _CONTAINERS[-1] + 1):
        pod = scenario.pod
        other = type(pod)(PodUID(f"pod-{number}"), f"pod-{number}", containers=pod.containers)
        state = scenario.policy.admit(state, other, scenario.container).state
        if number in _CONTAINERS:
            scenario.state = state
            found.append((float(number), fastest(scenario.pair())))
    return found


def by_size(decided: Mapping[str, dict[str, Any]], kind: str, rest: str) -> tuple[Series, Series]:
    """Return our line and the reference's over the sizes of machines."""
    rows = [(size, decided.get(f"{kind}/cpus={size}/{rest}")) for size in _SIZES]
    known = [(float(size), row) for size, row in rows if row is not None]
    return (
        Series(f"pinfold, {kind}", [(size, row["ns"]) for size, row in known]),
        Series(f"kubelet, {kind}", [(size, row["reference_ns"]) for size, row in known]),
    )


def page(
    where: Sequence[str], decided: Mapping[str, dict[str, Any]], others: Mapping[str, Sequence[dict[str, Any]]]
) -> Iterator[str]:
    """Yield the lines of the page; *where* says when it was measured, on what, and how busy that was before."""
    yield "<!-- Written by: make bench -->\n"
    yield "# Benchmarks\n"
    yield "`make bench` measures everything here and writes this page; `python -m benchmarks` prints all figures.\n"
    yield from (f"- {line}." for line in where)
    yield f"- {len(os.sched_getaffinity(0))} CPUs, Python {platform.python_version()}; one core for all but the fleet."
    yield "- The kubelet's figures (benchmarks/reference.json) were recorded earlier, with the same scenarios in Go,"
    yield "  and not in this run. Compare orders of magnitude, not percents.\n"
    yield "## Decisions\n"
    yield "An admission and the release of the same container, on a machine of which every second core is taken.\n"
    yield "![Time of a decision by the number of CPUs](../images/bench-decide.svg)\n"
    yield "| scenario | pinfold | kubelet | times faster |\n|---|---:|---:|---:|"
    for name in _TABLE:
        row = decided[name]
        yield f"| `{name}` | {duration(row['ns'])} | {duration(row['reference_ns'])} | {row['ratio']:,.0f} |"
    yield "\nOne more container beside so many others, on 512 CPUs:\n"
    yield "![Time of a decision by the number of containers](../images/bench-containers.svg)\n"
    yield "## Plans\n"
    yield "Containers planned a second, on one core, in CPU time. `fill`: until the machine is full; `churn`: pods"
    yield "also leave; `orders`: random orders of coming and going.\n"
    yield "| plan | containers a second |\n|---|---:|"
    yield from (f"| `{row['name']}` | {row['per_second']:,.0f} |" for row in others["plan"] if "per_second" in row)
    yield "\n## Fleets\n"
    yield "Under both schedulers, on all cores, with start and reading of the files.\n"
    yield "| nodes | containers | seconds | seconds of CPU | largest process |\n|---:|---:|---:|---:|---:|"
    for row in others["fleet"]:
        sizes = f"{row['nodes']:,} | {row['containers']:,} | {row['seconds']:.1f} | {row['cpu_seconds']:.1f}"
        yield f"| {sizes} | {row['largest_process_mib']:.0f} MiB |"
    yield "\n## Commands\n"
    yield "CPU time of the process that a user starts. The first row is Python's own start: no command can take less.\n"
    yield "| command | milliseconds |\n|---|---:|"
    yield from (f"| `{row['name'].removeprefix('cli/')}` | {row['cpu_ms']:.0f} |" for row in others["cli"])
    yield from daemon(others)


def daemon(others: Mapping[str, Sequence[dict[str, Any]]]) -> Iterator[str]:
    """Yield the lines about a running daemon."""
    yield "\n## Admissions\n"
    yield "Milliseconds that admissions take the daemon: decided, on the disk, applied, read back."
    yield "The floor are the writes to disk and cgroups of one alone, one after the other, measured in turns with it."
    yield "`beside` is one more pod after 150 others."
    yield "With `fsync +10 ms` each fsync takes that much longer, as on many disks of the cloud.\n"
    yield "| what | floor | one | times the floor | beside | three in turn | fifty at once |"
    yield "|---|---:|---:|---:|---:|---:|---:|"
    for row in others["admissions"]:
        one = f"{row['floor']:.1f} | {row['one']:.1f} | {row['one'] / row['floor']:.2f} | {row['beside']:.1f}"
        yield f"| {row['kind']} | {one} | {row['in_turn']:.1f} | {row['at_once']:.1f} |"
    yield "\nMilliseconds that clients wait, also for HTTP and reading the pods: one that asks once or three times,"
    yield "fifty clients at once, and one that sends fifty pods in one file."
    yield "CPU: the daemon's for each of fifty clients, with the starts of their containers.\n"
    yield "| what | one | three in turn | fifty at once | fifty in one file | CPU of each |"
    yield "|---|---:|---:|---:|---:|---:|"
    for row in others["admissions"]:
        in_file = "" if row["in_file"] is None else f"{row['in_file']:.1f}"
        many = f"{row['answered_in_turn']:.1f} | {row['answered_at_once']:.1f} | {in_file} | {row['cpu']:.2f}"
        yield f"| {row['kind']} | {row['answered']:.1f} | {many} |"
    yield "\n## Answers over NRI\n"
    yield "Milliseconds until the plugin has answered CreateContainer, beside so many containers that share."
    yield "`own`: it gets CPUs of its own, so all others are moved off, and that is read back, before the answer."
    yield "The floor are the system calls for that, and one durable save; plain: the same on cgroup v1 if the flag is"
    yield "not cleared that makes the kernel work out its scheduling domains at each write."
    yield "CPU: from creation to removal. The others are in 10 pods, unless the name says otherwise.\n"
    yield "| what | p50 | p99 | CPU | floor | plain |\n|---|---:|---:|---:|---:|---:|"
    for row in others["nri"]:
        floor, plain = (f"{row[name]:.2f}" if name in row else "" for name in ("floor_ms", "plain_ms"))
        yield f"| {row['name']} | {row['p50_ms']:.2f} | {row['p99_ms']:.2f} | {row['cpu_ms']:.2f} | {floor} | {plain} |"
    yield "\n## Start, checks and rest\n"
    yield "After kill -9, beside so many containers: milliseconds until ready, and of CPU time until then."
    yield "Then the CPU milliseconds of a periodic check, and the part of a core that the daemon takes at rest.\n"
    yield "| containers | ready | CPU until then | a check | the longest | at rest |\n|---|---:|---:|---:|---:|---:|"
    for row in others["ready"]:
        start = f"{row['ready_ms']:.0f} | {row['cpu_ms']:.0f}"
        rest = f"{row['check_ms']:.1f} | {row['worst_ms']:.1f} | {row['rest_percent']:.3f} %"
        yield f"| {row['kind']}, {row['beside']:,} | {start} | {rest} |"


def main(arguments: Sequence[str]) -> int:
    """Measure, then write the page and its plots."""
    start, where = time.monotonic(), conditions()
    decided = {row["name"]: row for row in figures("decide")}
    fleet = figures("fleet", "--times", "1" if "--small" in arguments else "1,20")
    others = {
        "plan": figures("plan", "--only", "/"),
        "cli": figures("cli"),
        "fleet": fleet,
        "admissions": figures("admissions"),
        "nri": figures("nri", "--creates", "0"),
        "ready": figures("ready"),
    }
    sizes = [*by_size(decided, "default", "half/req=2"), *by_size(decided, "uncore", "half/req=8")]
    pictures = {
        "bench-decide.svg": plot("One decision, half-filled machine", "CPUs of the machine", sizes),
        "bench-containers.svg": plot(
            "One decision beside other containers", "containers on the node", [Series("pinfold", beside_others())]
        ),
    }
    for name, text in pictures.items():
        (DOCS / "images" / name).write_text(text, encoding="utf-8")
    (DOCS / "reference/benchmarks.md").write_text("\n".join(page(where, decided, others)) + "\n", encoding="utf-8")
    print(f"written: docs/reference/benchmarks.md and its plots, in {time.monotonic() - start:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
