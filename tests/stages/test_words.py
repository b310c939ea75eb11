"""Frames that people would name, and names for modules whose path says nothing."""

from __future__ import annotations

import torch
from torch import nn

from neural_flow.capture.metadata import run_metadata_pass
from neural_flow.records import Request
from neural_flow.stages.select import select_stages


def selection_of(model, *args, **request):
    return select_stages(run_metadata_pass(model.eval(), args), Request(**request))


def labels(selection):
    return [stage.label for stage in selection.stages if stage.kind in ("module", "op")]


def titles(selection):
    return [group.label for group in selection.groups if group.label]


class Double(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.one = nn.Conv2d(inputs, outputs, 3, padding=1)
        self.two = nn.Conv2d(outputs, outputs, 3, padding=1)

    def forward(self, x):
        return self.two(self.one(x).relu())


class Level(nn.Module):
    """One level of a recursive U-Net."""

    def __init__(self, width, depth):
        super().__init__()
        self.down = Double(width, 2 * width)
        self.inner = Level(2 * width, depth - 1) if depth else Double(2 * width, 2 * width)
        self.up = Double(4 * width, width)

    def forward(self, x):
        y = self.down(x)
        return self.up(torch.cat([y, self.inner(y)], dim=1))


class Stack(nn.Module):
    def __init__(self, *parts):
        super().__init__()
        self.parts = nn.ModuleList(parts)

    def forward(self, x):
        for part in self.parts:
            x = part(x)
        return x


def test_levels_of_a_recursion_are_no_frames():
    net = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), Level(4, 3), nn.Conv2d(4, 1, 1))
    assert titles(selection_of(net, torch.randn(1, 3, 16, 16))) == []


def test_a_stack_of_stacks_is_a_frame():
    """Its class lies inside itself, but several times: nobody would call that a recursion."""

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.encoder = Stack(*(Stack(Double(4, 4), nn.Conv2d(4, 4, 1)) for _ in range(2)))
            self.decoder = Stack(*(Stack(nn.Conv2d(4, 4, 1), nn.Conv2d(4, 4, 5, padding=2)) for _ in range(2)))

        def forward(self, x):
            return self.decoder(self.encoder(x))

    made = selection_of(Net(), torch.randn(1, 4, 16, 16), detail="layer", has_folds=False)
    assert titles(made) == ["encoder", "decoder"]


def test_a_container_that_is_only_numbered_is_no_frame_and_a_class_names_one():
    def pair():
        return nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8), nn.Linear(8, 4), nn.Linear(4, 8))

    numbered = nn.Sequential(pair(), pair(), nn.Linear(8, 2))
    made = selection_of(numbered, torch.randn(2, 8), detail="layer", has_folds=False)
    assert titles(made) == []
    assert [group.module for group in made.groups] == ["0", "1"]
    classes = nn.Sequential(Double(3, 4), Stack(nn.Conv2d(4, 4, 1), nn.Conv2d(4, 2, 1), nn.Conv2d(2, 2, 1)))
    made = selection_of(classes, torch.randn(1, 3, 8, 8), detail="layer", has_folds=False)
    assert titles(made) == ["Double", "Stack"]


def test_a_plain_container_is_called_after_what_it_does():
    net = nn.Sequential(
        nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU()),
        nn.Sequential(nn.ReLU(), nn.Sequential(Double(4, 4), nn.Dropout())),
        nn.Sequential(nn.Upsample(scale_factor=2), nn.Conv2d(4, 4, 3), nn.Conv2d(4, 4, 1)),
        nn.Sequential(nn.Flatten(), nn.LazyLinear(3)),
    )
    net(torch.randn(1, 3, 16, 16))
    made = selection_of(net, torch.randn(1, 3, 16, 16), select=("?",))
    assert labels(made) == ["Conv2d", "Double", "up", "Linear"]


def test_a_range_of_numbers_says_what_it_counts():
    parts = [part for k in range(4) for part in (nn.Conv2d(4, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU())]
    made = selection_of(nn.Sequential(nn.Conv2d(3, 4, 3), *parts), torch.randn(1, 3, 16, 16))
    assert [fold.label for fold in made.folds] == ["Conv2d 1 … 10"]


def test_ops_are_told_apart_by_the_module_that_ran_them_and_counted_in_its_frame():
    class Tower(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)

        def forward(self, x):
            return self.second(self.first(x).relu()).relu()

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.left, self.right, self.head = Tower(), Tower(), nn.Linear(4, 2)
            self.gate = nn.Sequential(nn.Linear(4, 4), nn.ReLU())

        def forward(self, x):
            return self.head(self.gate(self.left(x) + self.right(x)) + x)

    made = selection_of(Net(), torch.randn(2, 4), detail="op", has_folds=False)
    assert labels(made) == [
        "linear first", "relu", "linear second", "relu (2nd)",
        "linear first", "relu", "linear second", "relu (2nd)",
        "add", "linear gate.0", "relu", "add (2nd)", "linear head",
    ]  # fmt: skip


def test_a_run_that_hands_out_every_result_is_not_dense():
    class Taps(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList(Double(4, 4) for _ in range(6))
            self.head = nn.Conv2d(24, 2, 1)

        def forward(self, x):
            found = []
            for layer in self.layers:
                x = layer(x)
                found.append(x)
            return self.head(torch.cat(found, dim=1))

    (fold,) = selection_of(Taps(), torch.randn(1, 4, 8, 8)).folds
    assert (fold.count, fold.is_dense) == (6, False)


def test_a_run_in_which_everything_reads_everything_before_is_dense():
    class Dense(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList(nn.Sequential(nn.LazyConv2d(4, 1), nn.Conv2d(4, 4, 1)) for _ in range(6))
            self.head = nn.LazyConv2d(2, 1)

        def forward(self, x):
            found = [x]
            for layer in self.layers:
                found.append(layer(torch.cat(found, dim=1)))
            return self.head(torch.cat(found, dim=1))

    net, x = Dense(), torch.randn(1, 4, 8, 8)
    net(x)
    (fold,) = selection_of(net, x).folds
    assert (fold.count, fold.is_dense) == (6, True)
