"""UIDs for pods that come without one: of UUID version 5, as `uuid.uuid5` makes them.

`uuid5` loads OpenSSL for its one hash, and that is 3.8 MB of memory of a daemon; Python has SHA-1 of its own too.
"""

from __future__ import annotations

from typing import Final

try:
    from _sha1 import sha1  # type: ignore[import-not-found]  # CPython has it unless it was built without
except ImportError:  # pragma: no cover
    from hashlib import sha1

_SIZE: Final = 16


def made_uid(space: str, name: str) -> str:
    """Return the UID of *name* in a *space*, which is a UUID itself; the same for the same name.

    >>> made_uid("6ba7b810-9dad-11d1-80b4-00c04fd430c8", "python.org")
    '886313e1-3b8a-5372-9b90-0c9aee199e5d'
    """
    text = bytes.fromhex(space.replace("-", "")) + name.encode()
    digest = bytearray(sha1(text).digest()[:_SIZE])  # noqa: S324 - a name, no secret
    digest[6] = digest[6] & 0x0F | 0x50  # the version
    digest[8] = digest[8] & 0x3F | 0x80  # the variant
    made = digest.hex()
    return "-".join((made[:8], made[8:12], made[12:16], made[16:20], made[20:]))
