"""Labels of all cards and folds of a figure: each says what the boxes round it do not say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from neural_flow.stages._assemble import CardNode, FoldNode, Node, cards_of, drawn_cards
from neural_flow.stages._groups import Group
from neural_flow.stages._net import Net
from neural_flow.stages._signals import LEARNED
from neural_flow.stages._spoken import spoken_class
from neural_flow.stages.labels import Named, make_labels, short_label


class Namer:
    """Label the drawn cards and folds; a repeat that is not drawn is labelled by what its path alone says.

    Labels are unique outside all boxes, and inside each box: its title says the rest.
    """

    def __init__(self, net: Net, nodes: list[Node], groups: Sequence[Group]) -> None:
        self._net = net
        self._labels: dict[int, str] = {}
        self._group_of = {id(card): group for group in groups for card in group.cards}
        self._name_scope(nodes, 0)

    def card(self, card: CardNode) -> str:
        """Return the label of a card."""
        label = self._labels.get(id(card))
        if label is None:
            named = self._named(card, 0)
            label = named.class_name if named.is_op else short_label(named.path, named.class_name)
        return label

    def fold(self, fold: FoldNode) -> str:
        """Return the label of a fold."""
        return self._labels.get(id(fold)) or fold.name.ladder(0)[0]

    def _name_scope(self, nodes: list[Node], num_known: int) -> None:
        """Label cards and folds of one box among themselves, then what is inside each fold that shows several."""
        for node, label in zip(nodes, make_labels([self._entry(node, num_known) for node in nodes]), strict=True):
            self._labels[id(node)] = label
            if isinstance(node, FoldNode) and node.kind != "interval":
                shown = node.members[node.representative]
                paths = [self._named(card, 0).path for card in drawn_cards(shown)]
                if len(paths) > 1:
                    self._name_scope(shown, _num_common(paths))

    def _entry(self, node: Node, num_known: int) -> Named:
        groups = {self._group_of.get(id(card)) for card in cards_of([node])}
        group = groups.pop() if len(groups) == 1 else None
        scope = group.path if group is not None else ""
        if isinstance(node, CardNode):
            return replace(self._named(node, num_known), scope=scope)
        ladder = node.name.ladder(num_known)
        if group is not None and ladder[0] == short_label(scope, scope):
            # the box round the fold says it already
            ladder = node.name.ladder(max(num_known, group.num_parts))
        return Named("", "", ladder=ladder, scope=scope)

    def _named(self, card: CardNode, num_known: int) -> Named:
        head = self._head_call(card)
        if head < 0:
            params = self._net.signals.applied_params(card.op_id)
            infos = self._net.trace.params
            # the largest parameter names an op better than its bias does
            main = max(params, key=lambda p: (infos[p].numel, -p), default=None)
            path = infos[main].names[0] if main is not None else self._owner_path(card.op_id)
            name = self._net.signals.name(card.op_id)
            if name == LEARNED and main is not None:
                # the parameter itself is what is drawn, not what is done with it
                return Named(path.removesuffix(".weight"), name, num_known=num_known)
            return Named(path, name, is_op=True, has_param=main is not None, num_known=num_known)
        call = self._net.calls[head]
        return Named(call.path, spoken_class(self._net, head), call.call_index, num_known=num_known)

    def _owner_path(self, op_id: int) -> str:
        owner = self._net.trace.ops[op_id].call_id
        return self._net.calls[owner].path if owner is not None else ""

    def _head_call(self, card: CardNode) -> int:
        """Return the call that a card is named after: the one that does the work, its own first."""
        if card.call_id < 0:
            return -1
        return max(card.calls, key=lambda c: (min(self._net.mass[c], 1), -card.calls.index(c)))


def _num_common(paths: list[str]) -> int:
    """Return the number of leading path components that all paths share, their own last one aside."""
    heads = [path.split(".")[:-1] for path in paths]
    count = 0
    while all(len(head) > count for head in heads) and len({head[count] for head in heads}) == 1:
        count += 1
    return count
