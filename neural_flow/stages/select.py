"""Which calls are drawn: the one entry to stage selection."""

from __future__ import annotations

from neural_flow.errors import SelectionError
from neural_flow.records import Request, Selection, Trace
from neural_flow.stages._assemble import Assembler, Node
from neural_flow.stages._chain import chained
from neural_flow.stages._manual import block_figure, cut_nodes, holders, nested_choice, open_where, whole_model
from neural_flow.stages._net import Net
from neural_flow.stages._ops import op_nodes
from neural_flow.stages._plan import plan_from_figure
from neural_flow.stages._records import RecordMaker
from neural_flow.stages._tree import Tree
from neural_flow.stages._visible import num_candidates, plumbing_inputs
from neural_flow.stages.auto import DEFAULT_BUDGET, AutoDetail
from neural_flow.stages.patterns import Selector


def select_stages(trace: Trace, request: Request) -> Selection:
    """Choose the stages of a figure, fold repeats, and say what joins them.

    Reads the trace only; the same trace and request always give the same selection.

    Args:
        trace: what the metadata pass saw. Without dataflow, calls count as a chain and fold by key and shape.
        request: what was asked.

    Returns:
        All stages, unfolded, in execution order: inputs, then module, op and probe stages, then outputs.

    Raises:
        SelectionError: a glob or class of the request matches nothing, or nothing is left to draw.
    """
    return _Selecting(trace, request).run()


class _Selecting:
    """One run of the selection."""

    def __init__(self, trace: Trace, request: Request) -> None:
        self._request = request
        self._log: list[str] = []
        self._notes: list[str] = []
        self._source = trace
        self._trace = trace if trace.has_dataflow else chained(trace)
        self._selector = Selector(self._trace)
        self._failed = self._failed_call()

    def run(self) -> Selection:
        """Return the selection."""
        if not self._trace.calls:
            raise SelectionError("the model ran no module: there is nothing to draw")
        request = self._request
        if request.select or request.types:
            net, nodes, outer = self._selected()
        else:
            hidden = self._selector.by_path("--exclude", request.exclude)
            net = Net(self._trace, hidden=frozenset(hidden), forced=self._failed)
            nodes, outer = self._nodes(net), []
        if request.max_stages != DEFAULT_BUDGET:
            nodes = cut_nodes(net, nodes, request.max_stages)
        made = RecordMaker(net, nodes, outer)
        # ops, and modules that are selected although they do no work, are more than what may be a card by itself
        num_drawn = sum(stage.kind in ("module", "op") for stage in made.stages)
        return Selection(
            stages=made.stages,
            folds=made.folds,
            groups=made.groups,
            marks=made.marks,
            plumbing_inputs=plumbing_inputs(net),
            num_candidates=max(num_candidates(net), num_drawn),
            notes=tuple(self._notes),
            log=tuple(self._log),
        )

    def _failed_call(self) -> frozenset[int]:
        """Return the call that raised, unless it is the root, which is always opened."""
        failure = self._trace.failure
        if failure is None or not failure.call_id:
            return frozenset()
        return frozenset({failure.call_id})

    def _nodes(self, net: Net) -> list[Node]:
        request = self._request
        closed = frozenset(self._selector.by_either("--collapse", request.collapse) - {0}) | self._failed
        wanted = (
            frozenset(c for c in self._selector.by_either("--expand", request.expand) if _has_inside(net, c)) - closed
        )
        opened = frozenset({0}) | ((wanted | holders(net, wanted)) - closed)
        if request.depth is None and request.detail == "op" and self._trace is self._source:
            hidden = frozenset(self._selector.by_path("--exclude", request.exclude))
            return op_nodes(net, kept=self._failed, hidden=hidden, has_folds=request.has_folds) or [whole_model(net)]
        # the ops of a chain stand for calls: none of them is a stage
        has_ops = self._trace is self._source
        tree = Tree(net, has_ops=has_ops, has_folds=request.has_folds, preferred=opened)
        if request.depth == 0 or _is_one_layer(net, tree):
            return [whole_model(net)]
        if request.depth is not None:
            depth = request.depth
            plan = open_where(tree, lambda c: c in opened or (self._is_above(tree, c, depth) and c not in closed))
        elif request.detail in ("layer", "op"):
            plan = open_where(tree, lambda c: c in opened or not (net.is_leaf_like[c] or c in closed))
        elif request.detail == "block":
            plan = plan_from_figure(block_figure(tree, closed=closed, opened=opened))
        else:
            # without folds the children of the root are shown as they are, however many: that is what was asked
            may_cut = request.has_folds or request.max_stages != DEFAULT_BUDGET
            auto = AutoDetail(tree, request.max_stages, closed=closed, opened=opened, may_cut=may_cut)
            plan = plan_from_figure(auto.run())
            self._log.extend(auto.log)
        return Assembler(plan).run()

    def _is_above(self, tree: Tree, call_id: int, depth: int) -> bool:
        """Return whether a call lies above a depth and has calls inside: a leaf is a stage at any depth."""
        return tree.net.depth[call_id] < depth and bool(tree.net.visible_children(call_id))

    def _selected(self) -> tuple[Net, list[Node], list[int]]:
        """Return exactly the calls that globs and classes mean."""
        request = self._request
        chosen = {call.call_id for call in self._trace.calls}
        if request.select:
            chosen &= self._selector.by_path("--select", request.select)
        if request.types:
            chosen &= self._selector.by_class("--type", request.types)
        chosen -= self._selector.by_path("--exclude", request.exclude)
        if not chosen:
            raise SelectionError(
                "--select, --type and --exclude leave no module call to draw",
                hint="each narrows what the others mean; drop one of them",
            )
        net = Net(self._trace)
        for call_id in self._failed:
            # where the model raised is a stage, even where a selected module inside it had run
            chosen -= set(range(call_id + 1, call_id + net.num_calls[call_id]))
            if not holders(net, frozenset({call_id})) & chosen:
                chosen.add(call_id)
        stages, outer, opened = nested_choice(net, chosen)
        paths = list(dict.fromkeys(self._trace.calls[call_id].path or "the model" for call_id in outer))
        if paths:
            more = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
            self._notes.append(f"{paths[0]}{more}: a selected module lies inside, so it is drawn as a group")
        if 0 in stages:
            return net, [whole_model(net)], []
        tree = Tree(net, is_item=(stages | opened).__contains__, has_ops=False, has_folds=request.has_folds)
        return net, Assembler(open_where(tree, opened.__contains__)).run(), outer


def _has_inside(net: Net, call_id: int) -> bool:
    """Return whether opening a call shows more than the one op of a layer."""
    return bool(net.visible_children(call_id)) or len(net.own_ops[call_id]) > 1


def _is_one_layer(net: Net, tree: Tree) -> bool:
    """Return whether the model itself is all there is to draw: it calls no module and does one thing at most."""
    items = tree.scope(0).items
    return not items or (len(items) == 1 and not net.child_calls[0])
