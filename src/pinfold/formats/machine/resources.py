"""A file that says which devices, memory and hugepages a machine has, by NUMA node.

```yaml
numaNodes:
  0: {nvidia.com/gpu: 4, memory: 64Gi, hugepages-1Gi: 16Gi}
  1: {nvidia.com/gpu: 4, memory: 64Gi}
```
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from pinfold.core.pods.quantity import Quantity
from pinfold.errors import ParseError, excerpt
from pinfold.formats.documents import ValueRoom, parse_documents
from pinfold.formats.fields import Field, Problems
from pinfold.formats.number import Number

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

_NODE: Final = re.compile(r"[0-9]{1,5}")
_RESOURCE: Final = re.compile(r"memory|hugepages-[0-9]+[KMGT]i|[a-z0-9.-]{1,253}/[A-Za-z0-9._-]{1,63}")
_KNOWN: Final = "memory, hugepages-SIZE such as hugepages-1Gi, or DOMAIN/NAME such as nvidia.com/gpu"


def parse_resources(text: str, nodes: Collection[int], *, source: str = "") -> Mapping[int, Mapping[str, int]]:
    """Return the resources of each NUMA node of a machine that has these *nodes*; *source* names the file in errors.

    >>> parse_resources("numaNodes: {0: {nvidia.com/gpu: 2, memory: 1Ki}}", [0, 1])
    {0: {'nvidia.com/gpu': 2, 'memory': 1024}}
    >>> parse_resources("numaNodes: {2: {memory: 1Gi}}", [0, 1])
    Traceback (most recent call last):
    pinfold.formats.fields.DocumentError: document 1: numaNodes.2: the machine has no such NUMA node; it has 0, 1
    """
    problems = Problems()
    found: dict[int, dict[str, int]] = {}
    documents = [one for one in parse_documents(text, source=source, room=ValueRoom(100_000)) if one.value is not None]
    if len(documents) != 1:
        raise ParseError(f"expected one document with numaNodes, found {len(documents)}", where=source)
    top = Field(documents[0].value, problems, ": ".join(filter(None, (source, f"document {documents[0].number}"))))
    for name in top.names:
        if name != "numaNodes":
            top.child(name).refuse("unknown; a machine's resources are below numaNodes")
    rows = top.mapping("numaNodes")
    for name in rows.names:
        row = rows.child(name)
        if not _NODE.fullmatch(name) or int(name) not in nodes:
            row.refuse(f"the machine has no such NUMA node; it has {', '.join(map(str, sorted(nodes)))}")
        else:
            row = rows.mapping(name)
            found[int(name)] = {resource: _amount(row.child(resource), resource) for resource in row.names}
    problems.check()
    return found


def _amount(field: Field, resource: str) -> int:
    text = field.value.text if isinstance(field.value, Number) else field.value
    if not _RESOURCE.fullmatch(resource):
        field.refuse(f"{excerpt(resource)} is not a resource with NUMA nodes; these are {_KNOWN}")
    elif not isinstance(text, str):
        field.expected("an amount")
    else:
        try:
            return Quantity.parse(text).value
        except ParseError as error:
            field.refuse(f"{excerpt(text, error.at)} {error.problem}; an amount is 0 or more, e.g. 4 or 64Gi")
    return 0
