"""Every entry point leaves everything as it was: also when the model raises, in both modes, with a user's own state."""

from __future__ import annotations

import contextlib
import gc
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

import neural_flow as nf
from neural_flow.cli.main import main
from neural_flow.errors import ForwardError

Call = Callable[[nn.Module, tuple[Any, ...], dict[str, Any]], Any]


def render(**options: Any) -> Call:
    return lambda model, args, kwargs: nf.render(model, args, kwargs, **options)


def trace(**options: Any) -> Call:
    return lambda model, args, kwargs: nf.trace(model, args, kwargs, **options)


def loss_of(output: Any) -> torch.Tensor:
    return (output["logits"] if isinstance(output, dict) else output).sum()


# What runs the model on clones: nothing at all may change.
ENTRIES: dict[str, Call] = {
    "render": render(),
    "render as svg": lambda *given: nf.render(*given).to_bytes(".svg"),
    "render as png": lambda *given: nf.render(*given).to_bytes(".png"),
    "render as pdf": lambda *given: nf.render(*given).to_bytes(".pdf"),
    "render without capture": render(capture=False),
    "render in training mode": render(train=True, seed=3),
    "render gradients": render(gradients=True, loss=loss_of),
    "render saved tensors": render(saved=True),
    "color by flops": render(color_by="flops"),
    "color by time": render(color_by="time"),
    "color by memory": render(color_by="memory"),
    "color by params": render(color_by="params"),
    "trace": trace(),
    "trace ops": trace(detail="op"),
    "trace by dispatch": trace(tracer="dispatch"),
    "trace by fx": trace(topology="fx"),
    "trace by export": trace(topology="export"),
    "trace by order": trace(topology="sequential"),
    "trace without data": trace(fake=True),
    "activations": lambda *given: nf.activations(*given, select="*"),
}

USERS_RUNS: dict[str, Callable[[nn.Module], Any]] = {
    "dataflow": nf.DataflowTracer,
    "attention": lambda model: nf.AttentionTracer(model, keep="weights"),
}


@pytest.fixture(scope="module", autouse=True)
def warm() -> Iterator[None]:
    """Import what is imported on first use, so that a test sees what a call leaves behind and nothing else."""
    torch.manual_seed(0)
    layers = nn.Sequential(nn.TransformerEncoderLayer(4, 2, 8, batch_first=True), nn.Linear(4, 2))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in ("render as png", "render gradients", "trace by export", "trace without data", "color by flops"):
            with contextlib.suppress(Exception):
                ENTRIES[name](layers, (torch.rand(1, 3, 4),), {})
    gc.collect()
    gc.freeze()  # what is alive now is not looked at again
    yield
    gc.unfreeze()


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Let the warnings of fallbacks and of foreign libraries pass: they are not what is asked here."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def run(entry: Call, model: nn.Module, args: Any, kwargs: Any, ending: type[BaseException] | None) -> None:
    with quiet():
        if ending is None:
            entry(model, args, kwargs)
        elif ending is RuntimeError:
            with pytest.raises(ForwardError, match="stopped on purpose"):
                entry(model, args, kwargs)
        else:
            with pytest.raises(ending):
                entry(model, args, kwargs)


ALWAYS = {
    "render as png": (None,),
    "render gradients": (None,),
    "color by memory": (KeyboardInterrupt,),
    "trace by dispatch": (KeyboardInterrupt,),
    "trace by fx": (None, RuntimeError),
    "trace by export": (None,),
    "trace without data": (None,),
    "activations": (RuntimeError,),
}
ENDINGS = (None, RuntimeError, KeyboardInterrupt)


@pytest.mark.parametrize(
    ("name", "ending"),
    [
        pytest.param(name, ending, marks=() if ending in ALWAYS.get(name, ()) else pytest.mark.slow)
        for name in ENTRIES
        for ending in ENDINGS
    ],
)
def test_nothing_is_changed(name, ending, untouched, restless):
    model, args, kwargs = restless
    model.ending = ending
    model.train(ending is not RuntimeError)
    model.frozen.eval()
    with untouched(model, (args, kwargs)):
        run(ENTRIES[name], model, args, kwargs, ending)


@pytest.mark.parametrize("is_training", [True, False])
@pytest.mark.parametrize("name", ["trace", "render", pytest.param("activations", marks=pytest.mark.slow)])
def test_nothing_is_changed_in_either_mode(name, is_training, untouched, restless):
    model, args, kwargs = restless
    model.train(is_training)
    model.frozen.eval()
    with untouched(model, (args, kwargs)):
        run(ENTRIES[name], model, args, kwargs, None)


class Passing(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


class PassingBelow(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


@contextlib.contextmanager
def default_dtype() -> Iterator[None]:
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)


CONTEXTS: dict[str, Callable[[], Any]] = {
    "no_grad": torch.no_grad,
    "inference": torch.inference_mode,
    "autocast": lambda: torch.autocast("cpu", torch.bfloat16),
    "anomaly": lambda: torch.autograd.detect_anomaly(check_nan=False),
    "device": lambda: torch.device("cpu"),
    "dtype": default_dtype,
    "function mode": Passing,
    "dispatch mode": PassingBelow,
    "saved tensors": lambda: torch.autograd.graph.saved_tensors_hooks(lambda t: t.clone(), lambda t: t),
    "deterministic": lambda: torch.random.fork_rng(devices=[]),
}
USUAL = {"no_grad", "inference", "autocast", "function mode", "saved tensors"}


@pytest.mark.parametrize("ending", [None, pytest.param(RuntimeError, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "context", [pytest.param(name, marks=() if name in USUAL else pytest.mark.slow) for name in CONTEXTS]
)
def test_a_context_of_the_user_stays_on(context, ending, untouched, restless):
    model, args, kwargs = restless
    model.ending = ending
    with quiet(), CONTEXTS[context](), untouched(model, (args, kwargs)):
        run(ENTRIES["render"], model, args, kwargs, ending)


@pytest.mark.parametrize("ending", [None, ValueError, KeyboardInterrupt])
@pytest.mark.parametrize("name", USERS_RUNS)
def test_a_tracer_adds_nothing_to_what_the_model_does(name, ending, untouched, restless):
    model, args, kwargs = restless
    model.ending = ending
    raises = contextlib.nullcontext() if ending is None else pytest.raises(ending)
    with untouched(model, has_bits=False), raises, USERS_RUNS[name](model):
        model(*args, **kwargs)


@pytest.mark.parametrize("name", USERS_RUNS)
def test_a_traced_run_is_bit_for_bit_an_untraced_one(name):
    results = []
    for is_traced in (False, True):
        torch.manual_seed(3)
        model = nn.Sequential(
            nn.Linear(4, 4),
            nn.Dropout(0.5),
            nn.TransformerEncoderLayer(4, 2, 8, batch_first=True),
            nn.BatchNorm1d(3),
            nn.Identity(),
            nn.Flatten(),
        )
        x = torch.rand(2, 3, 4, requires_grad=True)
        with USERS_RUNS[name](model) if is_traced else contextlib.nullcontext():
            output = model(x)
        output.square().sum().backward()
        state = [*model.state_dict().values(), *(param.grad for param in model.parameters()), x.grad, output.detach()]
        results.append([*state, torch.get_rng_state()])
    for plain, traced in zip(*results, strict=True):
        assert torch.equal(plain, traced)


@pytest.mark.parametrize("ending", [None, pytest.param(RuntimeError, marks=pytest.mark.slow), KeyboardInterrupt])
@pytest.mark.parametrize(
    "name", ["activations", *(pytest.param(name, marks=pytest.mark.slow) for name in ("render gradients", "render"))]
)
def test_a_pending_backward_still_works(name, ending, untouched):
    net = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Tanh(), nn.Linear(4, 1))
    x = torch.rand(5, 4, requires_grad=True)
    expected = torch.autograd.grad(net(x).sum(), [x, *net.parameters()])
    pending = net(x).sum()
    stop = _Stop(ending)
    if ending is not None:
        net.append(stop)
    with untouched(net, x):
        run(ENTRIES[name], net, (x,), {}, ending)
    assert all(
        torch.equal(a, b) for a, b in zip(torch.autograd.grad(pending, [x, *net.parameters()]), expected, strict=True)
    )


class _Stop(nn.Module):
    def __init__(self, ending: type[BaseException] | None) -> None:
        super().__init__()
        self.ending = ending

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.ending is not None:
            raise self.ending("stopped on purpose")
        return x


def test_figures_in_a_training_loop_change_no_bit_of_it():
    def train(has_figures: bool) -> list[torch.Tensor]:
        torch.manual_seed(1)
        model = nn.Sequential(
            nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.Dropout(0.3), nn.Flatten(),
            nn.Linear(64, 3),
        )  # fmt: skip
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
        entries = [ENTRIES[name] for name in ("render in training mode", "activations", "render")]
        for step in range(3):
            x, target = torch.randn(4, 3, 4, 4), torch.randint(3, (4,))
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x), target)
            if has_figures:
                with quiet():
                    entries[step](model, (x,), {})
            loss.backward()
            if has_figures and step == 1:
                with quiet():
                    nf.trace(model, (x,))
            optimizer.step()
        return [*(value.clone() for value in model.state_dict().values()), torch.get_rng_state()]

    plain, drawn = train(False), train(True)
    assert all(torch.equal(a, b) for a, b in zip(plain, drawn, strict=True))


MODEL_FILE = """\
import random
import torch
from torch import nn

torch.set_default_dtype(torch.float64)
random.seed(1)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 2)

    def forward(self, x):
        {body}
        return self.last(self.norm(self.first(x.double())))


def neural_flow_inputs():
    return torch.rand(3, 4)
"""


@pytest.mark.parametrize(
    ("body", "code"), [("pass", 0), ("raise RuntimeError('stopped')", 4), ("raise KeyboardInterrupt", 130)]
)
def test_the_command_changes_nothing_but_its_output(body, code, untouched, folder, capsys):
    file = folder / "net.py"
    file.write_text(MODEL_FILE.format(body=body))
    output = folder.parent / "out.svg"
    with untouched():
        assert main(["render", str(file), "-o", str(output)]) == code, capsys.readouterr().err
    assert output.exists() == (code != 130)
