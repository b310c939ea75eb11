"""``neural-flow list``: the names in every registry."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from types import MappingProxyType

from neural_flow.errors import UnknownNameError
from neural_flow.export._base import EXPORTERS
from neural_flow.layout._base import LAYOUT_STYLES
from neural_flow.models.target import sample_names
from neural_flow.summaries._base import SUMMARIES
from neural_flow.theme import THEMES
from neural_flow.topology._base import TOPOLOGY_SOURCES

KINDS: MappingProxyType[str, Callable[[], Iterable[str]]] = MappingProxyType(
    {
        "summaries": SUMMARIES.names,
        "topologies": TOPOLOGY_SOURCES.names,
        "layouts": LAYOUT_STYLES.names,
        "exporters": EXPORTERS.names,
        "themes": lambda: sorted(THEMES),
        "samples": sample_names,
    }
)


def run_list(kind: str | None) -> int:
    """Write the names of one kind, one a line, or of all kinds, one kind a line.

    Raises:
        UnknownNameError: there is no such kind.
    """
    if kind is None:
        for name, names in KINDS.items():
            sys.stdout.write(f"{name}: {' '.join(names())}\n")
        return 0
    if kind not in KINDS:
        raise UnknownNameError("list", kind, KINDS)
    sys.stdout.write("".join(f"{name}\n" for name in KINDS[kind]()))
    return 0
