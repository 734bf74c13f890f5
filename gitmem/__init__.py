"""gitmem: a git-backed content repository for the long-term memory of AI personas.

with gitmem.Home.init("memory") as home:
    memory = home.add_persona("YM001/ZY001", timezone="Asia/Shanghai")
    leaf = memory.write("今天下雨了。")
    print(memory.trace(leaf.trace_path).content)
"""

from gitmem.errors import (
    ConflictError,
    CorruptError,
    GitmemError,
    NotFoundError,
    RefusedError,
    UnavailableError,
    UsageError,
)
from gitmem.home import Home, Persona
from gitmem.leaves import Retrieval
from gitmem.lists import Epoch, HistoryEntry, Page, TimelineEntry
from gitmem.memory import Memory
from gitmem.report import Place, Reach, Released, ReleaseReport
from gitmem.states import State
from gitmem.tracepath import PersonaName, TracePath
from gitmem.transaction import Leaf, Transaction, Turn

__version__ = "0.1.0"

__all__ = [
    "ConflictError",
    "CorruptError",
    "Epoch",
    "GitmemError",
    "HistoryEntry",
    "Home",
    "Leaf",
    "Memory",
    "NotFoundError",
    "Page",
    "Persona",
    "PersonaName",
    "Place",
    "Reach",
    "RefusedError",
    "ReleaseReport",
    "Released",
    "Retrieval",
    "State",
    "TimelineEntry",
    "TracePath",
    "Transaction",
    "Turn",
    "UnavailableError",
    "UsageError",
    "__version__",
]
