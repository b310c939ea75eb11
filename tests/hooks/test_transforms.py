"""Hooks under what runs, records or rewrites a module's forward and backward."""

from __future__ import annotations

import dataclasses
from collections import namedtuple

import pytest
import torch
from torch import nn
from torch.func import functional_call, grad, hessian, jacfwd, jacrev, jvp, vjp, vmap
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils.checkpoint import checkpoint

from neural_flow import nested
from neural_flow.hooks import HookedModule, HookReturnError, hooks_of, layer_of, with_hooks

# PyTorch scripts its own decompositions when forward mode is first used
FIRST_USE_OF_FORWARD_MODE = pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning")
SCRIPT_IS_DEPRECATED = pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")
LAYERS = [nn.Linear(3, 3), nn.Flatten(0), nn.Identity(), nn.Tanh()]


def hooked(layer, *back):
    wrapper, hooks = with_hooks(layer)
    for hook in back:
        hooks.add_backward_hook(hook)
    return wrapper, hooks


# Function transforms.


@pytest.mark.parametrize("layer", LAYERS)
def test_vmap_over_grad_runs_the_hook_once_for_the_batch(layer):
    ran = []
    wrapper, _ = hooked(layer, lambda g: ran.append(1) or g * 2)
    x = torch.randn(4, 3)
    expected = 2 * vmap(grad(lambda v: layer(v).sin().sum()))(x)
    assert torch.allclose(vmap(grad(lambda v: wrapper(v).sin().sum()))(x), expected)
    assert torch.allclose(vmap(vmap(grad(lambda v: wrapper(v).sin().sum())), in_dims=1, out_dims=1)(x[None]), expected)
    assert len(ran) == 2


@FIRST_USE_OF_FORWARD_MODE
@pytest.mark.parametrize("layer", LAYERS)
def test_derivatives_of_every_kind_are_those_of_the_bare_layer(layer):
    wrapper, _ = hooked(layer, lambda g: g)
    x = torch.randn(3)

    def through(module):
        return lambda v: module(v).sin().sum()

    for transform in (grad, jacrev, jacfwd, hessian):
        assert torch.allclose(transform(through(wrapper))(x), transform(through(layer))(x))
    for outer in (jacrev, jacfwd):
        for inner in (jacrev, jacfwd, grad):
            assert torch.allclose(outer(inner(through(wrapper)))(x), hessian(through(layer))(x))
    tangent = torch.randn(3)
    assert torch.allclose(jvp(wrapper, (x,), (tangent,))[1], jvp(layer, (x,), (tangent,))[1])
    assert torch.allclose(vjp(wrapper, x)[1](tangent)[0], vjp(layer, x)[1](tangent)[0])


@FIRST_USE_OF_FORWARD_MODE
@pytest.mark.parametrize("layer", LAYERS)
def test_forward_mode_tangents_pass_a_gate(layer):
    wrapper, _ = hooked(layer, lambda g: g)
    x, tangent = torch.randn(2, 3, requires_grad=True), torch.randn(2, 3)
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(x, tangent)
        output = wrapper(dual)
        assert output.grad_fn.name().startswith("BackwardHookGate")
        found, expected = (torch.autograd.forward_ad.unpack_dual(value) for value in (output, layer(dual)))
    assert torch.equal(found.tangent, expected.tangent)
    assert torch.equal(found.primal, expected.primal)


def test_per_sample_gradients_of_the_parameters():
    layer = nn.Linear(3, 2)
    wrapper, _ = hooked(layer, lambda g: g * 2)
    x = torch.randn(5, 3)

    def loss(parameters, module, sample):
        return functional_call(module, parameters, (sample,)).square().sum()

    found, expected = (
        vmap(grad(loss), in_dims=(None, None, 0))(dict(module.named_parameters()), module, x)
        for module in (wrapper, layer)
    )
    assert found.keys() == expected.keys()
    assert all(torch.allclose(found[name], 2 * expected[name]) for name in found)


def test_structured_output_under_vmap_and_grad():
    class Pair(nn.Module):
        def forward(self, x):
            return {"sin": x.sin(), "view": x.view(-1), "unused": x * 2}

    seen = []
    wrapper, _ = hooked(Pair(), lambda g: seen.append(g["unused"]) or {**g, "sin": g["sin"] * 2})

    def loss(x):
        output = wrapper(x)
        return (output["sin"] + output["view"]).sum()

    x = torch.randn(4, 3)
    assert torch.allclose(vmap(grad(loss))(x), 2 * x.cos() + 1)
    assert seen == [None]


def test_make_fx_records_what_the_hooks_do():
    wrapper, _ = hooked(nn.Linear(3, 3), lambda g: g * 2)

    def run(x):
        return torch.autograd.grad(wrapper(x).sin().sum(), x)[0]

    x = torch.randn(2, 3, requires_grad=True)
    assert torch.allclose(make_fx(run)(x)(x), run(x))


# Checkpoint, threads.


@pytest.mark.parametrize("is_reentrant", [False, True])
def test_checkpoint_runs_backward_hooks_once(is_reentrant):
    log = []
    layer = nn.Linear(3, 3)
    wrapper, hooks = hooked(layer, lambda g: log.append("back") or g * 2)
    hooks.add_forward_hook(lambda x, y: log.append("post") or y)
    x = torch.randn(2, 3, requires_grad=True)
    (expected,) = torch.autograd.grad(layer(x).sin().sum(), x)
    checkpoint(lambda x: wrapper(x).sin(), x, use_reentrant=is_reentrant).sum().backward()
    assert torch.allclose(x.grad, 2 * expected)
    assert log == ["post", "post", "back"]  # the forward runs again in backward, and its hooks with it


@pytest.mark.parametrize("is_reentrant", [False, True])
def test_checkpoint_inside_the_wrapped_layer(is_reentrant):
    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner, self.hooks = with_hooks(nn.Linear(3, 3))

        def forward(self, x):
            return checkpoint(self.inner, x, use_reentrant=is_reentrant)

    ran = []
    block = Block()
    block.hooks.add_backward_hook(lambda g: ran.append("inner") or g)
    wrapper, _ = hooked(block, lambda g: ran.append("outer") or g)
    wrapper(torch.randn(2, 3, requires_grad=True)).sum().backward()
    assert ran == ["outer", "inner"]


# torch.compile.


@pytest.fixture
def fresh_compiler():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def compiles(test):
    """Start with an empty cache, and let Dynamo look at what it must not touch."""
    test = pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")(test)
    test = pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning")(test)
    return pytest.mark.usefixtures("fresh_compiler")(test)


@compiles
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_compiled_full_graph_runs_hooks_as_eager_does(backend):
    log = []
    layer = nn.Linear(3, 3)
    wrapper, hooks = with_hooks(layer)
    model = nn.Sequential(wrapper, nn.Tanh())
    hooks.add_forward_pre_hook(lambda x: log.append("pre") or x + 1)
    hooks.add_forward_hook(lambda x, y: log.append("post") or y * 2)
    back = hooks.add_backward_hook(lambda g: log.append("back") or g * 3)
    compiled = torch.compile(model, fullgraph=True, backend=backend)
    x = torch.randn(2, 3, requires_grad=True)

    def gradient(module):
        return torch.autograd.grad(module(x).sum(), x)[0]

    assert torch.allclose(gradient(compiled), gradient(model))
    gradient(compiled)
    assert log == ["pre", "post", "back"] * 3

    log.clear()
    late = hooks.add_backward_hook(lambda g: log.append("late") or g)
    gradient(compiled)
    assert log == ["pre", "post", "back", "late"]

    log.clear()
    loss = compiled(x).sum()
    late.remove()
    loss.backward()
    assert log == ["pre", "post", "back"]

    log.clear()
    back.remove()
    gradient(compiled)
    assert log == ["pre", "post"]


@compiles
def test_errors_of_hooks_are_the_same_object_under_compile():
    error = ValueError("stop")

    def fail(*args):
        raise error

    wrapper, hooks = with_hooks(nn.Linear(3, 3))
    compiled = torch.compile(wrapper, backend="eager")
    x = torch.randn(2, 3, requires_grad=True)
    for register, run in (
        (hooks.add_forward_pre_hook, lambda: compiled(x)),
        (hooks.add_forward_hook, lambda: compiled(x)),
        (hooks.add_backward_hook, lambda: compiled(x).sum().backward()),
    ):
        handle = register(fail)
        with pytest.raises(ValueError, match="stop") as raised:
            run()
        assert raised.value is error
        handle.remove()
    assert x.grad is None


@compiles
@pytest.mark.parametrize("bad", [lambda g: None, lambda g: g[:1], lambda g: g.double(), lambda g: 3])
def test_hook_results_are_checked_under_compile(bad):
    wrapper, _ = hooked(nn.Linear(3, 3), bad)
    output = torch.compile(wrapper, fullgraph=True, backend="aot_eager")(torch.randn(2, 3))
    with pytest.raises(HookReturnError):
        output.sum().backward()
    assert layer_of(wrapper).weight.grad is None


@compiles
@pytest.mark.parametrize(
    "layer", [nn.Linear(4, 4), nn.Identity(), nn.Flatten(), nn.Sequential(nn.Linear(4, 4), nn.Unflatten(1, (2, 2)))]
)
def test_in_place_behind_a_compiled_gate_raises_or_is_right(layer):
    wrapper, _ = hooked(layer, lambda g: g)

    def run(module, x):
        h = x * 1
        y = module(h)
        y.mul_(3)
        return y.sum() + h.sum()

    x = torch.randn(2, 4, requires_grad=True)
    (expected,) = torch.autograd.grad(run(layer, x), x)
    compiled = torch.compile(run, fullgraph=True, backend="aot_eager")
    if isinstance(layer, nn.Identity | nn.Flatten):
        with pytest.raises(RuntimeError, match="modified inplace"):
            compiled(wrapper, x)
    else:
        assert torch.allclose(torch.autograd.grad(compiled(wrapper, x), x)[0], expected)


Point = namedtuple("Point", "left right")


@dataclasses.dataclass
class Data:
    left: torch.Tensor
    right: torch.Tensor


@compiles
@pytest.mark.parametrize("make", [lambda a, b: (a, b), lambda a, b: [a, (b, None)], Point, Data])
def test_structured_outputs_compile_in_full_graph_where_hooks_only_compute(make):
    class Two(nn.Module):
        def forward(self, x):
            return make(x * 2, x.sin())

    wrapper, _ = hooked(Two(), lambda g: nested.map_tensors(g, lambda t: t * 3))

    def run(x):
        return sum(leaf.sum() for _, leaf in nested.tensor_leaves(wrapper(x)))

    x = torch.randn(3, requires_grad=True)
    (found,) = torch.autograd.grad(torch.compile(run, fullgraph=True, backend="aot_eager")(x), x)
    assert torch.allclose(found, torch.autograd.grad(run(x), x)[0])


@pytest.mark.slow
@compiles
def test_structured_outputs_with_hooks_that_do_more_break_the_graph():
    class Two(nn.Module):
        def forward(self, x):
            return x * 2, x.sin()

    wrapper, hooks = hooked(Two())

    def run(x):
        return sum(leaf.sum() for _, leaf in nested.tensor_leaves(wrapper(x)))

    x = torch.randn(3, requires_grad=True)
    ran = []
    hooks.add_backward_hook(lambda g: ran.append(1) or g)
    with pytest.raises(torch._dynamo.exc.Unsupported):
        torch.compile(run, fullgraph=True, backend="eager")(x)
    torch.autograd.grad(torch.compile(run, backend="eager")(x), x)
    assert ran == [1]


@compiles
def test_module_compile_compiles_the_wrapper_and_leaves_the_layer():
    ran = []
    layer = nn.Linear(3, 3)
    wrapper, _ = hooked(layer, lambda g: ran.append(1) or g)
    wrapper.compile(backend="eager", fullgraph=True)
    wrapper(torch.randn(2, 3)).sum().backward()
    assert ran == [1]
    assert layer._compiled_call_impl is None
    assert isinstance(hooks_of(wrapper).registry.back, dict)


@pytest.mark.slow
@compiles
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_compiled_by_inductor():
    log = []
    wrapper, hooks = hooked(nn.Linear(3, 3), lambda g: log.append(g.norm().item()) or g * 2)
    hooks.add_forward_hook(lambda x, y: y.sin())
    x = torch.randn(2, 3, requires_grad=True)
    compiled = torch.compile(wrapper, fullgraph=True)
    (found,) = torch.autograd.grad(compiled(x).sum(), x)
    assert torch.allclose(found, torch.autograd.grad(wrapper(x).sum(), x)[0], atol=1e-6)
    assert log[0] == pytest.approx(log[1])


# Export, tracing, scripting.


def test_export_follows_forward_hooks():
    layer = nn.Linear(3, 3)
    wrapper, hooks = with_hooks(layer)
    hooks.add_forward_pre_hook(lambda x: x + 1)
    hooks.add_forward_hook(lambda x, y: y * 2)
    x = torch.randn(2, 3)
    program = torch.export.export(nn.Sequential(wrapper), (x,))
    assert torch.allclose(program.module()(x), layer(x + 1) * 2)
    assert {*program.state_dict} == {"0.weight", "0.bias"}


@pytest.mark.parametrize("is_strict", [False, True])
def test_export_refuses_backward_hooks_which_it_would_lose(is_strict):
    wrapper, _ = hooked(nn.Linear(3, 3), lambda g: g)
    x = torch.randn(2, 3)
    with pytest.raises(Exception, match=r"torch\.export keeps no backward hooks"):
        torch.export.export(wrapper, (x,), strict=is_strict)
    with torch.no_grad():
        program = torch.export.export(wrapper, (x,), strict=is_strict)
    assert torch.allclose(program.module()(x), wrapper(x))


@SCRIPT_IS_DEPRECATED
@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")
def test_jit_trace_follows_hooks():
    layer = nn.Linear(3, 3)
    wrapper, hooks = with_hooks(layer)
    hooks.add_forward_pre_hook(lambda x: x + 1)
    hooks.add_forward_hook(lambda x, y: y * 2)
    x = torch.randn(2, 3, requires_grad=True)
    traced = torch.jit.trace(wrapper, x)
    assert torch.allclose(traced(x), layer(x + 1) * 2)
    ran = []
    hooks.add_backward_hook(lambda g: ran.append(1) or g * 3)
    # the check of a trace runs without gradients, where no gate is
    traced = torch.jit.trace(wrapper, x, check_trace=False)
    (found,) = torch.autograd.grad(traced(x).sum(), x)
    assert torch.allclose(found, 6 * layer.weight.sum(0).expand(2, 3))
    assert ran == [1]


@SCRIPT_IS_DEPRECATED
@pytest.mark.parametrize("place", [lambda w: w, nn.Sequential, lambda w: nn.Sequential(nn.Sequential(w))])
def test_jit_script_is_refused_with_the_way_on(place):
    wrapper, _ = with_hooks(nn.Linear(3, 3))
    with pytest.raises(RuntimeError, match=r"cannot compile the hooks around Linear.*with_hooks\(torch\.jit\.script"):
        torch.jit.script(place(wrapper))
    assert isinstance(wrapper, HookedModule)
    assert type(layer_of(wrapper)) is nn.Linear


@pytest.mark.parametrize("has_hooks", [False, True])
@pytest.mark.parametrize("place", [lambda w: w, nn.Sequential, lambda w: nn.Sequential(nn.ReLU(), nn.Sequential(w))])
def test_symbolic_trace_is_refused_with_the_way_on(place, has_hooks):
    wrapper, _ = hooked(nn.Linear(3, 3), *([lambda g: g] if has_hooks else []))
    with pytest.raises(RuntimeError, match=r"symbolic_trace cannot follow the hooks around Linear; use torch\.export"):
        torch.fx.symbolic_trace(place(wrapper))


class LeafTracer(torch.fx.Tracer):
    def is_leaf_module(self, m, module_qualified_name):
        return isinstance(m, HookedModule) or super().is_leaf_module(m, module_qualified_name)


class KnowingTracer(torch.fx.Tracer):
    def path_of_module(self, mod):
        for path, module in self.root.named_modules():
            while isinstance(module, HookedModule):
                module = layer_of(module)
                if module is mod:
                    return path
        return super().path_of_module(mod)


@pytest.mark.parametrize("tracer_type", [LeafTracer, KnowingTracer])
def test_tracer_that_knows_wrappers_traces_them(tracer_type):
    layer = nn.Linear(3, 3)
    wrapper, hooks = with_hooks(layer)
    hooks.add_forward_hook(lambda x, y: y * 2)
    model = nn.Sequential(wrapper, nn.ReLU())
    graph = tracer_type().trace(model)
    assert [node.target for node in graph.nodes if node.op == "call_module"] == ["0", "1"]
    x = torch.randn(2, 3)
    if tracer_type is LeafTracer:
        assert torch.equal(torch.fx.GraphModule(model, graph)(x), model(x))
