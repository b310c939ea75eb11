"""Values flow through every kind of code that a forward may hold."""

from __future__ import annotations

import copy
import dataclasses
import pickle
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from capture_flow import SIZE, Between, reaches, rows, trace_of
from torch import nn
from torch.utils.checkpoint import checkpoint

pytestmark = pytest.mark.usefixtures("nothing_left")


class _Exp(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.exp()


class _Same(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x


class _View(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.view_as(x)


class _Dirty(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.mark_dirty(x)
        return x.add_(1)


class _TwoParts(torch.autograd.Function):
    @staticmethod
    def forward(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x * 2, x + 1

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        pass


class _Subclass(torch.Tensor):
    pass


@dataclasses.dataclass
class _Box:
    value: torch.Tensor
    label: str = ""


def _with(write: Callable[[torch.Tensor, torch.Tensor], Any]) -> Callable[[torch.Tensor], torch.Tensor]:
    """Code that writes x into a buffer of zeros and returns the buffer."""

    def code(x: torch.Tensor) -> torch.Tensor:
        buffer = torch.zeros(4, SIZE)
        write(buffer, x)
        return buffer

    return code


def _packed(x: torch.Tensor, rnn: nn.Module) -> torch.Tensor:
    packed = nn.utils.rnn.pack_padded_sequence(x.view(2, 2, SIZE), torch.tensor([2, 1]), batch_first=True)
    output, _ = rnn(packed)
    return nn.utils.rnn.pad_packed_sequence(output, batch_first=True)[0].reshape(-1, SIZE)


def _set_attribute(y: torch.Tensor, x: torch.Tensor) -> None:
    y.data = x


def _inferred(x: torch.Tensor) -> torch.Tensor:
    with torch.inference_mode():
        buffer = torch.zeros(4, SIZE)
        buffer[0].add_(x[0])
        return F.relu(buffer * 1, inplace=True)


CODE: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "add": lambda x: x + 1,
    "reflected": lambda x: 1 - x,
    "cat": lambda x: torch.cat([x, x])[:4],
    "getitem": lambda x: x[:, :],
    "einsum": lambda x: torch.einsum("ij,kj->ij", x, x),
    "unbind": lambda x: torch.stack(x.unbind(0)),
    "iteration": lambda x: torch.stack([*x]),
    "unpacking": lambda x: torch.stack((lambda a, b, c, d: [b, a, d, c])(*x)),
    "T": lambda x: x.T.T,
    "data": lambda x: x.data,
    "real": lambda x: torch.complex(x, x).real,
    "fft": lambda x: torch.fft.irfft(torch.fft.rfft(x) * (1 + 1j)),
    "out": _with(lambda y, x: torch.add(x, 1, out=y)),
    "iadd": _with(lambda y, x: y.__iadd__(x)),
    "setitem": _with(lambda y, x: y.__setitem__((slice(None), slice(4)), x[:, :4])),
    "setitem mask": _with(lambda y, x: y.__setitem__(y == 0, x.flatten())),
    "setitem index": _with(lambda y, x: y.__setitem__(torch.tensor([0, 2]), x[:2])),
    "setitem scalar tensor": _with(lambda y, x: y.__setitem__(torch.tensor(2), x[0])),
    "view add_": _with(lambda y, x: y[:, :4].add_(x[:, :4])),
    "view copy_": _with(lambda y, x: y[:, :4].copy_(x[:, :4])),
    "unbind copy_": _with(lambda y, x: y.unbind(0)[0].copy_(x[0])),
    "data copy_": _with(lambda y, x: y.data.copy_(x)),
    "data =": _with(_set_attribute),
    "set_": _with(lambda y, x: y.set_(x)),
    "set_ storage": _with(lambda y, x: y.set_(x.untyped_storage(), 0, (4, SIZE))),
    "map_": _with(lambda y, x: y.map_(x, lambda _, b: b)),
    "masked_scatter_": _with(lambda y, x: y.masked_scatter_(torch.ones(4, SIZE, dtype=torch.bool), x)),
    "index_put_": _with(lambda y, x: y.index_put_((torch.arange(4),), x)),
    "foreach": lambda x: torch._foreach_add([x], [x])[0],
    "foreach_": _with(lambda y, x: torch._foreach_add_([y], [x])),
    "Parameter": lambda x: nn.Parameter(x),
    "as_subclass": lambda x: x.as_subclass(_Subclass),
    "Function": _Exp.apply,
    "Function same": _Same.apply,
    "Function view": _View.apply,
    "Function dirty": lambda x: _Dirty.apply(x * 1),
    "Function two": lambda x: _TwoParts.apply(x)[1],
    "checkpoint": lambda x: checkpoint(lambda z: z.exp() * 2, x, use_reentrant=False),
    "checkpoint reentrant": lambda x: checkpoint(lambda z: z.exp() * 2, x, use_reentrant=True),
    "sparse": lambda x: torch.sparse.mm(torch.eye(4).to_sparse(), x),
    "to_sparse": lambda x: x.to_sparse().to_dense(),
    "csr": lambda x: x.to_sparse_csr() @ torch.eye(SIZE),
    "sparse values": lambda x: torch.sparse_coo_tensor(torch.arange(4)[None], x, (4, SIZE)).to_dense(),
    "jagged": lambda x: (torch.nested.nested_tensor_from_jagged(x, torch.tensor([0, 1, 4])) * 2).values(),
    "quantized": lambda x: torch.dequantize(torch.quantize_per_tensor(x, 0.1, 0, torch.qint8)),
    "bfloat16": lambda x: (x.bfloat16() * 2).float(),
    "sdpa": lambda x: F.scaled_dot_product_attention(x[None], x[None], x[None])[0],
    "torch.ops": lambda x: torch.ops.aten.add.Tensor(x, torch.ops.aten.relu(x)),
    "qr": lambda x: torch.linalg.qr(x).Q @ torch.ones(4, SIZE),
    "mask index": lambda x: x[x.sum(1) > -1],
    "where": lambda x: torch.where(x > 0, 1.0, 0.0),
    "vmap": lambda x: torch.func.vmap(torch.sin, in_dims=1, out_dims=1)(x),
    "grad": lambda x: torch.func.grad(lambda z: (z**2).sum())(x),
    "vmap grad": lambda x: torch.func.vmap(torch.func.grad(lambda r: r.sum() ** 2))(x),
    "jvp": lambda x: torch.func.jvp(torch.sin, (x,), (torch.ones_like(x),))[1],
    "jacrev": lambda x: torch.func.jacrev(lambda z: z * 2)(x[0]).sum(0).expand(4, SIZE),
    "deepcopy": copy.deepcopy,
    "object": lambda x: _Box(x * 2).value,
    "inference": _inferred,
    "new_tensor": lambda x: torch.zeros(1).new_tensor(x),
    "broadcast": lambda x: torch.broadcast_tensors(torch.zeros(1, SIZE), x)[1],
    "resize": lambda x: (x * 1).resize_(4, SIZE),
    "in-place views": lambda x: x.unsqueeze_(0).squeeze_(0),
}

OPAQUE_CODE: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "numpy": lambda x: torch.from_numpy(np.exp(x.numpy())),
    "numpy tensor": lambda x: torch.tensor(np.exp(x.numpy())),
    "numpy as_tensor": lambda x: torch.as_tensor(np.asarray(x) * 2),
    "pickle": lambda x: pickle.loads(pickle.dumps(x)),
}


@pytest.mark.parametrize("name", CODE)
@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")
def test_values_flow_through(name: str) -> None:
    trace = trace_of(Between(CODE[name]), rows())
    assert reaches(trace, "first", "last")
    assert not [op for op in trace.ops if op.role in ("unknown", "opaque")]
    assert trace.tracer == "function"


@pytest.mark.parametrize("name", OPAQUE_CODE)
def test_values_flow_through_code_out_of_sight(name: str) -> None:
    trace = trace_of(Between(OPAQUE_CODE[name]), rows())
    assert reaches(trace, "first", "last")
    assert [op.role for op in trace.ops].count("opaque") == 1


def test_bytes_shared_with_an_array_are_no_new_value() -> None:
    trace = trace_of(Between(lambda x: torch.from_numpy(x.numpy())), rows())
    assert reaches(trace, "first", "last")
    assert not [op for op in trace.ops if op.role in ("unknown", "opaque")]


@pytest.mark.parametrize(
    "make",
    [
        lambda: (nn.LSTM(SIZE, SIZE, batch_first=True), lambda x, m: m(x[None])[0][0]),
        lambda: (nn.LSTM(SIZE, SIZE, batch_first=True), lambda x, m: m(x[None])[1][1][0].expand(4, SIZE)),
        lambda: (nn.LSTM(SIZE, SIZE, batch_first=True), _packed),
        lambda: (nn.GRU(SIZE, SIZE, batch_first=True), _packed),
        lambda: (nn.GRUCell(SIZE, SIZE), lambda x, m: m(x)),
        lambda: (nn.LSTMCell(SIZE, SIZE), lambda x, m: m(x)[1]),
        lambda: (nn.MultiheadAttention(SIZE, 2, batch_first=True), lambda x, m: m(x[None], x[None], x[None])[0][0]),
        lambda: (nn.TransformerEncoderLayer(SIZE, 2, 16, batch_first=True), lambda x, m: m(x[None])[0]),
        lambda: (nn.DataParallel(nn.Linear(SIZE, SIZE)), lambda x, m: m(x)),
        lambda: (nn.utils.parametrizations.weight_norm(nn.Linear(SIZE, SIZE)), lambda x, m: m(x)),
        lambda: (nn.utils.parametrizations.spectral_norm(nn.Linear(SIZE, SIZE)), lambda x, m: m(x)),
    ],
)
def test_values_flow_through_modules(make: Callable[[], tuple[nn.Module, Callable[..., torch.Tensor]]]) -> None:
    middle, code = make()
    trace = trace_of(Between(lambda x, middle: code(x, middle), middle=middle), rows())
    assert reaches(trace, "first", "middle")
    assert reaches(trace, "middle", "last")
    assert not [op for op in trace.ops if op.role in ("unknown", "opaque")]


def test_padding_mask_keeps_the_encoder_dense() -> None:
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(SIZE, 2, 16, batch_first=True), 2)
    mask = torch.tensor([[False, False, False, True]])
    trace = trace_of(Between(lambda x, middle: middle(x[None], src_key_padding_mask=mask)[0], middle=encoder), rows())
    assert reaches(trace, "middle.layers.1", "last")
    shapes = {meta.shape for call in trace.calls if call.path.startswith("middle.layers.") for meta in call.outputs}
    assert (1, 4, SIZE) in shapes
    assert not any(meta.layout == "nested" for call in trace.calls for meta in call.outputs)


@pytest.mark.parametrize(
    "code",
    [
        torch.zeros_like,
        torch.randn_like,
        lambda x: x.new_zeros(4, SIZE),
        lambda x: torch.full_like(x, 2.0),
        lambda x: torch.ones(x.shape),
        lambda x: torch.ones(x.size(0), SIZE),
        lambda x: torch.ones(4, 1).expand_as(x),
        lambda x: torch.ones(4, SIZE, dtype=torch.float64).type_as(x),
        lambda x: torch.ones(4, SIZE).to(x),
        lambda x: (x * 1).zero_(),
        lambda x: (x * 1).copy_(torch.ones(4, SIZE)),
        lambda x: torch.ones(4, SIZE) * x.shape[0],
        lambda x: torch.broadcast_tensors(torch.ones(1, SIZE), x)[0],
        lambda x: torch._foreach_mul([x, torch.ones(4, SIZE)], [x, torch.ones(4, SIZE)])[1],
    ],
)
def test_lending_a_shape_is_no_dependency(code: Callable[[torch.Tensor], torch.Tensor]) -> None:
    assert not reaches(trace_of(Between(code), rows()), "first", "last")


@pytest.mark.filterwarnings("ignore:To copy construct from a tensor:UserWarning")
@pytest.mark.parametrize(
    "code",
    [
        lambda x: torch.zeros(4, SIZE).new_tensor(x),
        lambda x: torch.mul(x, 2, out=x),
        lambda x: x.type_as(torch.ones(1)),
        lambda x: torch.full((4, SIZE), 0.0).fill_(x.sum()),
        lambda x: x[:1].expand_as(torch.ones(4, SIZE)),
    ],
)
def test_data_arguments_stay_dependencies(code: Callable[[torch.Tensor], torch.Tensor]) -> None:
    assert reaches(trace_of(Between(code), rows()), "first", "last")


class _Plain(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(SIZE, SIZE)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x).relu()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("kind", ["script", "trace"])
def test_a_scripted_child_is_one_opaque_op(kind: str) -> None:
    middle = torch.jit.script(_Plain()) if kind == "script" else torch.jit.trace(_Plain(), rows())
    trace = trace_of(Between(lambda x, middle: middle(x), middle=middle), rows())
    assert reaches(trace, "first", "middle")
    assert reaches(trace, "middle", "last")
    opaque = [op for op in trace.ops if op.role == "opaque"]
    assert [trace.calls[op.call_id or 0].path for op in opaque] == ["middle"]
    info = next(info for info in trace.modules if info.path == "middle")
    assert (info.is_scripted, info.class_name, info.num_params) == (True, "_Plain", SIZE * SIZE + SIZE)
    assert trace.tracer == "function"


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_compiled_child_runs_eagerly_under_its_own_path() -> None:
    trace = trace_of(Between(lambda x, middle: middle(x), middle=torch.compile(_Plain())), rows())
    assert reaches(trace, "first", "middle.linear")
    assert reaches(trace, "middle.linear", "last")
    assert [call.path for call in trace.calls] == ["", "first", "middle", "middle.linear", "last"]


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors:UserWarning")
def test_the_dispatch_tracer_is_chosen_where_the_function_mode_is_blind() -> None:
    trace = trace_of(Between(lambda x: torch.nested.nested_tensor([x, x]).unbind()[0]), rows())
    assert trace.tracer == "dispatch"
    assert reaches(trace, "first", "last")


def test_work_in_another_thread_is_of_unknown_origin() -> None:
    def code(x: torch.Tensor) -> torch.Tensor:
        results: list[torch.Tensor] = []
        thread = threading.Thread(target=lambda: results.append(x * 2))
        thread.start()
        thread.join()
        return results[0]

    trace = trace_of(Between(code), rows())
    assert [op.role for op in trace.ops if op.role != "op"] == ["input", "unknown"]


class _HalfInThread(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.seen, self.unseen = nn.Linear(SIZE, SIZE), nn.Linear(SIZE, SIZE)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        results: list[torch.Tensor] = []
        hidden = self.seen(x)
        thread = threading.Thread(target=lambda: results.append(self.unseen(hidden)))
        thread.start()
        thread.join()
        return results[0]


def test_what_goes_out_of_sight_is_what_nobody_read() -> None:
    trace = trace_of(Between(lambda x, middle: middle(x), middle=_HalfInThread()), rows())
    assert reaches(trace, "middle.seen", "last")
    opaque = next(op for op in trace.ops if op.role == "opaque")
    assert opaque.parents == next(call for call in trace.calls if call.path == "middle.seen").output_refs[0]


class _InThread(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(SIZE, SIZE)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        results: list[torch.Tensor] = []
        thread = threading.Thread(target=lambda: results.append(self.inner(x)))
        thread.start()
        thread.join()
        return results[0]


def test_work_in_another_thread_becomes_opaque_at_the_module_boundary() -> None:
    trace = trace_of(Between(lambda x, middle: middle(x), middle=_InThread()), rows())
    assert reaches(trace, "first", "last")
    assert [call.path for call in trace.calls] == ["", "first", "middle", "last"]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_branches_of_a_conditional_read_what_they_close_over() -> None:
    class Branching(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.left, self.last = (nn.Linear(SIZE, SIZE) for _ in range(3))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = self.first(x)
            return self.last(torch.cond(x.sum() > 0, lambda z: self.left(z) + y, lambda z: z - y, (x,)))

    trace = trace_of(Branching(), rows())
    assert reaches(trace, "first", "last")
    assert [call.path for call in trace.calls] == ["", "first", "left", "last"]


def test_gradients_come_from_the_loss_of_a_backward_pass() -> None:
    class Adapting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.fast, self.last = (nn.Linear(SIZE, SIZE) for _ in range(3))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            with torch.enable_grad():
                self.fast(self.first(x)).pow(2).mean().backward()
            assert self.fast.weight.grad is not None
            return self.last(self.fast.weight.grad @ torch.ones(SIZE, SIZE))

    model = Adapting()
    trace = trace_of(model, rows())
    assert reaches(trace, "first", "last")
    assert model.fast.weight.grad is None
