"""Names of pods and containers as people write them: POD, pod/POD, NAMESPACE/POD, with -n and -c as in kubectl."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from pinfold.errors import ParseError, excerpt

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

_KINDS: Final = ("pod", "pods", "po")
_DEFAULT: Final = "default"


class PodArgument(NamedTuple):
    """A pod that was named."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return self.name if self.namespace == _DEFAULT else f"{self.namespace}/{self.name}"


def add_namespace(parser: argparse.ArgumentParser, default: str = _DEFAULT) -> None:
    """Add the option that names a namespace."""
    parser.add_argument("-n", "--namespace", metavar="NAME", help=f"where the pod is (default: {default})")


def pod_name(text: str, namespace: str | None) -> PodArgument:
    """Return the pod that is named by POD, pod/POD or NAMESPACE/POD.

    >>> print(pod_name("web", None), pod_name("pod/web", "prod"), pod_name("prod/web", None))
    web prod/web prod/web
    """
    before, slash, name = text.rpartition("/")
    if not name or "/" in before or (slash and not before):
        raise ParseError(f"{excerpt(text)} is not a pod; expected POD, pod/POD or NAMESPACE/POD")
    if before and before not in _KINDS:
        if namespace not in {None, before}:
            raise ParseError(f"{excerpt(text)} is not in namespace {namespace}")
        namespace = before
    return PodArgument(namespace or _DEFAULT, name)


def pod_names(texts: Sequence[str], namespace: str | None) -> list[PodArgument]:
    """Return the pods that are named, also if the word pod is before them.

    >>> print(*pod_names(["pod", "web", "prod/db"], None))
    web prod/db
    """
    named = texts[1:] if texts[1:] and texts[0] in _KINDS else texts
    return [pod_name(text, namespace) for text in named]


def container_name(text: str, namespace: str | None, container: str | None) -> str:
    """Return POD, POD/CONTAINER, NAMESPACE/POD or NAMESPACE/POD/CONTAINER, with what -n and -c say.

    >>> container_name("pod/web", "prod", "app"), container_name("web/app", None, None)
    ('prod/web/app', 'web/app')
    >>> container_name("web", "prod", None), container_name("prod/web", "prod", None)
    ('prod/web', 'prod/web')
    """
    parts = text.split("/")
    if parts[0] in _KINDS and parts[1:]:
        del parts[0]
    if container is not None:
        parts = [*parts[-1:], container]
    if namespace is not None and len(parts) <= 2 and (parts[0] != namespace or not parts[1:]):  # noqa: PLR2004 - POD/CONTAINER
        parts = [namespace, *parts]
    return "/".join(parts)
