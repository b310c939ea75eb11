"""Choosing what is opened and what stays closed, and containers that never run."""

from __future__ import annotations

import torch
from asked import edges, edges_of, topology_of
from torch import nn


class ResnetBlock(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(size, size, 3, padding=1), nn.Conv2d(size, size, 1)
        self.norm = nn.GroupNorm(1, size)

    def forward(self, x):
        return x + self.conv2(self.norm(self.conv1(x)))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.down = nn.Sequential(ResnetBlock(4), nn.Conv2d(4, 4, 2, 2))
        self.deep = nn.ModuleDict({"middle": nn.Sequential(ResnetBlock(4), ResnetBlock(4))})
        self.up = nn.ConvTranspose2d(4, 4, 2, 2)

    def forward(self, x):
        return x + self.up(self.deep["middle"](self.down(x)))


def test_blocks_are_chosen_by_class_at_any_depth():
    found = edges_of(Net(), torch.rand(1, 4, 8, 8), types=["ResnetBlock", "ConvTranspose2d"])
    assert ("x", "down.0") in found
    assert ("deep.middle.0", "deep.middle.1") in found
    assert not any("conv1" in name for pair in found for name in pair)


def test_blocks_are_chosen_by_path():
    found = edges_of(Net(), torch.rand(1, 4, 8, 8), select=["down.*", "deep.*", "up"])
    assert found == {
        ("x", "down.0"), ("down.0", "down.1"), ("down.1", "deep.middle"), ("deep.middle", "up"), ("up", "output"),
        ("x", "output"),
    }  # fmt: skip


def test_one_block_is_closed_and_the_rest_stays_open():
    names = {one.name for one in topology_of(Net(), torch.rand(1, 4, 8, 8), collapse=["ResnetBlock"]).stages}
    assert {"down.0", "deep.middle.0", "deep.middle.1", "up"} <= names
    assert "down.0.conv1" not in names


class Looped(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(4 + number, 5 + number) for number in range(3))
        self.stem, self.head = nn.Linear(3, 4), nn.Linear(7, 2)

    def forward(self, x):
        x = self.stem(x)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


def test_a_list_that_never_runs_groups_what_is_in_it():
    topology = topology_of(Looped(), torch.rand(1, 3))
    assert edges(topology) == {
        ("x", "stem"), ("stem", "layers.0"), ("layers.0", "layers.1"), ("layers.1", "layers.2"), ("layers.2", "head"),
        ("head", "output"),
    }  # fmt: skip
    names = {one.stage_id: one.name for one in topology.stages}
    assert {group.module: [names[key] for key in group.stage_ids] for group in topology.groups} == {
        "layers": ["layers.0", "layers.1", "layers.2"]
    }
