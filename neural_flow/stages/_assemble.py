"""From a plan to records: cards become stages, folds keep the stages of every member."""

from __future__ import annotations

from dataclasses import dataclass, field

from neural_flow.records import FoldKind
from neural_flow.stages._elements import Element, FoldItem
from neural_flow.stages._fold_labels import FoldName, fold_name, interval_name
from neural_flow.stages._joins import Followers, JoinFinder, Joins, resampling
from neural_flow.stages._plan import Plan
from neural_flow.stages._scope import Item, Scope
from neural_flow.stages.intervals import cut_intervals


@dataclass(slots=True, eq=False)
class CardNode:
    """One card before it has a number. ``calls`` are all calls drawn in it, its own first."""

    call_id: int
    op_id: int
    first_op: int
    calls: list[int] = field(default_factory=lambda: list[int]())
    ops: list[int] = field(default_factory=lambda: list[int]())
    marks: list[tuple[int, str]] = field(default_factory=lambda: list[tuple[int, str]]())
    stage_id: int = -1

    @property
    def order(self) -> tuple[int, int]:
        """Place in execution order."""
        return self.first_op, self.call_id


@dataclass(slots=True, eq=False)
class FoldNode:
    """A fold before its members have numbers."""

    kind: FoldKind
    members: list[list[Node]]
    representative: int = 0
    is_dense: bool = False
    name: FoldName = field(default_factory=FoldName)


Node = CardNode | FoldNode


def cards_of(nodes: list[Node]) -> list[CardNode]:
    """Return all cards under some nodes, those of every member."""
    found: list[CardNode] = []
    for node in nodes:
        if isinstance(node, CardNode):
            found.append(node)
        else:
            for member in node.members:
                found.extend(cards_of(member))
    return found


def drawn_cards(nodes: list[Node]) -> list[CardNode]:
    """Return the cards that are drawn: of a fold those of its representative, of an interval the first."""
    found: list[CardNode] = []
    for node in nodes:
        if isinstance(node, CardNode):
            found.append(node)
        elif node.kind == "interval":
            found.append(node_first(node))
        else:
            found.extend(drawn_cards(node.members[node.representative]))
    return found


def node_first(node: Node) -> CardNode:
    """Return the first card of a node."""
    return node if isinstance(node, CardNode) else cards_of([node])[0]


def _flattened(fold: FoldNode) -> FoldNode:
    """Return one repeat in place of a repeat of nothing but repeats: three times three are nine, tapped or not."""
    inner = [node for member in fold.members for node in member if isinstance(node, FoldNode) and node.kind == "serial"]
    if fold.kind != "serial" or [len(member) for member in fold.members] != [1] * len(inner):
        return fold
    before = sum(len(node.members) for node in inner[: fold.representative])
    members = [member for node in inner for member in node.members]
    place = before + inner[fold.representative].representative
    return FoldNode("serial", members, place, fold.is_dense or any(node.is_dense for node in inner), fold.name)


class Assembler:
    """Make the nodes of a plan."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._tree = plan.tree
        self._net = plan.tree.net
        self._finder = JoinFinder(plan.tree, plan.opened.__contains__)
        self._followers = Followers(self._net)

    def run(self) -> list[Node]:
        """Return the nodes of the whole figure."""
        return self._open(0)

    def _open(self, call_id: int) -> list[Node]:
        scope, elements = self._tree.scope(call_id), self._tree.elements(call_id)
        if call_id in self._plan.intervals:
            return self._intervals(call_id)
        joins = self._finder.find(call_id) if self._plan.has_joins else Joins()
        if call_id in self._plan.crowded:
            self._finder.crowd(call_id, joins)
        drawn_with: dict[int, list[Item]] = {}
        marks: dict[int, list[Item]] = {}
        for item in scope.items:
            if item.index in joins.marks:
                marks.setdefault(joins.marks[item.index], []).append(item)
            else:
                drawn_with.setdefault(joins.card(item.index), []).append(item)
        made: dict[int, CardNode] = {}
        for index, items in drawn_with.items():
            item = scope.items[index]
            if not item.is_call or item.call_id not in self._plan.opened:
                made[index] = self._card(scope, items, marks.get(index, []))
        return self._nodes(scope, elements, made)

    def _nodes(self, scope: Scope, elements: list[Element], made: dict[int, CardNode]) -> list[Node]:
        nodes: list[Node] = []
        for element in elements:
            if isinstance(element, FoldItem):
                members = [self._nodes(scope, member, made) for member in element.members]
                if any(members):
                    name = fold_name(scope, element)
                    fold = FoldNode(element.kind, members, element.representative, element.is_dense, name)
                    nodes.append(_flattened(fold))
            elif element.index in made:
                nodes.append(made[element.index])
            elif element.is_call and element.call_id in self._plan.opened:
                nodes.extend(self._open(element.call_id))
        return nodes

    def _card(self, scope: Scope, items: list[Item], marks: list[Item]) -> CardNode:
        first, last = items[0], items[-1]
        card = CardNode(first.call_id, first.op_id, first.first_op)
        card.calls = [item.call_id for item in items if item.is_call]
        card.ops = [item.op_id for item in items if not item.is_call]
        if self._plan.has_joins:
            outputs = {last.op_id}
            if last.is_call:
                outputs = {op for refs in self._net.calls[last.call_id].output_refs for op, _ in refs}
            card.calls += self._followers.of(scope.call_id, outputs, last.shapes)
        card.marks = [(mark.call_id, resampling(self._net, mark)) for mark in marks]
        return card

    def _intervals(self, call_id: int) -> list[Node]:
        scope = self._tree.scope(call_id)
        made = {item.index: self._card(scope, [item], []) for item in scope.items}
        nodes: list[Node] = []
        for run in cut_intervals(self._tree, call_id, self._plan.intervals[call_id]):
            inside = self._nodes(scope, run, made)
            if len(drawn_cards(inside)) == 1:
                nodes.extend(inside)
            else:
                members = [list[Node](cards_of(inside))]
                nodes.append(FoldNode("interval", members, name=interval_name(scope, run, len(members[0]))))
        return nodes
