"""Every record that passes hand to each other, in pipeline order.

Records are frozen. Sequences are tuples, ids are small ints, shapes are tuples, dtypes and devices are strings
(``float32``, ``cpu``). No tensor and no module is ever in a record: captured values are read-only numpy arrays.
What is drawn from them (diagram, geometry, marks) is in ``drawing.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod
from types import MappingProxyType
from typing import Any, Literal

import numpy as np

ValueRef = tuple[int, int]
"""One value of the dataflow: (op id, index among the outputs of that op)."""

OpRole = Literal["op", "input", "alias", "opaque", "unknown"]
StageKind = Literal["input", "module", "op", "probe", "output"]
EdgeKind = Literal["primary", "skip", "merge"]
FoldKind = Literal["serial", "parallel", "loop", "interval"]
Array = np.ndarray[Any, Any]

ITEM_NBYTES = MappingProxyType(
    {
        "bool": 1, "uint8": 1, "int8": 1, "qint8": 1, "quint8": 1, "float8_e4m3fn": 1, "float8_e5m2": 1,
        "float8_e4m3fnuz": 1, "float8_e5m2fnuz": 1, "float8_e8m0fnu": 1,
        "int16": 2, "uint16": 2, "float16": 2, "bfloat16": 2,
        "int32": 4, "uint32": 4, "float32": 4, "qint32": 4, "complex32": 4,
        "int64": 8, "uint64": 8, "float64": 8, "complex64": 8, "complex128": 16,
    }
)  # fmt: skip


# -- first pass ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorMeta:
    """What a tensor is, without its values."""

    shape: tuple[int, ...]
    dtype: str
    device: str = "cpu"
    requires_grad: bool = False
    placements: str | None = None
    layout: str = "strided"
    stored_numel: int | None = None
    """Number of stored elements where it is not the product of the shape (sparse, nested), else None."""

    @property
    def numel(self) -> int:
        """Number of elements."""
        return prod(self.shape) if self.stored_numel is None else self.stored_numel

    @property
    def nbytes(self) -> int:
        """Bytes of the elements."""
        return self.numel * ITEM_NBYTES.get(self.dtype, 4)


@dataclass(frozen=True, slots=True, kw_only=True)
class ParamInfo:
    """One distinct parameter: tied parameters are one record with several names."""

    param_id: int
    names: tuple[str, ...]
    shape: tuple[int, ...]
    dtype: str
    nbytes: int
    requires_grad: bool

    @property
    def numel(self) -> int:
        """Number of elements."""
        return prod(self.shape)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleInfo:
    """One module of the tree; numbers are over its whole subtree, each distinct parameter counted once."""

    path: str
    class_name: str
    qualified_name: str
    child_paths: tuple[str, ...] = ()
    own_param_ids: tuple[int, ...] = ()
    param_ids: tuple[int, ...] = ()
    num_params: int = 0
    num_trainable_params: int = 0
    param_nbytes: int = 0
    is_scripted: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleCall:
    """One run of a module's forward. Ids count calls in the order they were entered; the root call is 0.

    ``input_refs[k]`` are the values that input leaf k reads: several where writes to one buffer overlap it, none
    where it is a constant. ``first_op_id <= op_id < end_op_id`` holds for exactly the ops of this call's subtree.
    """

    call_id: int
    path: str
    call_index: int
    class_name: str
    parent_id: int | None
    inputs: tuple[TensorMeta, ...] = ()
    outputs: tuple[TensorMeta, ...] = ()
    input_refs: tuple[tuple[ValueRef, ...], ...] = ()
    output_refs: tuple[tuple[ValueRef, ...], ...] = ()
    first_op_id: int = 0
    end_op_id: int = 0
    has_returned: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class OpNode:
    """One intercepted torch function. ``call_id`` is the innermost module call that ran it, None outside all.

    Roles: ``input`` a model input leaf; ``alias`` a module that handed its input on unchanged, or a further piece of
    what the op before it took apart; ``opaque`` code that no tracer sees into; ``unknown`` a tensor whose origin nobody
    saw; ``op`` everything else. ``parents`` are read values; ``params`` the ids of parameters read directly.
    ``location`` is ``file:line`` of the user's code.
    """

    op_id: int
    target: str
    parents: tuple[ValueRef, ...] = ()
    params: tuple[int, ...] = ()
    outputs: tuple[TensorMeta, ...] = ()
    call_id: int | None = None
    role: OpRole = "op"
    location: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaf:
    """One tensor leaf of the model's inputs or outputs, named as interface.md says (``x``, ``output[0]``)."""

    name: str
    meta: TensorMeta
    refs: tuple[ValueRef, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeEmit:
    """One value that the model emitted to a probe: its name, the emitting call and where the value came from."""

    name: str
    call_id: int | None
    meta: TensorMeta
    refs: tuple[ValueRef, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Where and how the model raised."""

    module: str
    call: int
    call_id: int | None
    type: str
    message: str
    inputs: tuple[TensorMeta, ...] = ()
    location: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """What the metadata pass saw of one forward. ``ops[i].op_id == i`` and ``calls[i].call_id == i``."""

    model_name: str
    class_name: str
    params: tuple[ParamInfo, ...] = ()
    modules: tuple[ModuleInfo, ...] = ()
    calls: tuple[ModuleCall, ...] = ()
    ops: tuple[OpNode, ...] = ()
    inputs: tuple[Leaf, ...] = ()
    outputs: tuple[Leaf, ...] = ()
    emits: tuple[ProbeEmit, ...] = ()
    written_param_ids: tuple[int, ...] = ()
    """Parameters that forward itself writes; another run must copy them first."""
    has_dataflow: bool = True
    tracer: str = "function"
    failure: Failure | None = None
    notes: tuple[str, ...] = ()


# -- what is drawn -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What the user asked to be drawn. Stored in the graph file, so that ``check`` can ask the same again."""

    target: str = ""
    detail: Literal["auto", "block", "layer", "op"] = "auto"
    depth: int | None = None
    select: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    types: tuple[str, ...] = ()
    max_stages: int = 24
    has_folds: bool = True
    expand: tuple[str, ...] = ()
    collapse: tuple[str, ...] = ()
    topology: str = "auto"
    inputs: tuple[str, ...] = ()
    """Options that describe the inputs, verbatim (``x=1,3,8,8``)."""
    arguments: tuple[str, ...] = ()
    """Constructor arguments, verbatim (``depth=50``)."""
    inputs_function: str | None = None
    weights: str | None = None
    """Where the weights came from, for the record only: an architecture has none."""
    train: bool = False
    autocast: bool = False
    seed: int | None = None
    tracer: Literal["auto", "function", "dispatch"] = "auto"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """What is drawn as one card. ``call_id`` (kinds module, op, probe) is the call, or the owning / emitting one."""

    stage_id: int
    kind: StageKind
    name: str
    label: str
    class_name: str = ""
    path: str = ""
    call_id: int | None = None
    call_index: int = 0
    op_id: int | None = None
    index: int = 0
    joined: tuple[int, ...] = ()
    """Ids of the calls drawn in this card after its own; outputs and picture are those of the last one."""
    joined_names: tuple[str, ...] = ()
    joined_classes: tuple[str, ...] = ()
    """The same calls as JSON names them (the path, ``#k`` from the second call), and their classes if known."""
    family: str = ""
    """What the ops do: attention, recurrent, convolution, linear, embedding, normalisation; "" for none of them."""
    inputs: tuple[TensorMeta, ...] = ()
    outputs: tuple[TensorMeta, ...] = ()
    num_params: int = 0
    num_shared_params: int = 0
    param_nbytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class EdgeMark:
    """A call drawn as a mark on an edge (an up-convolution between two blocks): its path and what it does."""

    call_id: int
    path: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Edge:
    """Values of ``source`` reach ``target`` through no other stage.

    ``via`` names the ops where this edge's value first meets another edge's; ``joins`` are the ids of these ops,
    one each. ``through`` names what changes the shape on the way. ``is_removed``: only the older of two models has it.
    """

    source: int
    target: int
    kind: EdgeKind = "primary"
    inferred: bool = False
    opaque: bool = False
    plumbing: bool = False
    is_removed: bool = False
    tensors: tuple[TensorMeta, ...] = ()
    via: tuple[str, ...] = ()
    joins: tuple[int, ...] = ()
    through: tuple[str, ...] = ()
    marks: tuple[EdgeMark, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Join:
    """An op outside every stage where values of two or more sources meet; drawn as a ring.

    ``sources`` are what it reads: ``("stage", id)`` or ``("join", id)``. ``path`` is the innermost module that ran it.
    """

    join_id: int
    target: str
    sources: tuple[tuple[Literal["stage", "join"], int], ...]
    path: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Flow:
    """One line of the drawn graph. Unlike an Edge it may start or end at a join, so a residual stream stays O(n).

    ``tensors`` are the values as the source produced them, ``arrived`` as the target reads them.
    """

    source: tuple[Literal["stage", "join"], int]
    target: tuple[Literal["stage", "join"], int]
    kind: EdgeKind = "primary"
    inferred: bool = False
    opaque: bool = False
    plumbing: bool = False
    is_removed: bool = False
    tensors: tuple[TensorMeta, ...] = ()
    arrived: tuple[TensorMeta, ...] = ()
    through: tuple[str, ...] = ()
    marks: tuple[EdgeMark, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Fold:
    """Repeats that are drawn once. Members hold stage ids in call order; ``representative`` indexes ``members``.

    ``path`` names what repeats (``layers.0 … layers.11``), for the label. An interval has one member.
    """

    fold_id: int
    kind: FoldKind
    count: int
    members: tuple[tuple[int, ...], ...]
    representative: int = 0
    label: str = ""
    is_dense: bool = False
    parent_id: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StageGroup:
    """A container module that is no stage itself, with the stages in it; without label it has no frame."""

    module: str
    label: str
    stage_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which calls are drawn and how repeats fold; made before any edge is known to the figure."""

    stages: tuple[Stage, ...]
    folds: tuple[Fold, ...] = ()
    groups: tuple[StageGroup, ...] = ()
    marks: tuple[EdgeMark, ...] = ()
    plumbing_inputs: tuple[int, ...] = ()
    num_candidates: int = 0
    """Visible leaf-like calls, for "9 of 31 stages" in the header."""
    notes: tuple[str, ...] = ()
    log: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelInfo:
    """Totals of the model; each distinct parameter counts once."""

    name: str
    class_name: str
    num_params: int = 0
    num_trainable_params: int = 0
    num_loose_params: int = 0
    """Parameters that lie in no drawn stage."""
    param_nbytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Topology:
    """Stages and what flows between them.

    ``edges`` are the truth (unfolded, direct); ``flows`` and ``joins`` the same truth as lines that may meet in joins.
    """

    model: ModelInfo
    stages: tuple[Stage, ...]
    edges: tuple[Edge, ...]
    joins: tuple[Join, ...] = ()
    flows: tuple[Flow, ...] = ()
    folds: tuple[Fold, ...] = ()
    groups: tuple[StageGroup, ...] = ()
    source: str = "dataflow"
    num_candidates: int = 0
    not_run: tuple[str, ...] = ()
    residual_stage_ids: tuple[int, ...] = ()
    """Stages that add their own input to their own result, out of sight."""
    notes: tuple[str, ...] = ()
    request: Request = field(default_factory=Request)
    failure: Failure | None = None

    @property
    def status(self) -> Literal["complete", "partial"]:
        """``partial`` where the model raised before it returned."""
        return "complete" if self.failure is None else "partial"


# -- second pass ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorStats:
    """Statistics over the finite values of one tensor; complex by magnitude, std of the population."""

    mean: float | None
    std: float | None
    min: float | None
    max: float | None
    zero_fraction: float
    num_nan: int = 0
    num_inf: int = 0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Summary:
    """A reduced tensor, ready to draw. ``arrays`` are read-only; ``facts`` are small values for labels."""

    stage_id: int
    kind: str
    tensor: TensorMeta
    arrays: Mapping[str, Array]
    facts: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    caption: str = ""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Capture:
    """What the second pass brought: summaries and statistics by stage id, attention by stage id, and why not."""

    summaries: Mapping[int, Summary] = field(default_factory=lambda: MappingProxyType({}))
    stats: Mapping[int, TensorStats] = field(default_factory=lambda: MappingProxyType({}))
    attention: Mapping[int, tuple[Summary, ...]] = field(default_factory=lambda: MappingProxyType({}))
    skipped: Mapping[int, str] = field(default_factory=lambda: MappingProxyType({}))
    notes: tuple[str, ...] = ()
    failure: Failure | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurements:
    """One number a stage, from an extra pass: FLOPs, seconds, bytes, gradient norms.

    ``caption`` is what the legend calls it; ``detail`` follows it where readers must know more: the loss of gradients.
    """

    name: str
    unit: str
    by_stage: Mapping[int, float]
    caption: str = ""
    detail: str = ""
