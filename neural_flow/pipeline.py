"""The architecture in one screen: two passes over the model, then topology, diagram, layout, scene, file.

``render`` draws, ``trace`` stops at the topology, ``activations`` returns whole tensors.
"""

from __future__ import annotations

import dataclasses
import inspect
import warnings
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

import networkx as nx
import torch
from torch import nn

from neural_flow import graph_json, records
from neural_flow.capture.activations import capture_activations, run_capture_pass
from neural_flow.capture.metadata import run_metadata_pass
from neural_flow.diagram.build import build_diagram
from neural_flow.drawing import ExportOptions, LayoutOptions, Picture, Scene
from neural_flow.errors import CaptureSkippedWarning, ForwardError, SelectionError, UsageError
from neural_flow.export._base import render_bytes, write_picture
from neural_flow.layout.choose import lay_out
from neural_flow.records import Capture, Measurements, Request, Trace
from neural_flow.scene.build import build_scene
from neural_flow.scene.measure import measure_diagram
from neural_flow.scene.options import SceneOptions
from neural_flow.stages.select import select_stages
from neural_flow.theme import get_theme
from neural_flow.topology.resolve import resolve_topology

Progress = Callable[[str], None]
PAGE_WIDTHS = {"column": 252.0, "page": 516.0, "slide": 960.0}
UNITS = {"pt": 1.0, "mm": 72 / 25.4, "cm": 72 / 2.54, "in": 72.0, "px": 0.75}
POINTS_OF_DEFAULT_PAGE = (1067.0, 600.0)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Everything that ``render`` and ``trace`` take, named as on the command line.

    What is drawn: ``detail``, ``depth``, ``select``, ``exclude``, ``types``, ``max_stages``, ``fold``, ``expand``,
    ``collapse``. Where the edges come from: ``topology``, ``tracer``, ``fake``. What is captured: ``capture``,
    ``attention``, ``heads``, ``stats``, ``gradients``, ``saved``, ``color_by``, ``batch_dim``, ``sample``. How it
    looks: ``layout`` to ``text_as_paths``.
    """

    detail: Literal["auto", "block", "layer", "op"] = "auto"
    depth: int | None = None
    select: str | Iterable[str] = ()
    exclude: str | Iterable[str] = ()
    types: str | Iterable[str] = ()
    max_stages: int = 24
    fold: bool = True
    expand: str | Iterable[str] = ()
    collapse: str | Iterable[str] = ()
    topology: str = "auto"
    tracer: Literal["auto", "function", "dispatch"] = "auto"
    fake: bool = False
    capture: bool = True
    capture_device: str = "cpu"
    attention: bool = True
    heads: str | None = None
    stats: bool = True
    show_stats: bool = False
    gradients: bool = False
    saved: bool = False
    color_by: str | None = None
    loss: Callable[..., torch.Tensor] | None = None
    batch_dim: str | int = "auto"
    sample: int = 0
    train: bool = False
    seed: int | None = None
    autocast: bool = False
    strict: bool = False
    tokens: Iterable[str] | None = None
    class_labels: Iterable[str] | None = None
    layout: str = "auto"
    direction: Literal["auto", "lr", "tb"] = "auto"
    width: str | float | None = None
    theme: str = "light"
    transparent: bool = False
    cmap: str | None = None
    norm: Literal["channel", "stage", "global"] = "channel"
    dpi: int | None = None
    title: str | None = None
    legend: bool = True
    shapes: bool = True
    labels: Mapping[str, str] = dataclasses.field(default_factory=dict[str, str])
    highlight: str | Iterable[str] = ()
    font: str | None = None
    text_as_paths: bool = False
    model_name: str | None = None
    target: str = ""
    inputs: Iterable[str] = ()
    progress: Progress | None = None


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
        return _to_networkx(self.to_json())

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
        write_picture(self.picture, Path(file), self.export_options)
        return Path(file)

    def to_bytes(self, suffix: str) -> bytes:
        """Return the figure as the bytes of a file with this suffix (``.svg``)."""
        return render_bytes(self.picture, suffix, self.export_options)

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
        return self.record.summaries[self._ids[key if isinstance(key, tuple) else (key, 0)]]

    def __contains__(self, key: str | tuple[str, int]) -> bool:
        return self._ids.get(key if isinstance(key, tuple) else (key, 0)) in self.record.summaries

    def stats(self, path: str, call_index: int = 0) -> records.TensorStats:
        """Return the statistics of one stage over its whole output."""
        return self.record.stats[self._ids[path, call_index]]


def render(model: nn.Module, args: Any = (), kwargs: Mapping[str, Any] | None = None, **options: Any) -> Drawing:
    """Draw ``model`` as it runs on these inputs.

    Args:
        model: any module; it is left bit for bit as it was.
        args: a tuple of positional arguments; anything else is the one argument. Inputs are cloned.
        kwargs: keyword arguments of forward.
        options: fields of ``Options``.

    Raises:
        ForwardError: the model raised; ``error.drawing`` is the partial figure.
        SelectionError: nothing to draw, or ``strict`` refused a fallback or a missing picture.
        UsageError: an option is malformed.
    """
    asked = Options(**options)
    call = (as_arguments(args), dict(kwargs or {}))
    found, topology = _trace(model, *call, asked)
    captured = _capture(model, *call, found, topology, asked)
    measurements = tuple(_measure(model, *call, topology, asked))
    drawing = draw(topology, captured, measurements, asked)
    _raise_failure(topology.failure or captured.failure, drawing=drawing)
    return drawing


def trace(model: nn.Module, args: Any = (), kwargs: Mapping[str, Any] | None = None, **options: Any) -> Topology:
    """Find stages and edges without capturing anything: the metadata pass alone.

    Args and errors are those of ``render``; ``ForwardError.topology`` is the partial graph.
    """
    _, topology = _trace(model, as_arguments(args), dict(kwargs or {}), Options(**options))
    _raise_failure(topology.failure, topology=Topology(topology))
    return Topology(topology)


def activations(
    model: nn.Module, args: Any = (), kwargs: Mapping[str, Any] | None = None, **options: Any
) -> dict[tuple[str, int], torch.Tensor]:
    """Return the whole output tensor of each selected stage by (module path, call index), detached.

    Args and errors are those of ``render``; ``select`` names the modules.
    """
    asked = Options(**options)
    call = (as_arguments(args), dict(kwargs or {}))
    found, topology = _trace(model, *call, asked)
    _raise_failure(topology.failure, topology=Topology(topology))
    return capture_activations(model, *call, topology, trace=found, train=asked.train, seed=asked.seed)


def draw(
    topology: records.Topology,
    capture: Capture | None = None,
    measurements: tuple[Measurements, ...] = (),
    options: Options | None = None,
) -> Drawing:
    """Draw a topology that was found earlier, or read from a graph file: no model is needed."""
    asked = options or Options()
    captured = capture or Capture()
    scene = _scene(topology, captured, measurements, asked)
    picture = Picture(topology=topology, capture=captured, measurements=measurements, scenes=(scene,))
    return Drawing(picture, asked)


def _scene(
    topology: records.Topology, capture: Capture, measurements: tuple[Measurements, ...], asked: Options
) -> Scene:
    theme = get_theme(asked.theme)
    look = _scene_options(asked)
    _tell(asked, "layout")
    diagram = build_diagram(topology)
    sizes = measure_diagram(diagram, topology, capture, theme, look)
    layout = lay_out(diagram, sizes, layout_options(asked), asked.layout)
    _tell(asked, "drawing")
    return build_scene(topology, diagram, layout, capture, measurements, theme, look)


def _trace(
    model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], asked: Options
) -> tuple[Trace, records.Topology]:
    request = make_request(asked)
    _tell(asked, "metadata pass")
    found = run_metadata_pass(
        model,
        args,
        kwargs,
        train=asked.train,
        seed=asked.seed,
        tracer="function" if asked.tracer == "auto" else asked.tracer,
        fake=asked.fake,
        model_name=asked.model_name,
    )
    _tell(asked, "topology")
    selection = select_stages(found, request)
    topology = resolve_topology(found, selection, request, model, args, kwargs)
    if asked.strict and request.topology in ("auto", "dataflow") and topology.source != "dataflow":
        raise SelectionError(
            f"--strict refused the fallback to topology {topology.source!r}",
            hint="leave --strict out, or name the source: --topology " + topology.source,
        )
    return found, topology


def _capture(
    model: nn.Module,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    found: Trace,
    topology: records.Topology,
    asked: Options,
) -> Capture:
    if not asked.capture or asked.fake:
        return Capture()
    _tell(asked, "capture pass")
    captured = run_capture_pass(
        model,
        args,
        kwargs,
        topology,
        trace=found,
        train=asked.train,
        seed=asked.seed,
        capture_device=asked.capture_device,
        has_stats=asked.stats,
        has_attention=asked.attention,
        heads=asked.heads,
        batch_dim=asked.batch_dim,
        sample=asked.sample,
        norm=asked.norm,
        labels=None if asked.class_labels is None else tuple(asked.class_labels),
        tokens=None if asked.tokens is None else tuple(asked.tokens),
    )
    for stage_id, reason in captured.skipped.items():
        name = topology.stages[stage_id].name
        if asked.strict:
            raise SelectionError(f"--strict refused a missing picture: {name}: {reason}", hint="leave --strict out")
        warnings.warn(f"no picture of {name}: {reason}", CaptureSkippedWarning, stacklevel=3)
    return captured


def _measure(
    model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], topology: records.Topology, asked: Options
) -> Iterable[Measurements]:
    wanted = [asked.color_by] if asked.color_by and asked.color_by != "params" else []
    wanted += ["gradient"] * asked.gradients + ["saved"] * asked.saved
    for name in dict.fromkeys(wanted):
        _tell(asked, f"measuring {name}")
        yield from ()


def as_arguments(args: Any) -> tuple[Any, ...]:
    """Return positional arguments: a tuple as it is, anything else as the one argument."""
    return args if isinstance(args, tuple) and not hasattr(args, "_fields") else (args,)


def make_request(asked: Options) -> Request:
    """Return the part of the options that decides what is drawn, as the graph file stores it."""
    return Request(
        target=asked.target,
        detail=asked.detail,
        depth=asked.depth,
        select=_names(asked.select),
        exclude=_names(asked.exclude),
        types=_names(asked.types),
        max_stages=asked.max_stages,
        has_folds=asked.fold,
        expand=_names(asked.expand),
        collapse=_names(asked.collapse),
        topology=asked.topology,
        inputs=tuple(asked.inputs),
    )


def layout_options(asked: Options) -> LayoutOptions:
    """Return what the user asked of the layout; a width fixes the page."""
    if asked.width is None:
        width, height = POINTS_OF_DEFAULT_PAGE
        return LayoutOptions(direction=asked.direction, max_width=width, max_height=height)
    width = width_in_points(asked.width)
    return LayoutOptions(direction=asked.direction, max_width=width, max_height=width * 9 / 16, is_width_fixed=True)


def width_in_points(width: str | float) -> float:
    """Return a page width in points: a number, ``516pt``, ``180mm``, ``7in``, ``column``, ``page`` or ``slide``.

    Raises:
        UsageError: it is none of these.
    """
    if isinstance(width, int | float):
        return float(width)
    if width in PAGE_WIDTHS:
        return PAGE_WIDTHS[width]
    for unit, factor in UNITS.items():
        number = width.removesuffix(unit).strip()
        if number != width and number.replace(".", "", 1).isdigit() and float(number) > 0:
            return float(number) * factor
    raise UsageError(
        f"width {width!r} is no length", hint="write 516pt, 180mm, 7in, or one of: " + ", ".join(PAGE_WIDTHS)
    )


def _scene_options(asked: Options) -> SceneOptions:
    return SceneOptions(
        title=asked.title,
        has_legend=asked.legend,
        has_shapes=asked.shapes,
        has_stats=asked.show_stats,
        labels=tuple(sorted(asked.labels.items())),
        highlight=_names(asked.highlight),
        is_transparent=asked.transparent,
        cmap=asked.cmap,
        norm=asked.norm,
        color_by=asked.color_by,
        font_file=asked.font,
    )


def _names(value: str | Iterable[str]) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else tuple(value)


def _tell(asked: Options, phase: str) -> None:
    if asked.progress is not None:
        asked.progress(phase)


def _raise_failure(
    failure: records.Failure | None, *, topology: Topology | None = None, drawing: Drawing | None = None
) -> None:
    if failure is None:
        return
    shapes = tuple(f"{meta.dtype} {list(meta.shape)}" for meta in failure.inputs)
    error = ForwardError(
        f"the model raised while running {failure.module or 'the root module'} (call {failure.call})",
        hint=f"inputs were {', '.join(shapes) or 'none'}; try other input shapes with -i, or --debug for the traceback",
        module=failure.module,
        call=failure.call,
        input_shapes=shapes,
    )
    error.drawing = drawing
    error.topology = drawing.topology if drawing is not None else topology
    raise error from RuntimeError(f"{failure.type}: {failure.message}")


def _to_networkx(data: Mapping[str, Any]) -> nx.DiGraph[str]:
    graph: nx.DiGraph[str] = nx.DiGraph(**{key: data[key] for key in ("schema", "fingerprint", "model", "status")})
    for node in data["nodes"]:
        graph.add_node(node["id"], **{key: value for key, value in node.items() if key != "id"})
    for edge in data["edges"]:
        rest = {key: value for key, value in edge.items() if key not in ("source", "target")}
        graph.add_edge(edge["source"], edge["target"], **rest)
    return graph


def _with_options(function: Callable[..., Any]) -> None:
    """Give ``function`` the signature that its options really are, for help() and editors."""
    own = [found for found in inspect.signature(function).parameters.values() if found.name != "options"]
    more = [
        found.replace(kind=inspect.Parameter.KEYWORD_ONLY) for found in inspect.signature(Options).parameters.values()
    ]
    vars(function)["__signature__"] = inspect.Signature([*own, *more])


for _function in (render, trace, activations):
    _with_options(_function)
