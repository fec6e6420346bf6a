"""What runtimes, kubelets, systemd, processes and clients of HTTP send, for the parsers of `tests.fuzz.parsers`.

A text stands for bytes: each byte that is not UTF-8 is one surrogate.
"""

from __future__ import annotations

import h11

from pinfold.core.pods.pod import ContainerRef, PodUID
from pinfold.formats.wire.criinfo import Info, parse_info
from pinfold.grpc.errors import CallError
from pinfold.kubernetes import podresources
from pinfold.kubernetes.pods import podsapi
from pinfold.node.podgroups.paths import parse_membership
from pinfold.node.podgroups.systemd import parse_shown, parse_span
from pinfold.node.processgroups.names import marks, read_marks
from pinfold.proto import cri_pb2 as cri
from pinfold.proto import podresources_pb2 as listed
from pinfold.proto import podsapi_pb2 as api
from pinfold.runtimes.cri import client
from pinfold.runtimes.cri.messages import container_of, pod_of, status_of
from pinfold.serve.http.incoming import parse_head
from pinfold.serve.http.limits import LOCAL
from pinfold.serve.http.messages import Peer

TREE = "pinfold"
ID = "0123456789abcdef" * 4
REQUEST = "POST /v1/pods?dry-run=1 HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}"
SHOWN = "Id=a.slice\nCPUQuotaPeriodUSec=1min 30s\nCPUQuotaPerSecUSec=1.5s\n\nId=b.slice\nCPUQuotaPerSecUSec=infinity\n"
MEMBERSHIP = "4:cpuset,cpu:/kubepods/pod1/abc\n0::/system.slice/containerd.service\n"


def as_text(data: bytes) -> str:
    """Return the text that stands for bytes."""
    return data.decode("utf-8", "surrogateescape")


def as_bytes(text: str) -> bytes:
    """Return the bytes that a text stands for; other surrogates stand for themselves."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")


def read_cri(text: str) -> None:
    """Read an answer of a runtime, as a list of pods, a list of containers and a status."""
    data, unread = as_bytes(text), None
    for kind in (cri.ListPodSandboxResponse, cri.ListContainersResponse, cri.ContainerStatusResponse):
        try:
            answer = client._decode("Any", data, kind)  # noqa: SLF001 - what every call does with its answer
        except CallError as error:
            unread = error
            continue
        match answer:
            case cri.ListPodSandboxResponse():
                list(map(pod_of, answer.items))
            case cri.ListContainersResponse():
                list(map(container_of, answer.containers))
            case cri.ContainerStatusResponse():
                status_of(answer.status, parse_info(answer.info["info"]) if "info" in answer.info else Info())
    if unread is not None:
        raise unread


def read_pod_resources(text: str) -> object:
    """Read the devices and memory that a kubelet lists."""
    return podresources._read(as_bytes(text))  # noqa: SLF001 - what the source does with its answer


def read_pods_api(text: str) -> object:
    """Read a pod that the kubelet's Pods API tells of."""
    return podsapi._change(podsapi._parse(api.Pod, as_bytes(text)), gone=False)  # noqa: SLF001 - the same


def read_request(text: str) -> None:
    """Read a request to an HTTP server, without its body."""
    wire = h11.Connection(h11.SERVER, max_incomplete_event_size=LOCAL.head)
    wire.receive_data(as_bytes(text))
    head = wire.next_event()
    if isinstance(head, h11.Request):
        parse_head(head, Peer(1, 0, 0), LOCAL)


def read_systemd(text: str) -> None:
    """Read what systemctl prints, with all values as spans of time."""
    for properties in parse_shown(text).values():
        for value in properties.values():
            parse_span(value)


def read_process(text: str) -> None:
    """Read what /proc says of a process: its environment, and its groups."""
    read_marks(TREE, as_bytes(text).split(b"\0"))
    for unified in (True, False):
        parse_membership(text, unified=unified)


def environment() -> str:
    """Return the environment of a process of ours."""
    pairs = marks(TREE, ContainerRef(PodUID("u1"), "app"), exclusive=True).items()
    return "\0".join(f"{name}={value}" for name, value in pairs)


def cri_answers() -> tuple[str, ...]:
    """Return good answers of a runtime."""
    labels = {f"io.kubernetes.pod.{name}": "web" for name in ("name", "namespace", "uid")}
    pod = cri.PodSandbox(id=ID, metadata=cri.PodSandboxMetadata(name="web", uid="u1"), labels=labels)
    one = cri.Container(id=ID, pod_sandbox_id=ID, metadata=cri.ContainerMetadata(name="app"), labels=labels)
    status = cri.ContainerStatusResponse(
        status=cri.ContainerStatus(id="c", metadata=cri.ContainerMetadata(name="app"), labels={"a": "b"}),
        info={"info": '{"pid":1,"runtimeSpec":{"linux":{"resources":{"cpu":{"cpus":"0"}}}}}'},
    )
    messages = cri.ListPodSandboxResponse(items=[pod]), cri.ListContainersResponse(containers=[one]), status
    return tuple(as_text(message.SerializeToString()) for message in messages)


def pod_resources() -> str:
    """Return what a kubelet lists of one pod."""
    near = listed.TopologyInfo(nodes=[listed.NUMANode(ID=1)])
    device = listed.ContainerDevices(resource_name="nvidia.com/gpu", device_ids=[ID], topology=near)
    memory = listed.ContainerMemory(memory_type="memory", size=1 << 30, topology=near)
    container = listed.ContainerResources(name="app", devices=[device], memory=[memory])
    pod = listed.PodResources(name="web", namespace="default", containers=[container])
    return as_text(listed.ListPodResourcesResponse(pod_resources=[pod]).SerializeToString())


def told_pod() -> str:
    """Return a pod of the kubelet's Pods API."""
    amounts = {"cpu": api.Quantity(string="2"), "memory": api.Quantity(string="1Gi")}
    resources = api.ResourceRequirements(limits=amounts, requests=amounts)
    spec = api.PodSpec(containers=[api.Container(name="app", resources=resources)])
    return as_text(api.Pod(metadata=api.ObjectMeta(name="web", uid="u1"), spec=spec).SerializeToString())
