"""Random nests of constructs and transforms round emits, against a reference that runs plain loops."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from neural_flow import probe as constructs
from neural_flow.probe import Probe

CONSTRUCTS = ("scan", "map", "while", "cond")


@dataclass(frozen=True)
class Node:
    """One piece of a program on a scalar: an emit, a sequence, or something round other nodes."""

    kind: str
    size: int
    inner: tuple[Node, ...] = ()


def nodes() -> st.SearchStrategy[Node]:
    leaf = st.builds(Node, st.just("emit"), st.integers(1, 3))
    return st.recursive(
        leaf,
        lambda inner: st.one_of(
            st.builds(
                lambda kind, size, one: Node(kind, size, (one,)),
                st.sampled_from(["scan", "map", "while", "vmap", "vmap", "grad", "jvp", "jacfwd"]),
                st.integers(0, 3),
                inner,
            ),
            st.builds(lambda size, a, b: Node("cond", size, (a, b)), st.integers(0, 3), inner, inner),
            st.builds(lambda a, b: Node("seq", 0, (a, b)), inner, inner),
        ),
        max_leaves=5,
    )


def run(node: Node, x: torch.Tensor, probe: Probe) -> torch.Tensor:
    """Run a program with the constructs of the library and torch's transforms."""
    go = lambda inner, value: run(inner, value, probe)  # noqa: E731
    match node.kind:
        case "emit":
            probe.emit(x * node.size)
            return x
        case "seq":
            return go(node.inner[1], go(node.inner[0], x))
        case "scan":
            steps = torch.arange(float(node.size))
            return constructs.scan(lambda carry, k: (go(node.inner[0], carry + k), k), x, steps)[0]
        case "map":
            rows = constructs.map(lambda k: go(node.inner[0], x + k), torch.arange(float(node.size)))
            return x if rows is None else rows.sum()
        case "while":
            return constructs.while_loop(lambda c: c < node.size, lambda c: go(node.inner[0], c) * 0 + c + 1, x)
        case "cond":
            first, second = node.inner
            return constructs.cond(x > node.size, lambda v: go(first, v), lambda v: go(second, v), x)
        case "vmap":
            return torch.func.vmap(lambda k: go(node.inner[0], x + k))(torch.arange(float(node.size + 1))).sum()
        case "grad":
            return torch.func.grad(lambda v: go(node.inner[0], v))(x) * 0 + x
        case "jvp":
            return torch.func.jvp(lambda v: go(node.inner[0], v), (x,), (torch.ones(()),))[0] * 0 + x
        case _:
            return torch.func.jacfwd(lambda v: go(node.inner[0], v))(x) * 0 + x


@dataclass
class Reference:
    """Runs the same program in plain loops; each offer is (place in the program, rows in order of execution)."""

    units: list[tuple[Any, dict[Any, list[float]]]] = field(default_factory=list)

    def unit(self, place: Any) -> dict[Any, list[float]]:
        for known, sites in self.units:
            if known == place:
                return sites
        self.units.append((place, {}))
        return self.units[-1][1]

    def run(self, node: Node, x: float, place: tuple[int, ...], unit: Any) -> float:
        """``unit`` is the place of the outermost construct round this node, None outside all."""
        if node.kind in CONSTRUCTS and unit is None:
            unit = place
            self.unit(unit)
        go = lambda index, value: self.run(node.inner[index], value, (*place, index), unit)  # noqa: E731
        match node.kind:
            case "emit":
                self.unit(unit if unit is not None else place).setdefault(place, []).append(x * node.size)
                return x
            case "seq":
                return go(1, go(0, x))
            case "scan":
                for k in range(node.size):
                    x = go(0, x + k)
                return x
            case "map":
                return sum(go(0, x + k) for k in range(node.size)) if node.size else x
            case "while":
                while x < node.size:
                    go(0, x)
                    x += 1
                return x
            case "cond":
                return go(0, x) if x > node.size else go(1, x)
            case "vmap":
                return sum(go(0, x + k) for k in range(node.size + 1))
            case _:
                go(0, x)
                return x

    def offers(self) -> list[list[float]]:
        """Sites of a construct stand in program order, the true branch of a cond before the false one."""
        return [rows for _, sites in self.units for _, rows in sorted(sites.items())]


@settings(max_examples=250, deadline=None)
@given(nodes(), st.integers(0, 2))
def test_offers_equal_those_of_plain_loops(node, start):
    probe = Probe.make()
    reference = Reference()
    expected = reference.run(node, float(start), (), None)
    outcome, offers = probe.collect(lambda: run(node, torch.tensor(float(start)), probe))
    assert outcome.unwrap().item() == expected
    assert [offer.tolist() for offer in offers] == reference.offers()
