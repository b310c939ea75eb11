"""What the Python interface hands back: a graph, and a finished figure with what was captured for it."""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from neural_flow import graph_json, records
from neural_flow.drawing import ExportOptions, Picture, Scene
from neural_flow.export._base import render_bytes, write_picture
from neural_flow.options import Options
from neural_flow.page_fit import fit_page
from neural_flow.records import Capture, Measurements

if TYPE_CHECKING:
    import networkx as nx

MAX_OPENED_STAGES = 400
MAX_NAMES = 12


class Topology:
    """Stages and what flows between them, as ``nf.trace`` returns it."""

    def __init__(self, record: records.Topology) -> None:
        self.record = record

    @property
    def stages(self) -> tuple[records.Stage, ...]:
        """All stages in execution order."""
        return self.record.stages

    @property
    def edges(self) -> tuple[records.Edge, ...]:
        """All direct edges."""
        return self.record.edges

    def to_json(self) -> dict[str, Any]:
        """Return the graph as plain data (the JSON contract)."""
        return graph_json.topology_to_json(self.record)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Topology:
        """Return the topology that ``to_json`` wrote.

        Raises:
            ModelLoadError: the data is no graph of this schema.
        """
        return cls(graph_json.topology_from_json(data))

    def to_networkx(self) -> nx.DiGraph[str]:
        """Return a DiGraph whose nodes and edges carry the fields of the JSON contract."""
        # imported here and not above: rendering starts without networkx
        return importlib.import_module("neural_flow.graph_networkx").to_networkx(self.to_json())

    def __repr__(self) -> str:
        return f"<Topology {self.record.model.name}: {len(self.stages)} stages, {len(self.edges)} edges>"


class Drawing:
    """A finished figure: save it, look at it in a notebook, read its graph and captured values."""

    def __init__(self, picture: Picture, options: Options) -> None:
        self.picture = picture
        self._options = options

    @property
    def topology(self) -> Topology:
        """The graph behind the figure."""
        return Topology(self.picture.topology)

    @property
    def capture(self) -> CaptureView:
        """Captured summaries and statistics: ``drawing.capture["encoder.0", 0]``."""
        return CaptureView(self.picture)

    def save(self, file: str | Path) -> Path:
        """Write the figure; the suffix picks the format.

        Raises:
            UnknownNameError: no exporter has this suffix.
            ExportError: the file cannot be written; nothing half-written is left.
        """
        write_picture(self._picture_for(Path(file).suffix), Path(file), self.export_options)
        return Path(file)

    def to_bytes(self, suffix: str) -> bytes:
        """Return the figure as the bytes of a file with this suffix (``.svg``)."""
        return render_bytes(self._picture_for(suffix), suffix, self.export_options)

    def _picture_for(self, suffix: str) -> Picture:
        """Return what a format shows: HTML has a page with every repeat too, if that was asked for."""
        found = self.picture
        asked, topology = self._options, found.topology
        if suffix.lower() != ".html" or not asked.opened or not found.scenes:
            return found
        if all(fold.kind == "interval" for fold in topology.folds) or len(topology.stages) > MAX_OPENED_STAGES:
            return found
        intervals = tuple(fold for fold in topology.folds if fold.kind == "interval" and fold.parent_id is None)
        opened = make_scene(dataclasses.replace(topology, folds=intervals), found.capture, found.measurements, asked)
        return dataclasses.replace(found, scenes=(*found.scenes, opened))

    @property
    def export_options(self) -> ExportOptions:
        """What the exporters are asked for."""
        asked = self._options
        return ExportOptions(
            dpi=asked.dpi, has_text_as_paths=asked.text_as_paths, has_stats=asked.stats, font_file=asked.font
        )

    def _repr_svg_(self) -> str:
        return self.to_bytes(".svg").decode()

    def __repr__(self) -> str:
        return f"<Drawing {self.picture.topology.model.name}: {len(self.picture.topology.stages)} stages>"


class CaptureView:
    """What was captured, by (module path, call index)."""

    def __init__(self, picture: Picture) -> None:
        self.record = picture.capture
        self._ids = {
            (stage.path if stage.kind == "module" else stage.name, stage.call_index): stage.stage_id
            for stage in picture.topology.stages
        }

    def __getitem__(self, key: str | tuple[str, int]) -> records.Summary:
        place = key if isinstance(key, tuple) else (key, 0)
        summary = self.record.summaries.get(self._id_of(place))
        if summary is None:
            raise KeyError(f"{place}: this stage has no picture")
        if not summary.facts.get("is_drawn", True):
            raise KeyError(f"{place}: another card stands for this one; draw it, by fold=False, to get its picture")
        return summary

    def __contains__(self, key: str | tuple[str, int]) -> bool:
        summary = self.record.summaries.get(self._ids.get(key if isinstance(key, tuple) else (key, 0), -1))
        return summary is not None and bool(summary.facts.get("is_drawn", True))

    def stats(self, path: str, call_index: int = 0) -> records.TensorStats:
        """Return the statistics of one stage over its whole output."""
        found = self.record.stats.get(self._id_of((path, call_index)))
        if found is None:
            raise KeyError(f"{(path, call_index)}: no statistics were taken of this stage")
        return found

    def _id_of(self, place: tuple[str, int]) -> int:
        if place not in self._ids:
            known = ", ".join(str(found) for found in [*self._ids][:MAX_NAMES]) + ", ..." * (len(self._ids) > MAX_NAMES)
            raise KeyError(f"{place}: no stage is called so; there are {known}")
        return self._ids[place]


def make_scene(
    topology: records.Topology, capture: Capture, measurements: tuple[Measurements, ...], asked: Options
) -> Scene:
    """Return one figure of a topology, laid out as asked."""
    asked.tell("layout")
    scene = fit_page(topology, capture, measurements, asked).scene
    asked.tell("drawing")
    return scene
