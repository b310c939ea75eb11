"""Plans that are asked for, not chosen: blocks, layers, a depth, or exactly these modules."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from itertools import accumulate, pairwise

from neural_flow.stages._assemble import CardNode, FoldNode, Node, cards_of, drawn_cards
from neural_flow.stages._figure import Figure
from neural_flow.stages._fold_labels import FoldName
from neural_flow.stages._net import Net
from neural_flow.stages._plan import Plan
from neural_flow.stages._tree import Tree
from neural_flow.stages.intervals import cut_positions
from neural_flow.stages.labels import short_label


def open_where(tree: Tree, may_open: Callable[[int], bool]) -> Plan:
    """Return a plan that opens every call with something inside, from the root down, where ``may_open`` says so."""
    plan = Plan(tree, {0})
    pending = [0]
    while pending:
        for item in tree.scope(pending.pop()).items:
            if item.is_call and may_open(item.call_id) and tree.scope(item.call_id).items:
                plan.opened.add(item.call_id)
                pending.append(item.call_id)
    return plan


def block_figure(tree: Tree, *, closed: frozenset[int], opened: frozenset[int]) -> Figure:
    """Return the figure with every container and part opened, and no block."""
    found = set(opened)
    pending = [0]
    while pending:
        for item in tree.shown_items(pending.pop()):
            if not item.is_call or item.call_id in closed:
                continue
            if item.call_id in opened or tree.kind(item.call_id) in ("container", "part"):
                found.add(item.call_id)
                pending.append(item.call_id)
    return Figure(tree, frozenset(found))


def whole_model(net: Net) -> CardNode:
    """Return the root call as the one card of the figure."""
    return CardNode(0, -1, net.calls[0].first_op_id, calls=[0])


def holders(net: Net, calls: frozenset[int]) -> frozenset[int]:
    """Return all calls that hold one of ``calls``."""
    found: set[int] = set()
    for call_id in calls:
        current = net.calls[call_id].parent_id
        while current is not None and current not in found:
            found.add(current)
            current = net.calls[current].parent_id
    return frozenset(found)


def nested_choice(net: Net, chosen: set[int]) -> tuple[set[int], list[int], frozenset[int]]:
    """Split chosen calls into stages and those that hold one.

    Returns:
        The stages (no call inside another), the outer calls that become groups, and all calls that hold a stage.
    """
    above = holders(net, frozenset(chosen))
    return chosen - above, sorted(chosen & above), above


def cut_nodes(net: Net, nodes: list[Node], budget: int) -> list[Node]:
    """Return the nodes of a figure as at most ``budget`` cards: runs of them become intervals."""
    if len(drawn_cards(nodes)) <= budget:
        return nodes
    nodes = _contiguous(nodes)
    heads = [min(card.first_op for card in cards_of([node])) for node in nodes]
    mass = [max(1, sum(_mass(net, card) for card in cards_of([node]))) for node in nodes]
    live = _live_before(net, heads)
    cuts = cut_positions(mass, live, [False] * len(live), budget)
    runs = [nodes[start:end] for start, end in pairwise([0, *cuts, len(nodes)])]
    merged: list[Node] = []
    for run in runs:
        if len(drawn_cards(run)) == 1:
            merged.extend(run)
        else:
            cards = cards_of(run)
            names = [_name(net, card) for card in (cards[0], cards[-1])]
            name = FoldName(others=(f"{names[0]} … {names[1]} ({len(cards)})",))
            merged.append(FoldNode("interval", [list[Node](cards)], name=name))
    return merged


def _contiguous(nodes: list[Node]) -> list[Node]:
    """Return nodes in call order, with folds taken apart where other cards lie between theirs."""
    place = {id(card): k for k, card in enumerate(sorted(cards_of(nodes), key=lambda card: card.order))}
    found: list[Node] = []
    for node in nodes:
        places = [place[id(card)] for card in cards_of([node])]
        is_whole = max(places) - min(places) == len(places) - 1
        found.extend([node] if is_whole else cards_of([node]))
    return sorted(found, key=lambda node: min(card.order for card in cards_of([node])))


def _mass(net: Net, card: CardNode) -> int:
    return len(card.ops) + sum(net.mass[call] for call in card.calls)


def _name(net: Net, card: CardNode) -> str:
    if card.call_id < 0:
        return net.signals.name(card.op_id)
    call = net.calls[card.call_id]
    return short_label(call.path, call.class_name)


def _live_before(net: Net, heads: list[int]) -> list[int]:
    """Return, before each of some ascending op ids, how many values made before are read at or behind it."""
    change = [0] * (len(heads) + 1)
    for op_id, last in enumerate(net.signals.last_reader):
        first, end = bisect_right(heads, op_id), bisect_right(heads, last)
        if end > first:
            change[first] += 1
            change[end] -= 1
    return list(accumulate(change))
