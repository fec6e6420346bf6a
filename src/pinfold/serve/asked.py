"""What a request to the control socket asks for: the fields of its JSON body, each checked, or an HTTPError."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from pinfold.core.localmemory import LOCAL_MEMORY
from pinfold.errors import excerpt
from pinfold.formats.pods.spec import is_subdomain
from pinfold.manager.nearby import NEAR
from pinfold.serve.http.messages import HTTPError

if TYPE_CHECKING:
    from pinfold.serve.http.messages import Request

_MOST: Final = 65_536_000
_LONGEST: Final = 63
_MOST_FILES: Final = 1000


def read_body(request: Request) -> dict[str, object]:
    """Return the body, a JSON object."""
    try:
        body = json.loads(request.body)
    except (ValueError, RecursionError) as error:
        raise HTTPError(400, "BadRequest", f"the body is not JSON: {error}") from error
    if not isinstance(body, dict):
        raise HTTPError(400, "BadRequest", "the body is not a JSON object")
    return body


def read_files(body: dict[str, object]) -> list[dict[str, object]]:
    """Return the files of a body, each with source and text."""
    files = body.get("files")
    if not isinstance(files, list) or not files or not all(isinstance(file, dict) for file in files):
        raise HTTPError(400, "BadRequest", "files: expected a list of objects with source and text")
    if len(files) > _MOST_FILES:
        raise HTTPError(400, "BadRequest", f"files: {len(files):,} in one request; at most {_MOST_FILES:,} are read")
    return files


def read_text(body: dict[str, object], name: str) -> str:
    """Return the text in a field."""
    value = body.get(name)
    if not isinstance(value, str):
        raise HTTPError(400, "BadRequest", f"{name}: expected text")
    return value


def read_name(body: dict[str, object]) -> str:
    """Return the name of a pod."""
    name = read_text(body, "name")
    if len(name) > _LONGEST or not is_subdomain(name):
        allowed = f"allowed: a-z, 0-9 and between them - and ., up to {_LONGEST} of them"
        raise HTTPError(400, "BadRequest", f"name: {excerpt(name)} is not a valid name; {allowed}")
    return name


def read_wishes(body: dict[str, object]) -> dict[str, str]:
    """Return what a client asks for beside CPUs, as annotations."""
    near, local = body.get("near", []), body.get("local_memory", False)
    if not isinstance(near, list) or not all(isinstance(name, str) for name in near):
        raise HTTPError(400, "BadRequest", "near: expected a list of names of devices")
    if not isinstance(local, bool):
        raise HTTPError(400, "BadRequest", "local_memory: expected true or false")
    return ({NEAR: ",".join(near)} if near else {}) | ({LOCAL_MEMORY: "true"} if local else {})


def read_milli(body: dict[str, object]) -> int:
    """Return the CPUs asked for, in thousandths: whole ones if they are to be exclusive."""
    milli, shared = body.get("milli"), body.get("shared", False)
    if not isinstance(shared, bool):
        raise HTTPError(400, "BadRequest", "shared: expected true or false")
    if not isinstance(milli, int) or isinstance(milli, bool) or not 0 <= milli <= _MOST:
        raise HTTPError(
            400, "BadRequest", f"milli: more than {_MOST // 1000:,} CPUs, or not a whole number of milli CPUs"
        )
    if not shared and (milli % 1000 or not milli):
        raise HTTPError(
            400, "BadRequest", f"milli: {milli} is not a whole number of CPUs; exclusive CPUs are whole, 1 or more"
        )
    return milli


def read_count(body: dict[str, object]) -> int:
    """Return the number of CPUs asked for."""
    count = body.get("cpus")
    if not isinstance(count, int) or isinstance(count, bool) or not 1 <= count <= _MOST // 1000:
        raise HTTPError(400, "BadRequest", f"cpus: expected a whole number of CPUs from 1 to {_MOST // 1000}")
    return count


def read_pid(body: dict[str, object]) -> int:
    """Return the number of a process."""
    pid = body.get("pid")
    if not isinstance(pid, int) or isinstance(pid, bool) or not 1 < pid < 1 << 22:
        init = "; process 1 starts all others and cannot be adopted" if pid == 1 else ""
        raise HTTPError(400, "BadRequest", f"pid: expected the number of a process, 2 to {(1 << 22) - 1}{init}")
    return pid
