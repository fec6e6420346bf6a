"""Pages and pictures that come from the code are current; `make docs` checks that too.

Slow, so that branches which change the command line at the same time do not wait for each other; CI runs them.
"""

from __future__ import annotations

import sys

import pytest

from tests.unit.tools.tool import run

pytestmark = pytest.mark.slow


@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="argparse of other versions breaks lines in other places")
def test_the_reference_pages_are_current() -> None:
    done = run("reference", "--check")
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_pictures_are_current() -> None:
    done = run("pictures", "--check")
    assert done.returncode == 0, done.stdout + done.stderr
