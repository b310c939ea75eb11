"""From nodes to records: numbers in execution order, labels, parameters, folds and groups."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from neural_flow.records import EdgeMark, Fold, ModuleCall, ProbeEmit, Stage, StageGroup, TensorMeta
from neural_flow.stages._assemble import CardNode, Node, cards_of
from neural_flow.stages._families import family_of
from neural_flow.stages._groups import find_groups
from neural_flow.stages._naming import Namer
from neural_flow.stages._net import Net
from neural_flow.stages.labels import Named, make_labels


class RecordMaker:
    """Number the cards of a figure and make its records.

    Args:
        net: the calls.
        nodes: the figure.
        outer: calls that are no stage because something inside them is, drawn as groups.
    """

    def __init__(self, net: Net, nodes: list[Node], outer: Sequence[int] = ()) -> None:
        self._net = net
        self._trace = net.trace
        self._cards = sorted(cards_of(nodes), key=lambda card: card.order)
        self._numel = [param.numel for param in self._trace.params]
        self._probes: dict[int, int] = {}
        groups = find_groups(net, nodes, outer)
        self._namer = Namer(net, nodes, [group for group in groups if group.is_named])
        self.stages = self._make_stages()
        self.folds = tuple(self._make_folds(nodes, None, []))
        named = [group for group in groups if group.is_named]
        names = make_labels([Named(group.path, self._spoken_class(group.path)) for group in named])
        labels = {group.path: name for group, name in zip(named, names, strict=True)}
        self.groups = tuple(
            StageGroup(
                module=group.path,
                label=labels.get(group.path, ""),
                stage_ids=tuple(card.stage_id for card in group.cards),
            )
            for group in groups
        )
        self.marks = tuple(
            EdgeMark(call_id=call, path=self._trace.calls[call].path, text=text)
            for card in self._cards
            for call, text in card.marks
        )

    # -- stages --

    def _spoken_class(self, path: str) -> str:
        """Return what a module without a name that speaks is called: its class, or its path where that is plain."""
        found = next((module.class_name for module in self._trace.modules if module.path == path), "")
        return path if found in ("", "Sequential", "ModuleList", "ModuleDict") else found

    def _make_stages(self) -> tuple[Stage, ...]:
        stages = [
            Stage(stage_id=k, kind="input", name=leaf.name, label=leaf.name, index=k, outputs=(leaf.meta,))
            for k, leaf in enumerate(self._trace.inputs)
        ]
        order: list[tuple[tuple[int, int], CardNode | int]] = [(card.order, card) for card in self._cards]
        # an emit comes right behind the op that made its value
        order += [((self._emit_place(emit), len(self._trace.calls)), k) for k, emit in enumerate(self._trace.emits)]
        order.sort(key=lambda entry: entry[0])
        counted: set[int] = set()
        for _, entry in order:
            number = len(stages)
            if isinstance(entry, CardNode):
                entry.stage_id = number
                stages.append(self._card_stage(entry, number, counted))
            else:
                self._probes[entry] = number
                stages.append(self._probe_stage(self._trace.emits[entry], number, entry))
        for k, leaf in enumerate(self._trace.outputs):
            stages.append(
                Stage(
                    stage_id=len(stages), kind="output", name=leaf.name, label=leaf.name, index=k, inputs=(leaf.meta,)
                )
            )
        return tuple(stages)

    def _emit_place(self, emit: ProbeEmit) -> int:
        return max((op for op, _ in emit.refs), default=0)

    def _probe_stage(self, emit: ProbeEmit, number: int, index: int) -> Stage:
        call = self._trace.calls[emit.call_id] if emit.call_id is not None else None
        return Stage(
            stage_id=number, kind="probe", name=emit.name, label=emit.name, index=index, call_id=emit.call_id,
            path=call.path if call else "", call_index=call.call_index if call else 0,
            inputs=(emit.meta,), outputs=(emit.meta,),
        )  # fmt: skip

    def _card_stage(self, card: CardNode, number: int, counted: set[int]) -> Stage:
        params = self._params_of(card)
        numel = sum(self._numel[p] for p in params)
        new = params - counted
        counted |= new
        is_op = card.call_id < 0
        calls = self._trace.calls
        owner = self._trace.ops[card.op_id].call_id if is_op else card.call_id
        call = calls[owner] if owner is not None else None
        joined = card.calls if is_op else card.calls[1:]
        op = self._trace.ops[card.op_id] if is_op else None
        last = calls[card.calls[-1]] if card.calls else None
        return Stage(
            stage_id=number,
            kind="op" if is_op else "module",
            name=op.target.removeprefix("torch.") if op is not None else call_name(calls[card.call_id]),
            label=self._namer.card(card),
            class_name=self._net.signals.name(card.op_id) if is_op else calls[card.call_id].class_name,
            path=call.path if call is not None else "",
            call_id=owner,
            call_index=call.call_index if call is not None else 0,
            op_id=card.op_id if is_op else None,
            joined=tuple(joined),
            joined_names=tuple(call_name(calls[call_id]) for call_id in joined),
            joined_classes=tuple(calls[call_id].class_name for call_id in joined),
            family=family_of(self._net, self._ops_of(card)),
            inputs=self._op_inputs(card.op_id) if is_op else calls[card.call_id].inputs,
            outputs=last.outputs if last is not None else op.outputs if op is not None else (),
            num_params=numel,
            num_shared_params=numel - sum(self._numel[p] for p in new),
            param_nbytes=sum(self._trace.params[p].nbytes for p in params),
        )

    def _op_inputs(self, op_id: int) -> tuple[TensorMeta, ...]:
        return tuple(self._trace.ops[parent].outputs[k] for parent, k in self._trace.ops[op_id].parents)

    def _ops_of(self, card: CardNode) -> Iterator[int]:
        yield from card.ops
        for call_id in card.calls:
            call = self._trace.calls[call_id]
            yield from range(call.first_op_id, call.end_op_id)

    def _params_of(self, card: CardNode) -> set[int]:
        params: set[int] = set()
        for call_id in (*card.calls, *(mark for mark, _ in card.marks)):
            info = self._net.info(call_id)
            if info is not None:
                params.update(info.param_ids)
        for op_id in card.ops:
            params.update(self._net.signals.applied_params(op_id))
        return params

    # -- folds --

    def _make_folds(self, nodes: list[Node], parent_id: int | None, made: list[Fold]) -> list[Fold]:
        for node in nodes:
            if isinstance(node, CardNode):
                continue
            fold_id = len(made)
            made.append(
                Fold(
                    fold_id=fold_id,
                    kind=node.kind,
                    count=len(node.members),
                    members=tuple(self._member_ids(member) for member in node.members),
                    representative=node.representative,
                    label=self._namer.fold(node),
                    is_dense=node.is_dense,
                    parent_id=parent_id,
                )
            )
            for member in node.members:
                self._make_folds(member, fold_id, made)
        return made

    def _member_ids(self, member: list[Node]) -> tuple[int, ...]:
        cards = cards_of(member)
        ids = {card.stage_id for card in cards}
        for emit, stage_id in self._probes.items():
            call_id = self._trace.emits[emit].call_id
            if call_id is not None and any(self._holds(card, call_id) for card in cards):
                ids.add(stage_id)
        return tuple(sorted(ids))

    def _holds(self, card: CardNode, call_id: int) -> bool:
        calls = self._trace.calls
        return any(call == call_id or call < call_id < call + self._net.num_calls[call] for call in card.calls if calls)


def call_name(call: ModuleCall) -> str:
    """Return how JSON names a call: the path, ``#k`` from the second call; the class for the root."""
    name = call.path or call.class_name
    return f"{name}#{call.call_index}" if call.call_index else name
