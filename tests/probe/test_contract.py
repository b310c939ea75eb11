"""What probes promise, clause by clause."""

from __future__ import annotations

import asyncio
import gc
import pickle
import threading
import timeit
import weakref

import pytest
import torch
from torch import nn
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils.checkpoint import checkpoint

from neural_flow import probe as constructs
from neural_flow.probe import Probe, observe_every_emit
from neural_flow.probe._frames import COLLECTORS, FRAMES


@pytest.fixture
def probe():
    yield Probe.make()
    assert COLLECTORS.get() == ()
    assert FRAMES.get() == ()
    assert torch.overrides._get_current_function_mode_stack() == []


def emitting(probe, result=None):
    def function(x):
        probe.emit(x)
        return x if result is None else result(x)

    return function


def shapes(offers):
    return [tuple(offer.shape) for offer in offers]


def test_outside_transforms_each_emit_is_one_row(probe):
    outcome, offers = probe.collect(lambda: [probe.emit(torch.full((3,), float(k))) for k in range(2)])
    assert outcome.is_ok
    assert shapes(offers) == [(1, 3), (1, 3)]
    assert [offer[0, 0].item() for offer in offers] == [0.0, 1.0]


def test_scan_and_vmap_merge_into_one_axis_with_the_outer_major(probe):
    def steps(start):
        return constructs.scan(lambda c, k: (emitting(probe)(c + k), k), start, torch.arange(5.0)[:, None].expand(5, 3))

    _, offers = probe.collect(lambda: steps(torch.zeros(3)))
    assert shapes(offers) == [(5, 3)]
    lanes = torch.tensor([0.0, 100, 200, 300])[:, None].expand(4, 3)
    _, offers = probe.collect(lambda: torch.func.vmap(steps)(lanes))
    assert shapes(offers) == [(20, 3)]
    assert offers[0][:5, 0].tolist() == [0, 1, 3, 6, 10]
    assert offers[0][5, 0].item() == 100


@pytest.mark.parametrize("in_dims", [0, 1, -1])
def test_lanes_lead_whatever_axis_they_were(probe, in_dims):
    value = torch.arange(12.0).reshape(3, 4)
    _, offers = probe.collect(lambda: torch.func.vmap(emitting(probe), in_dims=in_dims)(value))
    assert torch.equal(offers[0], value if in_dims == 0 else value.T)


def test_a_value_that_does_not_use_the_lane_has_a_row_for_each(probe):
    constant = torch.arange(3.0)

    def function(x):
        probe.emit(constant)
        return x

    _, offers = probe.collect(lambda: torch.func.vmap(function)(torch.zeros(4)))
    assert torch.equal(offers[0], constant.expand(4, 3))


def test_a_branch_not_taken_offers_no_row_and_an_empty_site_no_offer(probe):
    def step(carry, k):
        return constructs.cond(k > 2, lambda: emitting(probe)(k), lambda: k), k

    _, offers = probe.collect(lambda: constructs.scan(step, torch.zeros(()), torch.arange(5.0)))
    assert [offer.tolist() for offer in offers] == [[3.0, 4.0]]
    _, offers = probe.collect(lambda: constructs.scan(step, torch.zeros(()), torch.zeros(5)))
    assert offers == []


def test_true_branch_sites_stand_before_false_ones_whichever_ran_first(probe):
    def step(carry, k):
        return constructs.cond(k > 0, lambda: emitting(probe)(k), lambda: emitting(probe)(-k - 10)), k

    _, offers = probe.collect(lambda: constructs.scan(step, torch.zeros(()), torch.tensor([0.0, 1, 0, 2])))
    assert [offer.tolist() for offer in offers] == [[1, 2], [-10, -10]]


def test_held_lanes_of_a_while_loop_offer_no_row(probe):
    run = torch.func.vmap(lambda c: constructs.while_loop(lambda c: c < 3, lambda c: emitting(probe)(c) + 1, c))
    outcome, offers = probe.collect(lambda: run(torch.tensor([0, 2, 3])))
    assert outcome.value.tolist() == [3, 3, 3]
    assert [offer.tolist() for offer in offers] == [[0, 1, 2, 2]]


def test_a_loop_inside_held_lanes_keeps_them_held(probe):
    def body(c):
        constructs.map(lambda k: emitting(probe)(c * 10 + k), torch.arange(2))
        return c + 1

    run = torch.func.vmap(lambda c: constructs.while_loop(lambda c: c < 2, body, c))
    _, offers = probe.collect(lambda: run(torch.tensor([0, 1, 5])))
    assert [offer.tolist() for offer in offers] == [[0, 1, 10, 11, 10, 11]]


def test_a_helper_called_from_both_branches_is_two_sites(probe):
    helper = emitting(probe)
    _, offers = probe.collect(
        lambda: constructs.scan(
            lambda c, k: (constructs.cond(k > 0, lambda: helper(k), lambda: helper(k)), k),
            torch.zeros(()),
            torch.tensor([0.0, 1.0]),
        )
    )
    assert [offer.tolist() for offer in offers] == [[1.0], [0.0]]


def test_a_raise_in_step_k_offers_the_rows_up_to_k(probe):
    def step(carry, k):
        probe.emit(k)
        if k == 3:
            raise ValueError("three")
        return carry, k

    outcome, offers = probe.collect(lambda: constructs.scan(step, torch.zeros(()), torch.arange(5.0)))
    assert [offer.tolist() for offer in offers] == [[0, 1, 2, 3]]
    assert str(outcome.error) == "three"
    names = []
    trace = outcome.error.__traceback__
    while trace:
        names.append(trace.tb_frame.f_code.co_name)
        trace = trace.tb_next
    assert names[0] == "collect"
    assert names[-1] == "step"
    with pytest.raises(ValueError, match="three"):
        outcome.unwrap()


@pytest.mark.parametrize("transform", ["grad", "vjp", "jacrev", "jacfwd", "hessian", "jvp"])
def test_derivatives_offer_primals_once(probe, transform):
    x = torch.arange(1.0, 4.0)
    function = emitting(probe, lambda x: (x * x).sum())
    runs = {
        "grad": lambda: torch.func.grad(function)(x),
        "vjp": lambda: torch.func.vjp(function, x)[1](torch.ones(())),
        "jacrev": lambda: torch.func.jacrev(function)(x),
        "jacfwd": lambda: torch.func.jacfwd(function)(x),
        "hessian": lambda: torch.func.hessian(function)(x),
        "jvp": lambda: torch.func.jvp(function, (x,), (x,)),
    }
    outcome, offers = probe.collect(runs[transform])
    assert outcome.is_ok
    assert [offer.tolist() for offer in offers] == [[[1.0, 2.0, 3.0]]]


def test_a_users_own_vmap_over_jvp_keeps_its_lanes(probe):
    function = emitting(probe, lambda x: (x * x).sum())
    x = torch.ones(3)
    _, offers = probe.collect(
        lambda: torch.func.vmap(lambda t: torch.func.jvp(function, (x,), (t,))[1])(torch.eye(3)[:2])
    )
    assert shapes(offers) == [(2, 3)]


@pytest.mark.parametrize("use_reentrant", [True, False])
def test_recomputation_and_backward_offer_nothing(probe, use_reentrant):
    x = torch.ones(2, requires_grad=True)

    def train():
        y = checkpoint(emitting(probe, torch.tanh), x, use_reentrant=use_reentrant)
        y.register_hook(lambda g: probe.emit(g))
        y.sum().backward()

    outcome, offers = probe.collect(train)
    assert outcome.is_ok
    assert len(offers) == 1


def test_reading_a_checkpointed_saved_tensor_offers_nothing_more(probe):
    x = torch.ones(2, requires_grad=True)

    def look():
        y = checkpoint(emitting(probe, torch.exp), x, use_reentrant=False)
        return y.grad_fn._saved_result

    outcome, offers = probe.collect(look)
    assert outcome.is_ok
    assert len(offers) == 1


def test_custom_functions_offer_in_forward_and_in_jvp_but_not_in_backward(probe):
    class Square(torch.autograd.Function):
        @staticmethod
        def forward(x):
            probe.emit(x)
            return x * x

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(*inputs)
            ctx.save_for_forward(*inputs)

        @staticmethod
        def backward(ctx, gradient):
            probe.emit(gradient)
            return 2 * gradient * ctx.saved_tensors[0]

        @staticmethod
        def jvp(ctx, tangent):
            probe.emit(tangent * 100)
            return 2 * tangent * ctx.saved_tensors[0]

    x = torch.ones(2, requires_grad=True)
    _, offers = probe.collect(lambda: Square.apply(x).sum().backward())
    assert len(offers) == 1
    outcome, offers = probe.collect(lambda: torch.func.jvp(Square.apply, (torch.ones(2),), (torch.ones(2),)))
    assert outcome.is_ok, outcome.error
    assert [offer[0, 0].item() for offer in offers] == [1.0, 100.0]


def test_the_innermost_collect_of_a_probe_takes_and_others_let_pass(probe):
    other = Probe.make()
    inner_offers = []

    def inner():
        probe.emit(torch.ones(1))
        other.emit(torch.zeros(1))

    def outer():
        probe.emit(torch.full((1,), 7.0))
        inner_offers.extend(probe.collect(inner)[1])

    passed, _ = other.collect(lambda: probe.collect(outer))
    _, offers = passed.unwrap()
    assert [offer.item() for offer in offers] == [7.0]
    assert [offer.item() for offer in inner_offers] == [1.0]
    _, other_offers = other.collect(lambda: probe.collect(inner))
    assert [offer.item() for offer in other_offers] == [0.0]


def test_collect_inside_a_transform_is_refused_by_name(probe):
    for transform in (torch.func.vmap, torch.func.grad):
        with pytest.raises(RuntimeError, match=r"Probe\.collect"):
            transform(lambda x: probe.collect(lambda: x)[0].unwrap().sum())(torch.ones(2))


def test_emit_in_a_predicate_is_refused_while_a_collect_is_open(probe):
    def condition(c):
        probe.emit(c)
        return c < 2

    run = lambda: constructs.while_loop(condition, lambda c: c + 1, torch.zeros(()))  # noqa: E731
    assert run().item() == 2
    outcome, offers = probe.collect(run)
    assert isinstance(outcome.error, RuntimeError)
    assert "neural_flow.probe.while_loop" in str(outcome.error)
    assert offers == []


def test_structures_are_checked_while_a_collect_is_open():
    probe = Probe.make({"a": torch.zeros(0), "b": [torch.zeros(0)]}, name="pair")
    good = {"a": torch.ones(2), "b": [torch.ones(3)]}
    probe.emit(torch.ones(1))
    outcome, offers = probe.collect(lambda: probe.emit(torch.ones(1)))
    assert isinstance(outcome.error, TypeError)
    assert "'pair'" in str(outcome.error)
    assert offers == []
    _, offers = probe.collect(lambda: probe.emit(good))
    assert offers[0]["b"][0].shape == (1, 3)
    assert isinstance(probe.collect(lambda: probe.emit({"a": 1.0}))[0].error, TypeError)


def test_an_offer_keeps_the_value_of_its_moment_and_no_gradient(probe):
    def function():
        x = torch.ones(2, requires_grad=True)
        y = x * 1
        probe.emit(y)
        return y.mul_(5)

    outcome, offers = probe.collect(function)
    assert offers[0].tolist() == [[1.0, 1.0]]
    assert not offers[0].requires_grad
    assert outcome.value.requires_grad


@pytest.mark.parametrize(
    "error", [KeyboardInterrupt, SystemExit, GeneratorExit, MemoryError, RecursionError, torch.OutOfMemoryError]
)
def test_errors_that_are_no_outcome_are_raised_again(probe, error):
    def function():
        probe.emit(torch.ones(1))
        torch.func.vmap(lambda x: (_ for _ in ()).throw(error()))(torch.ones(2))

    if error is GeneratorExit:

        def function():
            raise GeneratorExit

    with pytest.raises(error):
        probe.collect(function)


def test_threads_and_tasks_are_isolated(probe):
    def elsewhere():
        thread = threading.Thread(target=lambda: probe.emit(torch.ones(1)))
        thread.start()
        thread.join()

    assert probe.collect(elsewhere)[1] == []

    async def task(count):
        def run():
            for _ in range(count):
                probe.emit(torch.ones(1))

        await asyncio.sleep(0)
        _, offers = probe.collect(run)
        return len(offers)

    async def both():
        return await asyncio.gather(task(2), task(3))

    assert asyncio.run(both()) == [2, 3]


def test_a_training_step_is_bit_for_bit_the_same(probe):
    def train(does_emit):
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(4, 8), nn.Dropout(), nn.Linear(8, 1))
        x = torch.randn(5, 4)
        hidden = net[1](net[0](x))
        if does_emit:
            probe.emit(hidden)
        net[2](hidden).sum().backward()
        return [parameter.grad for parameter in net.parameters()], torch.get_rng_state()

    plain, plain_rng = train(False)
    outcome, offers = probe.collect(lambda: train(True))
    grads, rng = outcome.unwrap()
    assert len(offers) == 1
    assert all(torch.equal(a, b) for a, b in zip(plain, grads, strict=True))
    assert torch.equal(plain_rng, rng)


def test_observers_see_every_emit_before_collectors(probe):
    seen = []
    first = probe.observe(lambda value: seen.append(("own", value.item())))
    second = observe_every_emit(lambda found, value: seen.append((found is probe, value.item())))
    probe.emit(torch.ones(()))
    first.remove()
    first.remove()
    second.remove()
    probe.emit(torch.ones(()))
    assert seen == [("own", 1.0), (True, 1.0)]


def test_graphs_of_tracers_are_unchanged_and_skipped_emissions_are_counted(probe):
    def plain(x):
        return x.sin() * 2

    def observed(x):
        y = x.sin()
        probe.emit(y)
        return y * 2

    outcome, offers = probe.collect(lambda: make_fx(observed)(torch.ones(2)))
    assert outcome.unwrap().code == make_fx(plain)(torch.ones(2)).code
    assert shapes(offers) == [(1, 2)]
    outcome, offers = probe.collect(lambda: make_fx(observed, tracing_mode="fake")(torch.ones(2)))
    assert offers == []
    assert probe.skipped == 1


def test_compiled_functions_offer_each_time_they_run(probe):
    def function(x):
        y = x + 1
        probe.emit({"y": y, "pair": (x, [y])})
        return y * 2

    compiled = torch.compile(function, backend="eager", fullgraph=True)
    _, offers = probe.collect(lambda: (compiled(torch.ones(2)), compiled(torch.zeros(2))))
    assert [offer["y"][0, 0].item() for offer in offers] == [2.0, 1.0]
    outcome, offers = probe.collect(lambda: (compiled(torch.ones(2)), compiled(torch.zeros(2))), eager=False)
    assert outcome.is_ok, outcome.error
    assert [offer["pair"][1][0][0, 0].item() for offer in offers] == [2.0, 1.0]
    torch._dynamo.reset()


def test_torch_scan_is_one_site_with_a_row_a_step(probe):
    from torch._higher_order_ops.scan import scan

    def step(carry, x):
        probe.emit(carry)
        return carry + x, x.clone()

    outcome, offers = probe.collect(lambda: scan(step, torch.zeros(2), torch.ones(4, 2), dim=0))
    assert outcome.is_ok
    assert [offer[:, 0].tolist() for offer in offers] == [[0, 1, 2, 3]]


def test_torch_cond_under_vmap_warns_of_surplus_rows(probe):
    def choose(x):
        return torch.cond(x > 0, lambda x: emitting(probe)(x).clone(), lambda x: -x, (x,))

    with pytest.warns(UserWarning, match=r"neural_flow\.probe\.cond"):
        probe.collect(lambda: torch.func.vmap(choose)(torch.tensor([-1.0, 1.0])))


def test_nothing_is_kept_alive_and_probes_pickle(probe):
    value = torch.ones(3)
    alive = weakref.ref(value)
    probe.collect(lambda kept=value: probe.emit(kept))
    del value
    gc.collect()
    assert alive() is None
    assert pickle.loads(pickle.dumps(Probe.make(name="p"))).name == "p"
    assert Probe.make() is not Probe.make()


def test_an_idle_emit_is_cheap_and_touches_nothing(probe):
    class Untouchable:
        def __getattr__(self, name):
            raise AssertionError(name)

    probe.emit(Untouchable())
    number = 20_000
    seconds = min(timeit.repeat(lambda: probe.emit(None), number=number, repeat=5)) / number
    assert seconds < 5e-6, "a generous bound for a busy machine; the benchmark prints the real number"
