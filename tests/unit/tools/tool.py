"""Runs a program of tools/ as a user does."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

TOOLS = Path(__file__).parents[3] / "tools"


def run(name: str, *arguments: str | Path, text: str = "") -> subprocess.CompletedProcess[str]:
    """Return what a tool printed and its exit code; *text* is its input."""
    command = [sys.executable, TOOLS / name, *arguments]
    return subprocess.run(command, input=text, capture_output=True, text=True, timeout=60, check=False)
