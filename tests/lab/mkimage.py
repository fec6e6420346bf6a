"""Writes an OCI image that `ctr images import` takes: one layer with a static busybox, which by default sleeps.

    python3 mkimage.py OUT.tar REFERENCE BUSYBOX

Pods use it for their containers and for their sandboxes. The same busybox gives the same bytes.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import platform
import sys
import tarfile
from pathlib import Path
from typing import Final

_DIRECTORIES: Final = ("bin", "dev", "etc", "proc", "sys", "tmp", "root", "var", "run")
_APPLETS: Final = ("sh", "sleep")
_ARCHITECTURES: Final = {"x86_64": "amd64", "aarch64": "arm64"}


def add(archive: tarfile.TarFile, name: str, data: bytes) -> None:
    """Add a file to an archive."""
    info = tarfile.TarInfo(name)
    info.size = len(data)
    info.mode = 0o755
    archive.addfile(info, io.BytesIO(data))


def layer(busybox: bytes) -> bytes:
    """Return a root file system as a tar: directories, busybox and links to it."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name in _DIRECTORIES:
            directory = tarfile.TarInfo(name)
            directory.type, directory.mode = tarfile.DIRTYPE, 0o1777 if name == "tmp" else 0o755
            archive.addfile(directory)
        add(archive, "bin/busybox", busybox)
        for name in _APPLETS:
            link = tarfile.TarInfo(f"bin/{name}")
            link.type, link.linkname = tarfile.SYMTYPE, "busybox"
            archive.addfile(link)
    return buffer.getvalue()


def digest(data: bytes) -> str:
    """Return the hexadecimal SHA-256 of *data*."""
    return hashlib.sha256(data).hexdigest()


def describe(kind: str, data: bytes, **more: object) -> dict[str, object]:
    """Return an OCI descriptor of *data*."""
    media = f"application/vnd.oci.image.{kind}"
    return {"mediaType": media, "digest": f"sha256:{digest(data)}", "size": len(data), **more}


def write_image(path: Path, reference: str, busybox: bytes) -> None:
    """Write the image named *reference*."""
    plain = layer(busybox)
    packed = gzip.compress(plain, 6, mtime=0)
    target = {"architecture": _ARCHITECTURES.get(platform.machine(), platform.machine()), "os": "linux"}
    config = as_json(
        **target,
        created="2025-01-01T00:00:00Z",
        config={"Cmd": ["/bin/sleep", "2147483647"], "Env": ["PATH=/bin"], "WorkingDir": "/"},
        rootfs={"type": "layers", "diff_ids": [f"sha256:{digest(plain)}"]},
    )
    manifest = as_json(
        schemaVersion=2,
        mediaType="application/vnd.oci.image.manifest.v1+json",
        config=describe("config.v1+json", config),
        layers=[describe("layer.v1.tar+gzip", packed)],
    )
    # containerd names the imported image after io.containerd.image.name.
    names = {"io.containerd.image.name": reference, "org.opencontainers.image.ref.name": reference.rpartition(":")[2]}
    entry = describe("manifest.v1+json", manifest, annotations=names, platform=target)
    with tarfile.open(path, "w") as archive:
        add(archive, "oci-layout", as_json(imageLayoutVersion="1.0.0"))
        add(archive, "index.json", as_json(schemaVersion=2, manifests=[entry]))
        for blob in (config, manifest, packed):
            add(archive, f"blobs/sha256/{digest(blob)}", blob)


def as_json(**fields: object) -> bytes:
    """Return the fields as a JSON object."""
    return json.dumps(fields).encode()


if __name__ == "__main__":
    write_image(Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3]).read_bytes())
