"""UIDs for pods that come without one."""

from __future__ import annotations

import subprocess
import sys
from uuid import UUID, uuid5

from hypothesis import given
from hypothesis import strategies as st

from pinfold.formats.pods.madeuid import made_uid


@given(st.uuids(), st.text(st.characters(exclude_categories=["Cs"])))
def test_a_uid_is_that_of_uuid5(space: UUID, name: str) -> None:
    assert made_uid(str(space), name) == str(uuid5(space, name))


def test_openssl_is_not_loaded_for_a_uid() -> None:
    code = (
        "import sys; from pinfold.formats.pods.manifest import parse_pods\n"
        'parse_pods(\'{"kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": [{"name": "c"}]}}\')\n'
        "print('_hashlib' in sys.modules, 'pinfold.formats.pods.madeuid' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True"]
