"""What tests need of the machine: root, packages, CPUs.

A test whose need is not met is skipped. With $CI, or with PINFOLD_REQUIRE=all, it fails.
"""

from __future__ import annotations

import os
import shutil
from typing import Final, NoReturn

import pytest

IN_GUEST: Final = "SCRIPT" in os.environ
"""Whether this runs in a guest of the lab, where every instruction is emulated."""


def required() -> bool:
    """Return whether every need must be met here."""
    return bool(os.environ.get("CI")) or os.environ.get("PINFOLD_REQUIRE") == "all"


def lacking(what: str) -> NoReturn:
    """Skip the running test, which needs *what*; fail it where every need must be met."""
    if required():
        pytest.fail(f"needs {what}; with $CI or PINFOLD_REQUIRE=all that is a failure", pytrace=False)
    pytest.skip(f"needs {what}")


def needs(what: str, *, met: bool) -> pytest.MarkDecorator:
    """Return the mark of tests that need *what*; tests/conftest.py asks `lacking` for those whose need is not met."""
    return pytest.mark.needs(what, met)


needs_root: Final = needs("root", met=os.geteuid() == 0)
needs_lab: Final = needs(
    "root and Debian's apt (see tests/lab)", met=os.geteuid() == 0 and bool(shutil.which("apt-get"))
)
