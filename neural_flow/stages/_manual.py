"""Plans that are asked for, not chosen: blocks, layers, a depth, or exactly these modules."""

from __future__ import annotations

from collections.abc import Callable

from neural_flow.stages._assemble import CardNode
from neural_flow.stages._figure import Figure
from neural_flow.stages._net import Net
from neural_flow.stages._plan import Plan
from neural_flow.stages._tree import Tree


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
