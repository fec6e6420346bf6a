"""What members of the socket's group may ask for on the control socket; root and the daemon's user may do everything.

Members may read everything, and run, adopt and delete processes of their own. They may not apply pods: those run as the
daemon's user, which is usually root.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pinfold.core.pods.pod import PodUID
from pinfold.manager.sources.workloads import WorkloadKind
from pinfold.node.procfs import PROC
from pinfold.serve.http.messages import HTTPError

if TYPE_CHECKING:
    from pinfold.manager.sources.supervisor import Supervisor
    from pinfold.manager.sources.workloads import Workload
    from pinfold.serve.http.messages import Request

_MAY: Final = "members of the socket's group may read, and run, adopt and delete processes of their own"


def check_member(request: Request, supervisor: Supervisor | None) -> None:
    """Raise unless a member of the socket's group may ask for this."""
    workloads = {} if supervisor is None else supervisor.workbook.workloads
    found: Workload | None = None
    match request.method, list(request.segments):
        case ("GET", _) | ("POST", ["v1", ("run" | "adopt")]):
            return
        case "POST", ["v1", "run", uid, "attach"]:
            found = workloads.get(PodUID(uid))
        case "DELETE", ["v1", "pods", namespace, name]:
            names = (namespace, name)
            found = next((one for one in workloads.values() if (one.pod.namespace, one.pod.name) == names), None)
    if found is None or supervisor is None or _owner(found, supervisor) != request.peer.uid:
        raise HTTPError(403, "Forbidden", f"{_MAY}; ask root for this")


def _owner(workload: Workload, supervisor: Supervisor) -> int | None:
    """Return the user who asked for a workload, or the one of its process; None for a pod of `apply`."""
    if workload.kind not in {WorkloadKind.RUN, WorkloadKind.ADOPTED}:
        return None
    if workload.client is not None:
        return workload.client
    mains = (supervisor.launcher.mains.get(ref) for ref in workload.refs)
    return next((PROC.owner(main.pid) for main in mains if main is not None), None)
