"""The proof of a purge, by a reader that shares nothing with the writer.

dulwich opens the store afresh and enumerates it: it neither keeps a purged pack mapped in memory
nor trusts what libgit2 believes to be there. It is imported when first needed: a command that
purges nothing need not wait for it.
"""

# ruff: noqa: PLC0415
from __future__ import annotations

from collections.abc import Collection

from gitmem.errors import CorruptError
from gitmem.store.objects import Oid


def remaining(objects: str, doomed: Collection[Oid]) -> set[Oid]:
    """Which of `doomed` the store still holds, loose or in any pack; alternates are not part of it."""
    from dulwich.object_store import DiskObjectStore
    from dulwich.objects import ObjectID

    wanted = set(doomed)
    store = DiskObjectStore(objects, alternates=())
    try:
        found = {oid for oid in wanted if store.contains_loose(ObjectID(oid.hex().encode()))}
        for pack in store.packs:
            # The raw ids: turning each of a hundred thousand into hexadecimal takes three times as long.
            found |= wanted.intersection(pack.index._itersha())
        return found
    finally:
        store.close()


def check_pack(base: str) -> int:
    """Read every object of a pack and compare it with its id; how many there are.

    Raises:
        CorruptError: one of them cannot be read, or is not what its id says.
    """
    from dulwich.object_format import SHA1
    from dulwich.pack import Pack

    pack = Pack(base, object_format=SHA1)
    try:
        pack.check_length_and_checksum()
        held = {name for name, _, _ in pack.data.iterentries()}
        listed = {name for name, _, _ in pack.index.iterentries()}
    except Exception as fault:
        raise CorruptError(f"the pack {base}.pack does not read back: {fault!r}.") from fault
    finally:
        pack.close()
    if held != listed:
        raise CorruptError(f"the pack {base}.pack does not hold what its index says.")
    return len(held)
