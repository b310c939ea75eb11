"""Which ops carry a signal, and which do the work: one forward walk over the ops of a trace."""

from __future__ import annotations

from neural_flow.records import OpNode, Trace, ValueRef

LEARNED = "learned"
"""Name of an op that takes a parameter as data: a class token, a query, a constant input."""
LOOKUP = "lookup"
"""Name of an op that reads rows of a parameter by ids: an embedding written by hand."""
JOINING_NAMES = frozenset(("cat", "concat", "concatenate", "stack"))
DATA_NAMES = frozenset((
    "multi_head_attention_forward", "lstm", "gru", "rnn_tanh", "rnn_relu", "lstm_cell", "gru_cell", "rnn_tanh_cell",
    "rnn_relu_cell",
))  # fmt: skip
LOOKUP_NAMES = frozenset(("getitem", "index_select"))

FLOAT_PREFIXES = ("float", "bfloat", "complex", "qint", "quint")

BANK_NAMES = frozenset(
    ("matmul", "rmatmul", "bmm", "baddbmm", "einsum", "tensordot", "grouped_mm", "scaled_mm")
)  # fmt: skip
PRODUCT_NAMES = BANK_NAMES | {"mm", "addmm", "addbmm"}
HEAVY_NAMES = PRODUCT_NAMES | {
    "linear", "bilinear", "spmm",
    "conv1d", "conv2d", "conv3d", "conv_tbc", "convolution",
    "conv_transpose1d", "conv_transpose2d", "conv_transpose3d",
    "embedding", "embedding_bag",
    "lstm", "gru", "rnn_tanh", "rnn_relu", "lstm_cell", "gru_cell", "rnn_tanh_cell", "rnn_relu_cell",
    "mkldnn_rnn_layer", "multi_head_attention_forward", "flex_attention", "flex_attention_hop",
}  # fmt: skip
VIEW_NAMES = frozenset({
    "view", "reshape", "flatten", "unflatten", "transpose", "permute", "t", "mt", "h", "movedim", "swapaxes",
    "squeeze", "unsqueeze", "expand", "expand_as", "getitem", "select", "narrow", "chunk", "split", "tensor_split",
    "unbind", "contiguous", "clone", "detach", "to", "float", "double", "half", "bfloat16", "type", "type_as",
    "alias", "unfold", "ravel", "view_as", "reshape_as", "adjoint", "real", "imag", "setitem",
})  # fmt: skip


def base_name(target: str) -> str:
    """Return the bare name of an op: no namespace, no overload, no underscores at the ends."""
    parts = target.split(".")
    # a dispatcher name carries its overload behind the name: aten.addmm.default
    name = parts[-2] if len(parts) > 2 and parts[0] in ("aten", "prims") else parts[-1]
    if name == "__get__" and len(parts) > 1:
        name = parts[-2]
    return name.strip("_").lower()


def is_float(dtype: str) -> bool:
    """Return whether values of ``dtype`` can carry a signal (quantized and complex ones can)."""
    return dtype.startswith(FLOAT_PREFIXES)


def _is_heavy_name(name: str) -> bool:
    return name in HEAVY_NAMES or name.startswith(("scaled_dot_product", "quantized_linear", "quantized_conv"))


class Signals:
    """What each op carries and reads.

    Attributes:
        is_signal: per op, whether any output is a float value that descends from the data.
        is_heavy: per op, a matmul, a convolution, a lookup, a recurrent or attention kernel, or opaque code.
        is_weighted: per op, a heavy op that applies a parameter of two or more dimensions to data.
        parents: per op, the ops it reads a signal from, ascending.
        readers: per op, the ops that read its signal, ascending.
        last_reader: per op, the last op that reads its signal; ``num_ops + k`` where model output k does; else -1.
        learned: the ops by which a parameter comes in as data.
        bank_size: per op, the number of stacked weights it applies (1: not stacked).
        has_heavy: False where no heavy op was found and every op but views counts instead.
    """

    def __init__(self, trace: Trace) -> None:
        num = len(trace.ops)
        self._trace = trace
        self.learned: frozenset[int] = frozenset()
        self._names: dict[str, tuple[str, bool]] = {}
        self._float_outputs: list[tuple[bool, ...]] = [tuple(is_float(m.dtype) for m in o.outputs) for o in trace.ops]
        self._param_dims = [len(param.shape) for param in trace.params]
        self._has_data = [False] * num
        self._lookups: set[int] = set()
        self._visit_all()
        self.learned = frozenset(self._find_learned())
        if self.learned:
            self._visit_all()
        self.has_heavy = any(h and s for h, s in zip(self.is_heavy, self.is_signal, strict=True))
        if not self.has_heavy:
            self._promote_plain_ops()
        self._collect_readers()

    def name(self, op_id: int) -> str:
        """Return the bare name of an op's target, or what it does where that is no matter of its name."""
        if op_id in self.learned:
            return LEARNED
        if op_id in self._lookups:
            return LOOKUP
        return self._named(self._trace.ops[op_id].target)[0]

    def applied_params(self, op_id: int) -> tuple[int, ...]:
        """Return the ids of the parameters that an op reads, directly or through ops on parameters only."""
        found: dict[int, None] = {}
        pending = [op_id]
        while pending:
            op = self._trace.ops[pending.pop()]
            found.update(dict.fromkeys(op.params))
            pending.extend(parent for parent, _ in op.parents if self._constant_dims[parent] >= 0)
        return tuple(sorted(found))

    def _named(self, target: str) -> tuple[str, bool]:
        if target not in self._names:
            name = base_name(target)
            self._names[target] = (name, _is_heavy_name(name))
        return self._names[target]

    def _visit_all(self) -> None:
        num = len(self._trace.ops)
        self._constant_dims: list[int] = [-1] * num
        self.is_signal = [False] * num
        self.is_heavy = [False] * num
        self.is_weighted = [False] * num
        self.bank_size = [1] * num
        self.parents: list[tuple[int, ...]] = [()] * num
        for op in self._trace.ops:
            self._visit(op)

    def _visit(self, op: OpNode) -> None:
        index = op.op_id
        self._has_data[index] = op.role == "input" or any(self._has_data[parent] for parent, _ in op.parents)
        floats = self._float_outputs[index]
        has_float = any(floats)
        if op.role == "input":
            self.is_signal[index] = has_float
            return
        name, is_heavy = self._named(op.target)
        is_heavy = is_heavy or op.role == "opaque"
        dims = max((self._param_dims[p] for p in op.params), default=-1)
        is_constant = bool(op.params) or bool(op.parents)
        parents: list[int] = []
        for parent, output in op.parents:
            if self.is_signal[parent] and self._float_outputs[parent][output] and parent not in parents:
                parents.append(parent)
            if self._constant_dims[parent] >= 0:
                dims = max(dims, self._constant_dims[parent])
            else:
                is_constant = False
        parents.sort()
        if index in self.learned:
            is_heavy, is_constant, dims = True, False, 2
        elif name in LOOKUP_NAMES and op.params and dims >= 2:
            is_heavy = any(self._is_id(parent) for parent in op.parents)
            if is_heavy:
                self._lookups.add(index)
        if is_constant and name in PRODUCT_NAMES:
            # the product of two parameters is a weight in the making (a low-rank one), not work on data
            is_heavy = False
        is_weighted = is_heavy and has_float and dims >= 2
        if op.role == "opaque" and not parents and has_float:
            is_weighted = True
        self.parents[index] = tuple(parents)
        self.is_heavy[index] = is_heavy
        self.is_weighted[index] = is_weighted
        self.is_signal[index] = has_float and (bool(parents) or is_weighted)
        if is_constant and not is_weighted:
            self._constant_dims[index] = max(dims, max((len(m.shape) for m in op.outputs), default=0))
        if is_weighted and dims >= 3 and name in BANK_NAMES:
            shapes = [self._trace.params[p].shape for p in self.applied_params(index)]
            self.bank_size[index] = max((shape[0] for shape in shapes if len(shape) == 3), default=1)

    def _is_id(self, ref: ValueRef) -> bool:
        """Return whether a value is whole numbers that come with the data."""
        op_id, output = ref
        return self._has_data[op_id] and self._trace.ops[op_id].outputs[output].dtype.startswith(("int", "uint"))

    def _find_learned(self) -> set[int]:
        """Return the ops by which a parameter comes in as data: beside a signal in a row, or where others read data.

        What is only added to or multiplied with the signal is a bias or a scale, and stays part of what it acts on.
        """
        num = len(self._trace.ops)
        is_made = [False] * num  # of parameters, and of nothing that comes with the data or from weighted ops
        found: set[int] = set()
        for op in self._trace.ops:
            index, parents = op.op_id, [parent for parent, _ in op.parents]
            made = [parent for parent in parents if is_made[parent]]
            if not self._has_data[index] and not self.is_signal[index] and any(self._float_outputs[index]):
                is_made[index] = bool(made) or self._reads_rows(op)
            if made and self._is_data_of(op):
                found.update(root for parent in made for root in self._roots(parent, is_made))
        return found

    def _reads_rows(self, op: OpNode) -> bool:
        """Return whether an op reads a parameter that is rows of values, or makes such of one vector."""
        is_spread = self._named(op.target)[0] in VIEW_NAMES and any(len(meta.shape) >= 2 for meta in op.outputs)
        return any(self._param_dims[p] >= 2 or is_spread for p in op.params)

    def _is_data_of(self, op: OpNode) -> bool:
        """Return whether an op takes what it reads from other ops as data, even where that is a parameter."""
        name, _ = self._named(op.target)
        if name in JOINING_NAMES:
            return bool(self.parents[op.op_id])
        if name in DATA_NAMES:
            return True
        if name != "linear" and not name.startswith("conv"):
            return False
        if self.parents[op.op_id]:
            # the data come first: behind them are weights that were made of a signal
            return self._constant_dims[op.parents[0][0]] >= 0
        return any(self._param_dims[p] >= 2 for p in op.params)

    def _roots(self, op_id: int, is_made: list[bool]) -> set[int]:
        """Return the ops that read the parameters which an op was made of."""
        found: set[int] = set()
        pending, seen = [op_id], {op_id}
        while pending:
            current = self._trace.ops[pending.pop()]
            if self._reads_rows(current):
                found.add(current.op_id)
            above = {parent for parent, _ in current.parents if is_made[parent]} - seen
            seen |= above
            pending.extend(above)
        return found

    def _promote_plain_ops(self) -> None:
        """Let every op but views count, so that a net without matmuls still has something to draw."""
        for index, op in enumerate(self._trace.ops):
            if self.is_signal[index] and op.role not in ("input", "alias") and self.name(index) not in VIEW_NAMES:
                self.is_heavy[index] = self.is_weighted[index] = True

    def _collect_readers(self) -> None:
        num = len(self.parents)
        self.readers: list[list[int]] = [[] for _ in range(num)]
        self.last_reader = [-1] * num
        for index, parents in enumerate(self.parents):
            for parent in parents:
                self.readers[parent].append(index)
                self.last_reader[parent] = index
        self.output_leaves: dict[int, tuple[int, ...]] = {}
        for leaf_index, leaf in enumerate(self._trace.outputs):
            for op_id, _ in leaf.refs:
                self.last_reader[op_id] = num + leaf_index
                self.output_leaves[op_id] = (*self.output_leaves.get(op_id, ()), leaf_index)
