"""Pods in the JSON of the API server and the kubelet: decoded, matched with the runtime's pods, and read."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import TYPE_CHECKING

from pinfold.errors import ParseError
from pinfold.formats.number import Number
from pinfold.formats.pods.manifest import read_object
from pinfold.formats.pods.runtime import is_static, told_uid
from pinfold.kubernetes.pods.base import PodChange

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pinfold.core.pods.pod import Pod
    from pinfold.formats.pods.runtime import RuntimePod

    Item = Mapping[str, object]


def parse_object(data: bytes, source: str) -> Item:
    """Return the JSON object in *data*."""
    try:
        found = json.loads(data, parse_int=Number, parse_float=Number)
    except (ValueError, RecursionError) as error:
        raise ParseError("not JSON", where=source) from error
    if not isinstance(found, dict):
        raise ParseError("not a JSON object", where=source)
    return found


def items_of(listed: Item) -> list[Item]:
    """Return the objects of a list."""
    items = listed.get("items")
    return [item for item in items if isinstance(item, dict)] if isinstance(items, list) else []


def metadata_of(item: Item) -> Item:
    """Return the metadata of an object, empty if it has none."""
    metadata = item.get("metadata")
    return metadata if isinstance(metadata, dict) else {}


def find_in(items: Iterable[Item], pods: Iterable[RuntimePod], source: str) -> dict[str, Pod]:
    """Return those of *pods* that are among *items*, by their runtime's own ids."""
    by_key: dict[object, Item] = {}
    for item in items:
        metadata = metadata_of(item)
        by_key[metadata.get("uid")] = by_key[metadata.get("namespace"), metadata.get("name")] = item
    found = {}
    for pod in pods:
        # The API server has a static pod under another UID.
        listed = by_key.get(told_uid(pod)) or (by_key.get((pod.namespace, pod.name)) if is_static(pod) else None)
        if listed is not None and (known := read_object(listed, source=source)):
            found[pod.id] = known
    return found


def change_of(item: Item, *, gone: bool) -> PodChange:
    """Return a change; a pod that cannot be read counts as unknown: asked for it, its source says why."""
    known = None
    with suppress(ParseError):
        known = None if gone else read_object(item)
    return PodChange(str(metadata_of(item).get("uid", "")), known)
