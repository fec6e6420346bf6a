"""Modules that a daemon leaves out: what it needs of them works, and they are loaded when more is asked for."""

from __future__ import annotations

import subprocess
import sys

START = "import sys; from pinfold.cli.leftout import leave_out; leave_out(); import asyncio, pathlib\n"
IS_REAL = "hasattr(sys.modules['inspect'], '__file__'), hasattr(sys.modules['urllib.parse'], '__file__')"


def printed(code: str) -> str:
    done = subprocess.run([sys.executable, "-I", "-c", START + code], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_asyncio_and_pathlib_do_without_them() -> None:
    code = (
        "import functools, signal\n"
        "async def work():\n"
        "    return asyncio.iscoroutinefunction(functools.partial(work, 1)), repr(asyncio.current_task())\n"
        "async def main():\n"
        "    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, print)\n"
        "    found, _ = await work()\n"
        "    print(found, asyncio.iscoroutinefunction(print), asyncio.iscoroutinefunction(lambda: 1))\n"
        f"asyncio.run(main()); print({IS_REAL})"
    )
    assert printed(code).split("\n") == ["True False False", "False False"]


def test_a_dataclass_without_a_docstring_needs_no_signature() -> None:
    code = (
        f"from dataclasses import dataclass\n@dataclass\nclass One:\n    a: int\nprint(One.__doc__, One(1), {IS_REAL})"
    )
    assert printed(code) == "One One(a=1) False False"


def test_they_are_loaded_when_more_is_asked_for() -> None:
    code = (
        "print(pathlib.Path('/a b').as_uri())\n"
        "from inspect import signature; import inspect; from urllib.parse import quote\n"
        f"print(signature(lambda one: 1), quote('a b'), {IS_REAL})"
    )
    assert printed(code).split("\n") == ["file:///a%20b", "(one) a%20b True True"]
