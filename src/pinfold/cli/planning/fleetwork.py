"""The workers for the shards of a fleet: this process, several on this machine, or a Dask cluster.

All give the same results in the same order; only the time differs.
"""

from __future__ import annotations

import multiprocessing
import re
import signal
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

from pinfold.errors import PinfoldError, excerpt
from pinfold.planning.shard import run_shard

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pinfold.planning.shard import ShardResult, ShardTask

    Work = Callable[[Sequence[ShardTask]], Iterator[ShardResult]]

_CONNECT_SECONDS: Final = 10
_ADDRESS: Final = re.compile(r"(?:(?:tcp|tls|ws|wss|ucx)://)?(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.%]+\]):[0-9]{1,5}")
_EXPECTED: Final = "an address such as tcp://HOST:8786 is expected"


class WorkFailed(PinfoldError):  # noqa: N818 - the fact, as the others in this family
    """A worker failed or cannot be reached."""


@contextmanager
def workers(jobs: int, dask: str | None) -> Iterator[Work]:
    """Provide the workers: with *dask* the cluster at that address, else so many processes."""
    if dask is not None:
        with _dask(dask) as work:
            yield work
    elif jobs > 1:
        with _processes(jobs) as work:
            yield work
    else:
        yield lambda tasks: map(run_shard, tasks)


@contextmanager
def _processes(jobs: int) -> Iterator[Work]:
    others = set(multiprocessing.active_children())
    # Spawned, not forked: the same everywhere, and nothing of this process is in them.
    pool = ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn"), initializer=_leave_interrupts_to_the_parent)
    try:
        yield lambda tasks: pool.map(run_shard, tasks)
    except BrokenProcessPool as error:
        raise WorkFailed("a working process has ended before its work was done (out of memory?)") from error
    except KeyboardInterrupt:
        # Do not wait for the shards in progress.
        for child in set(multiprocessing.active_children()) - others:
            child.terminate()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def _leave_interrupts_to_the_parent() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)


@contextmanager
def _dask(address: str) -> Iterator[Work]:
    try:
        distributed = import_module("distributed")  # optional, slow to import, and without types
    except ImportError as error:
        raise WorkFailed("--dask needs the package distributed: pip install 'pinfold[dask]'") from error
    # Dask would retry an invalid address for half a minute.
    if not _ADDRESS.fullmatch(address):
        raise WorkFailed(f"--dask {excerpt(address)}: {_EXPECTED}")
    try:
        client = distributed.Client(address, timeout=_CONNECT_SECONDS, set_as_default=False)
    except (OSError, ValueError, TypeError) as error:
        problem = str(error).partition("\n")[0]
        raise WorkFailed(f"--dask {address}: {problem}; {_EXPECTED}") from error
    with client:
        try:
            client.wait_for_workers(1, timeout=_CONNECT_SECONDS)
        except (OSError, TimeoutError) as error:
            raise WorkFailed(f"--dask {address}: the cluster has no workers") from error
        _check_workers(client, address)
        yield lambda tasks: _gather(client, address, tasks)


def _check_workers(client: Any, address: str) -> None:  # noqa: ANN401 - a Client
    """Raise unless all workers have this pinfold: without it Dask's workers exit, and we would wait for ever."""
    ask = partial(client.run, on_error="return")
    ours = _version()
    versions = ask(version, "pinfold")
    for worker, found in ask(find_spec, "pinfold.planning.shard").items():
        if found is None or isinstance(found, Exception):
            raise WorkFailed(f"--dask {address}: pinfold is not installed on worker {worker}")
        if ours is not None and versions.get(worker) != ours:
            raise WorkFailed(
                f"--dask {address}: worker {worker} has pinfold {versions.get(worker)}, and this is {ours}"
            )


def _version() -> str | None:
    """Return the version that is installed here; None if pinfold runs without having been installed."""
    try:
        return version("pinfold")
    except PackageNotFoundError:
        return None


def _gather(client: Any, address: str, tasks: Sequence[ShardTask]) -> Iterator[ShardResult]:  # noqa: ANN401 - a Client
    futures = [client.submit(run_shard, task, pure=False) for task in tasks]
    for future in futures:
        try:
            yield future.result()
        except Exception as error:
            # Every failure of a worker arrives here: it ran out of memory, or was killed.
            problem = f"{type(error).__name__}: {error}".partition("\n")[0]
            raise WorkFailed(f"--dask {address}: a worker failed with {problem}") from error
