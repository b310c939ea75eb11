"""Hand-written programs of every kind, on three layers and a head."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint


def lin(size_in: int = 4, size_out: int = 4) -> nn.Linear:
    return nn.Linear(size_in, size_out)


class Program(nn.Module):
    """Three layers a, b, c and a head, used by ``program``."""

    def __init__(self, program: Callable[[Program, torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.a, self.b, self.c, self.head = lin(), lin(), lin(), lin()
        self.program = program

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.program(self, x)


PROGRAMS: dict[str, Callable[[Program, torch.Tensor], torch.Tensor]] = {}


def program(
    function: Callable[[Program, torch.Tensor], torch.Tensor],
) -> Callable[[Program, torch.Tensor], torch.Tensor]:
    PROGRAMS[function.__name__] = function
    return function


@program
def chain(m, x):
    return m.head(m.b(m.a(x)))


@program
def residual(m, x):
    y = m.a(x)
    return m.head(y + m.b(y))


@program
def inplace_add(m, x):
    y = m.a(x)
    y += m.b(x)
    return m.head(y)


@program
def relu_in_place_then_both(m, x):
    y = m.a(x)
    z = F.relu(y, inplace=True)
    return m.head(y + z)


@program
def write_into_slice(m, x):
    buffer = torch.zeros(x.shape[0], 8)
    buffer[:, :4] = m.a(x)
    buffer[:, 4:] = m.b(x)
    return m.head(buffer[:, :4]) + m.c(buffer[:, 4:])


@program
def write_through_a_view(m, x):
    buffer = torch.zeros(x.shape[0], 4)
    view = buffer[:, :2]
    view.add_(m.a(x)[:, :2])
    return m.head(buffer)


@program
def overwritten_value_is_gone(m, x):
    y = m.a(x)
    y.copy_(m.b(x))
    return m.head(y)


@program
def data_attribute(m, x):
    y = torch.zeros(x.shape[0], 4)
    y.data.copy_(m.a(x))
    return m.head(y)


@program
def assigned_data(m, x):
    y = torch.zeros(x.shape[0], 4)
    y.data = m.a(x)
    return m.head(y)


@program
def out_argument(m, x):
    y = torch.empty(x.shape[0], 4)
    torch.add(m.a(x), m.b(x), out=y)
    return m.head(y)


@program
def only_the_shape(m, x):
    y = m.a(x)
    return m.head(torch.ones_like(y)) + m.b(torch.full(y.shape, 0.5)) + m.c(y.new_zeros(y.shape))


@program
def data_of_a_factory(m, x):
    y = m.a(x)
    return m.head(torch.full_like(x, 0.0).add_(y.mean()))


@program
def stack_unbind_cat(m, x):
    parts = torch.stack([m.a(x), m.b(x)]).unbind(0)
    return m.head(torch.cat([parts[1][:, :2], parts[0][:, 2:]], dim=1))


@program
def unpicked_part_is_no_edge(m, x):
    first, second = torch.chunk(torch.cat([m.a(x), m.b(x)], dim=1), 2, dim=1)
    return m.head(first) + m.c(second)


@program
def einsum_and_where(m, x):
    y, z = m.a(x), m.b(x)
    return m.head(torch.where(y > 0, torch.einsum("bi,bj->bi", y, z), z))


@program
def checkpointed(m, x):
    return m.head(checkpoint(lambda t: m.b(m.a(t)), x, use_reentrant=False))


@program
def complex_spectrum(m, x):
    spectrum = torch.fft.rfft(m.a(x)) * torch.view_as_complex(torch.ones(3, 2))
    return m.head(torch.fft.irfft(spectrum, n=4))


@program
def called_by_forward(m, x):
    return m.head(m.b.forward(m.a(x)))


@program
def caught_failure(m, x):
    y = m.a(x)
    try:
        m.b(y[:, :3])
    except RuntimeError:
        y = y * 2
    return m.head(y)


@program
def functional_transform(m, x):
    y = m.a(x)
    return m.head(torch.func.vmap(lambda row: row * 2 + row.sum())(y))


@program
def custom_function(m, x):
    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx, t):
            return t * 2

        @staticmethod
        def backward(ctx, g):
            return g * 2

    return m.head(Double.apply(m.a(x)))


@program
def subclass(m, x):
    class Named(torch.Tensor):
        pass

    return m.head((m.a(x).as_subclass(Named) + 1).as_subclass(torch.Tensor))


@program
def sparse_product(m, x):
    adjacency = torch.eye(x.shape[0]).to_sparse()
    return m.head(torch.sparse.mm(adjacency, m.a(x)))


@program
def half_precision(m, x):
    return m.head(m.a(x).bfloat16().mul(2).float())


@program
def the_same_layer_three_times(m, x):
    for _ in range(3):
        x = m.a(x)
    return m.head(x)


@program
def loop_of_unknown_length(m, x):
    y = m.a(x)
    while y.abs().max() > 0.3:
        y = m.b(y) * 0.1
    return m.head(y)


@program
def mixture(m, x):
    y = m.a(x)
    chosen = y[:, 0] > y[:, 1]
    out = torch.zeros_like(y)
    out[chosen] = m.b(y[chosen])
    out[~chosen] = m.c(y[~chosen])
    return m.head(out)


@program
def through_a_set_and_a_dict(m, x):
    box = {"y": m.a(x), "more": (m.b(x), [m.c(x)])}
    return m.head(box["y"] + box["more"][1][0])


@program
def dataclass_carrier(m, x):
    @dataclass
    class Pair:
        first: torch.Tensor
        second: torch.Tensor

    pair = Pair(m.a(x), m.b(x))
    return m.head(pair.first * pair.second)


@program
def parts_of_a_stack(m, x):
    first, second = torch.stack([m.a(x), m.b(x)]).unbind(0)
    return m.head(first) + m.c(second)


@program
def one_part_of_three(m, x):
    rows = torch.vstack([m.a(x), m.b(x), m.c(x)])
    return m.head(rows[8:17][3:9])


@program
def part_of_a_part(m, x):
    whole = torch.cat((m.a(x), m.b(x)), -1)[:, 2:7]
    return m.head(torch.cat([whole[:, :2], whole[:, :2]], 1)) + m.c(whole[:, 1:])


@program
def part_written_over(m, x):
    whole = torch.cat([m.a(x), m.b(x)], 1)
    whole[:, :4] += m.c(x)
    return m.head(whole[:, 4:]) + whole[:, :4]


@program
def part_overwritten_with_another(m, x):
    whole = torch.hstack([m.a(x), m.b(x)])
    left = whole[:, :4]
    left.copy_(m.c(x))
    return m.head(left[:, :2].repeat(1, 2)) + whole.chunk(2, 1)[1]


@program
def parts_moved_and_read(m, x):
    moved = torch.stack([m.a(x), m.b(x), m.c(x)], dim=1).transpose(0, 1)
    return m.head(moved[2]) + moved[:2].sum(0)
