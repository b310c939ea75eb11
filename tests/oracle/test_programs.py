"""Hand-written programs of every kind: the traced edges contain all that interventions show, and say the rest."""

from __future__ import annotations

import pytest
import torch
from programs import PROGRAMS, Program

# Edges that interventions on values cannot show, each with the reason.
UNSHOWN: dict[str, set[tuple[str, str]]] = {
    # rows are written where the gate says; another gate is another program, so it cannot be asked
    "mixture": {("a", "head")},
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_edges_equal_what_interventions_show(name, compare_with_oracle):
    torch.manual_seed(0)
    missing, extra = compare_with_oracle(Program(PROGRAMS[name]), (torch.randn(6, 4),), detail="layer", select="*")
    assert missing == set()
    assert extra == UNSHOWN.get(name, set())
