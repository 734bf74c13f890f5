"""Loose objects: many at once, each durable, without waiting for one disk flush after another."""

from __future__ import annotations

import os
import zlib
from collections.abc import Mapping

from gitmem import host
from gitmem.store.objects import ObjectType, Oid
from gitmem.store.pack import loose_path

UNFINISHED = "tmp_obj_gitmem_"
"""What a killed write leaves in the `objects` folder."""
_LEVEL = 1


def write(objects: str, new: Mapping[Oid, tuple[ObjectType, bytes]]) -> None:
    """Write objects that have no file yet, on disk when this returns."""
    files: dict[str, bytes] = {}
    for oid, (kind, data) in new.items():
        path = loose_path(objects, oid)
        if not os.path.exists(path):
            files[path] = zlib.compress(b"%s %d\0" % (kind.encode(), len(data)) + data, _LEVEL)
    host.write_all_durable(files, f"{objects}/{UNFINISHED}")
