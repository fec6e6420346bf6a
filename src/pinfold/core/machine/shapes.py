"""The shapes of the regular ones among the built-in machines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

SHAPES: Final[Mapping[str, str]] = {
    "laptop-4": "sockets:1,l3:1,cores:2,threads:2",
    "xeon-2s-64": "sockets:2,numa:1,l3:1,cores:16,threads:2",
    "xeon-8490h-2s": "sockets:2,l3:1,numa:2,cores:30,threads:2",
    "xeon-8490h-2s-snc4": "sockets:2,l3:1,numa:4,cores:15,threads:2",
    "epyc-7303-2s": "sockets:2,numa:1,l3:4,cores:4,threads:2",
    "epyc-7303-2s-nosmt": "sockets:2,numa:1,l3:4,cores:4,threads:1",
    "epyc-7702p": "sockets:1,numa:1,l3:16,cores:4,threads:2",
    "epyc-7702p-nosmt": "sockets:1,numa:1,l3:16,cores:4,threads:1",
    "epyc-9754": "sockets:1,numa:1,l3:16,cores:8,threads:2",
    "epyc-9654-2s": "sockets:2,numa:1,l3:12,cores:8,threads:2",
    "epyc-9654-2s-nps2": "sockets:2,numa:2,l3:6,cores:8,threads:2",
    "epyc-9654-2s-nps4": "sockets:2,numa:4,l3:3,cores:8,threads:2",
    "epyc-9654-2s-nosmt": "sockets:2,numa:1,l3:12,cores:8,threads:1",
    "epyc-9654-2s-nps2-nosmt": "sockets:2,numa:2,l3:6,cores:8,threads:1",
    "epyc-9654-2s-nps4-nosmt": "sockets:2,numa:4,l3:3,cores:8,threads:1",
    "altra-128": "sockets:1,numa:1,l3:16,cores:8,threads:1",
    "graviton3": "sockets:1,numa:1,l3:1,cores:64,threads:1",
}
