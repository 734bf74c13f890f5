"""The proof of a purge, by a reader that shares nothing with the writer.

dulwich opens the store afresh and enumerates it: it neither keeps a purged pack mapped in memory
nor trusts what libgit2 believes to be there.
"""

from __future__ import annotations

from collections.abc import Collection

from dulwich.object_format import SHA1
from dulwich.object_store import DiskObjectStore
from dulwich.pack import Pack

from gitmem.errors import CorruptError
from gitmem.store.objects import Oid


def remaining(objects: str, doomed: Collection[Oid]) -> set[Oid]:
    """Which of `doomed` the store still holds, loose or in any pack; alternates are not part of it."""
    wanted = {oid.hex().encode(): oid for oid in doomed}
    store = DiskObjectStore(objects, alternates=())
    try:
        return {wanted[name] for name in store if name in wanted}
    finally:
        store.close()


def check_pack(base: str) -> int:
    """Read every object of a pack and compare it with its id; how many there are.

    Raises:
        CorruptError: one of them cannot be read, or is not what its id says.
    """
    pack = Pack(base, object_format=SHA1)
    try:
        pack.check_length_and_checksum()
        read = {name for name, _, _ in pack.data.iterentries()}
        if read != {name for name, _, _ in pack.index.iterentries()}:
            raise CorruptError(f"the pack {base}.pack does not hold what its index says.")
        return len(read)
    except CorruptError:
        raise
    except Exception as fault:
        raise CorruptError(f"the pack {base}.pack does not read back: {fault!r}.") from fault
    finally:
        pack.close()
