"""Large files of pods in pieces that a daemon reads at once: it takes 10,000 values in a request.

The files are read here, with all their problems, and sent as JSON, which a daemon reads ten times as fast as YAML.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from pinfold.formats.fields import parse_each
from pinfold.formats.pods.document import pod_document
from pinfold.formats.pods.manifest import SMALL, PodDocuments, parse_pods

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pinfold.cli.asking.client import Client

    File = dict[str, str]
    """Source, text and directory."""

_ROOM: Final = SMALL * 9 // 10
"""Values of a piece, counted by the signs around them."""
_PODS: Final = 250
_HEAD, _TAIL = '{"kind":"List","items":[', "]}"


def apply_in_pieces(client: Client, files: list[File]) -> dict[str, Any]:  # Any: JSON of the daemon
    """Have the pods of all files started, and return the answer; or raise all problems, and start none.

    If there are several pieces, the daemon checks all of them before it starts the first pod.
    """
    found = parse_each(_read, files)
    bodies = [*pieces(zip(files, found, strict=True))]
    for body in bodies if len(bodies) > 1 else []:
        client.post("/v1/pods?dry_run=true", body)
    answers = [client.post("/v1/pods", body) for body in bodies]
    return {
        "pods": [row for answer in answers for row in answer["pods"]],
        "ignored": [note for document in found for note in document.ignored],
        "warnings": [warning for document in found for warning in document.warnings],
    }


def pieces(files: Iterable[tuple[File, PodDocuments]]) -> Iterator[dict[str, object]]:
    """Yield the bodies of the requests: the pods of the files, in order, a few hundred in each."""
    piece: list[tuple[File, list[str]]] = []
    values = count = 0
    for file, found in files:
        for position, pod in enumerate(found.pods):
            text = json.dumps(pod_document(pod))
            size = sum(map(text.count, ",[{"))
            if count and (values + size > _ROOM or count == _PODS):
                yield _body(piece)
                piece, values, count = [], 0, 0
            if not position or not piece:
                piece.append((file, []))
            piece[-1][1].append(text)
            values, count = values + size, count + 1
    if count:
        yield _body(piece)


def _read(file: File) -> PodDocuments:
    return parse_pods(file["text"], source=file["source"], to_run=True)


def _body(piece: list[tuple[File, list[str]]]) -> dict[str, object]:
    return {"files": [file | {"text": f"{_HEAD}{','.join(texts)}{_TAIL}"} for file, texts in piece]}
