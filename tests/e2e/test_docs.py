"""The commands of the pages, in blocks marked `<!-- run -->`, are run in the order of each page, and succeed.

One shell runs a page, in a directory with the examples of the checkout. Its daemon has a socket, a state directory and
a group of its own.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import uuid
from contextlib import suppress
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).resolve().parents[2]
PAGES: Final = [page for page in sorted(ROOT.glob("docs/**/*.md")) if "<!-- run -->" in page.read_text()]
PATIENCE: Final = 120
_BLOCK: Final = re.compile(r"<!-- run -->\n```sh\n(.*?)```", re.DOTALL)
_BEFORE: Final = """\
set -eu
pinfold() {{
    if [ "$1" = serve ]; then
        shift
        {python} -m pinfold serve --settings none --groups affinity --group-name {name} --listen none \
            --state-dir "$WORK/state" "$@" >"$WORK/ready" 2>"$WORK/log"
    elif [ "$1" = doctor ]; then
        {python} -m pinfold "$@" || [ $? = 1 ]
    else
        {python} -m pinfold "$@"
    fi
}}
"""
_AFTER_SERVE: Final = 'for _ in $(seq 300); do [ -s "$WORK/ready" ] && break; sleep 0.1; done'


def script(page: Path) -> str:
    """Return what the blocks of a page do; a daemon that they start is ready before the next line."""
    text = "\n".join(_BLOCK.findall(page.read_text()))
    return text.replace("pinfold serve &\n", f"pinfold serve &\n{_AFTER_SERVE}\n")


@pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(ROOT / "docs")) for page in PAGES])
def test_the_commands_of_a_page_work(page: Path, tmp_path: Path) -> None:
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    name = f"pinfold-docs-{uuid.uuid4().hex[:8]}"
    before = _BEFORE.format(python=sys.executable, name=name)
    environment = {**os.environ, "WORK": str(tmp_path), "PINFOLD_SOCKET": str(tmp_path / "s.sock"), "NO_COLOR": "1"}
    process = subprocess.Popen(
        ["bash", "-c", before + script(page)],
        cwd=tmp_path,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        out, _ = process.communicate(timeout=PATIENCE)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    log = tmp_path / "log"
    assert process.returncode == 0, out + (log.read_text() if log.exists() else "")


def test_the_tutorials_are_run() -> None:
    names = {page.name for page in PAGES}
    assert {"first-process.md", "plan-a-node.md", "latency.md"} <= names
