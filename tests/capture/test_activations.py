from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.modules import module as module_globals
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence

from neural_flow.capture.activations import capture_activations, run_capture_pass
from neural_flow.capture.metadata import run_metadata_pass
from neural_flow.errors import UsageError
from neural_flow.probe import Probe
from neural_flow.probe import _core as probe_core
from neural_flow.records import Capture, Edge, ModelInfo, Stage, Summary, Topology, Trace
from neural_flow.summaries._pixels import MAX_INDEX


@pytest.fixture(autouse=True)
def nothing_is_left_behind() -> Iterator[None]:
    yield
    assert torch._C._len_torch_function_stack() == 0
    assert not module_globals._global_forward_hooks
    assert not module_globals._global_forward_pre_hooks
    assert not module_globals._global_forward_hooks_always_called


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def make_topology(
    trace: Trace, *paths: str, ops: tuple[int, ...] = (), joined: dict[str, str] | None = None
) -> Topology:
    """Inputs, every call of the named modules, the given ops, outputs; ``joined``: path -> path drawn in its card."""
    calls = {path: [call for call in trace.calls if call.path == path] for path in paths}
    stages: list[Stage] = []

    def add(**fields: Any) -> None:
        stages.append(Stage(stage_id=len(stages), label="", **fields))

    for index, leaf in enumerate(trace.inputs):
        add(kind="input", name=leaf.name, index=index, outputs=(leaf.meta,))
    for call in sorted((call for found in calls.values() for call in found), key=lambda call: call.call_id):
        other = (joined or {}).get(call.path)
        ids = tuple(found.call_id for found in trace.calls if found.path == other) if other else ()
        add(
            kind="module",
            name=call.path,
            path=call.path,
            call_id=call.call_id,
            call_index=call.call_index,
            class_name=call.class_name,
            outputs=call.outputs,
            joined=ids,
        )
    for op_id in ops:
        op = trace.ops[op_id]
        add(kind="op", name=op.target, op_id=op_id, call_id=op.call_id, outputs=op.outputs)
    for index, leaf in enumerate(trace.outputs):
        add(kind="output", name=leaf.name, index=index, outputs=(leaf.meta,))
    info = ModelInfo(name=trace.model_name, class_name=trace.class_name)
    return Topology(model=info, stages=tuple(stages), edges=())


def captured(model: nn.Module, args: tuple[Any, ...], *paths: str, **options: Any) -> tuple[Topology, Capture]:
    kwargs = options.pop("kwargs", {})
    trace = run_metadata_pass(model, args, kwargs)
    topology = make_topology(trace, *paths, joined=options.pop("joined", None))
    return topology, run_capture_pass(model, args, kwargs, topology, trace=trace, **options)


def of(topology: Topology, capture: Capture, name: str, call: int = 0) -> Summary:
    stage = next(stage for stage in topology.stages if stage.name == name and stage.call_index == call)
    assert stage.stage_id in capture.summaries, capture.skipped
    return capture.summaries[stage.stage_id]


def values_of(summary: Summary, name: str = "cells") -> torch.Tensor:
    """Return the values that quantised indices stand for."""
    indices = torch.from_numpy(summary.arrays[name].astype(np.float64))
    low, high = (torch.tensor(summary.facts[end]).reshape(-1, *[1] * (indices.dim() - 1)) for end in ("low", "high"))
    return low + indices / MAX_INDEX * (high - low)


def assert_shows(summary: Summary, expected: torch.Tensor, name: str = "cells") -> None:
    shown = values_of(summary, name)
    low, high = (torch.tensor(summary.facts[end]).reshape(-1, *[1] * (shown.dim() - 1)) for end in ("low", "high"))
    clipped = torch.maximum(torch.minimum(expected.double(), high), low)
    step = (high - low) / MAX_INDEX
    assert bool(((shown - clipped).abs() <= 0.51 * step + 1e-6).all())


# -- which value is shown ------------------------------------------------------------------------------------------


def test_a_card_shows_the_output_of_its_call_pixel_by_pixel() -> None:
    model = nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU()).eval()
    x = random(2, 1, 20, 24)
    topology, capture = captured(model, (x,), "0", "1", sample=1)
    with torch.no_grad():
        expected = model[0](x)[1]
    summary = of(topology, capture, "0")
    assert summary.kind == "feature_maps"
    assert summary.tensor.shape == (2, 16, 20, 24)
    assert_shows(summary, expected[list(summary.facts["channels"])], "planes")
    variances = expected.flatten(1).double().var(dim=1)
    assert list(summary.facts["channels"]) == variances.argsort(descending=True)[:3].tolist()
    stats = capture.stats[summary.stage_id]
    assert stats.mean == pytest.approx(float(model[0](x).detach().double().mean()), rel=1e-5)
    assert capture.stats[of(topology, capture, "1").stage_id].zero_fraction == pytest.approx(
        float((model(x) == 0).double().mean())
    )
    for array in summary.arrays.values():
        assert not array.flags.writeable


def test_tokens_that_a_convolution_mixes_are_no_signal() -> None:
    class Mixer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv1d(12, 12, 3, padding=1)

        def forward(self, tokens: torch.Tensor) -> torch.Tensor:
            return self.conv(tokens.transpose(1, 2)).transpose(1, 2)

    model = nn.Sequential(Mixer(), nn.Linear(12, 4))
    topology, capture = captured(model, (random(1, 6, 12),), "0", "0.conv", "1")
    assert of(topology, capture, "0").kind == "token_map"
    assert of(topology, capture, "0.conv").kind == "signal"


def test_groups_of_maps_are_no_volumes_unless_the_model_works_on_volumes() -> None:
    class Split(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.unflatten(1, (2, 3))

    flat = nn.Sequential(nn.Conv2d(1, 6, 3), Split(), nn.Flatten())
    topology, capture = captured(flat, (random(1, 1, 8, 8),), "1")
    assert of(topology, capture, "1").kind == "feature_maps"
    assert of(topology, capture, "1").facts["num_channels"] == 6
    deep = nn.Sequential(nn.Linear(4, 64), nn.Unflatten(1, (1, 4, 4, 4)), nn.Conv3d(1, 2, 3))
    topology, capture = captured(deep, (random(1, 4),), "2")
    assert of(topology, capture, "2").kind == "volume"
    assert of(topology, capture, "output").kind == "volume"


def test_each_call_of_a_reused_module_shows_its_own_value() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(6, 6)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.fc(self.fc(x))

    model, x = Twice(), random(1, 6)
    topology, capture = captured(model, (x,), "fc")
    first = model.fc(x)
    assert_shows(of(topology, capture, "fc", 0), first.detach())
    assert_shows(of(topology, capture, "fc", 1), model.fc(first).detach())


def test_a_module_that_calls_itself_is_counted_by_entry() -> None:
    class Down(nn.Module):
        def forward(self, x: torch.Tensor, depth: int) -> torch.Tensor:
            return x + 100 if depth == 0 else self(x, depth - 1) * 2

    class Holder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.down = Down()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.down(x, 1)

    x = random(1, 5)
    topology, capture = captured(Holder(), (x,), "down")
    assert_shows(of(topology, capture, "down", 1), x + 100)
    assert_shows(of(topology, capture, "down", 0), (x + 100) * 2)


def test_a_call_that_raised_and_was_caught_does_not_shift_the_next_ones() -> None:
    class Picky(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if x.shape[1] != 4:
                raise ValueError("four, please")
            return x * 3

    class Tries(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.picky = Picky()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            try:
                return self.picky(x)
            except ValueError:
                return self.picky(x[:, :4])

    x = random(1, 5)
    topology, capture = captured(Tries(), (x,), "picky")
    assert_shows(of(topology, capture, "picky", 1), x[:, :4] * 3)


def test_joined_calls_show_the_last_one() -> None:
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU()).eval()
    x = random(1, 1, 9, 9)
    topology, capture = captured(model, (x,), "0", joined={"0": "2"})
    expected = model(x)[0].detach()
    summary = of(topology, capture, "0")
    assert_shows(summary, expected[list(summary.facts["channels"])], "planes")


def test_later_in_place_ops_change_no_card() -> None:
    class InPlace(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(6, 6)
            self.act = nn.ReLU(inplace=True)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x.mul_(7)
            return self.act(self.fc(x))

    model, x = InPlace(), random(1, 6)
    before = x.clone()
    topology, capture = captured(model, (x,), "fc", "act")
    assert torch.equal(x, before)
    assert_shows(of(topology, capture, "x"), before)
    assert_shows(of(topology, capture, "fc"), model.fc(before * 7).detach())
    assert_shows(of(topology, capture, "output"), model.fc(before * 7).relu().detach())


@dataclass
class Result:
    small: torch.Tensor
    note: str
    large: torch.Tensor
    ids: torch.Tensor


def test_of_several_outputs_the_one_that_goes_onward_is_shown_else_the_largest_floating_one() -> None:
    class Many(nn.Module):
        def forward(self, x: torch.Tensor) -> Result:
            return Result(x[:, :3], "text", x * 2, torch.arange(99)[None])

    class Reads(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.many = Many()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.many(x).small + 1

    model, x = Reads(), random(1, 7)
    trace = run_metadata_pass(model, (x,))
    topology = make_topology(trace, "many")
    capture = run_capture_pass(model, (x,), {}, topology, trace=trace)
    assert_shows(of(topology, capture, "many"), x * 2)
    many = next(stage for stage in topology.stages if stage.name == "many")
    onward = Edge(source=many.stage_id, target=many.stage_id + 1, tensors=(many.outputs[0],))
    topology = replace(topology, edges=(onward,))
    capture = run_capture_pass(model, (x,), {}, topology, trace=trace)
    assert_shows(of(topology, capture, "many"), x[:, :3])


def test_scripted_modules_are_captured_through_global_hooks() -> None:
    class Scales(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * 5

    with pytest.warns(DeprecationWarning, match="script"):
        scripted = torch.jit.script(Scales())
    model, x = nn.Sequential(scripted, nn.Linear(4, 4)), random(1, 4)
    topology, capture = captured(model, (x,), "0", "1")
    assert_shows(of(topology, capture, "0"), x * 5)


def test_ops_are_found_again_by_their_place_in_their_call() -> None:
    class Ops(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = x.float()  # changes nothing, and is no op
            a = torch.relu(x)
            b = torch.relu(-x)
            a.mul_(3)
            c = torch.cat([a, b], dim=1)
            return torch.relu(c - 1)

    model, x = nn.Sequential(nn.Identity(), Ops()), random(1, 6)
    trace = run_metadata_pass(model, (x,))
    wanted = tuple(op.op_id for op in trace.ops if op.role == "op")
    topology = make_topology(trace, ops=wanted)
    capture = run_capture_pass(model, (x,), {}, topology, trace=trace)
    shown = [capture.summaries[stage.stage_id] for stage in topology.stages if stage.kind == "op"]
    a, b = x.relu(), (-x).relu()
    expected = {
        "relu": [a, b, (torch.cat([a * 3, b], 1) - 1).relu()],
        "cat": [torch.cat([a * 3, b], 1)],
        "mul_": [a * 3],
    }
    for stage, summary in zip((stage for stage in topology.stages if stage.kind == "op"), shown, strict=True):
        name = stage.name.rpartition(".")[2]
        if name in expected:
            assert_shows(summary, expected[name].pop(0))
    assert not any(expected.values())


def test_emitted_values_are_shown_in_their_order() -> None:
    probe = Probe.make(name="seen")

    class Emits(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            probe.emit({"a": x * 2, "b": x * 3})
            probe.emit(x * 5)
            return x

    model, x = Emits(), random(1, 6)
    trace = run_metadata_pass(model, (x,))
    stages = [Stage(stage_id=index, kind="probe", name=f"seen {index}", label="", index=index) for index in (0, 2)]
    stages = [replace(stage, stage_id=index) for index, stage in enumerate(stages)]
    topology = Topology(model=ModelInfo(name="", class_name=""), stages=tuple(stages), edges=())
    capture = run_capture_pass(model, (x,), {}, topology, trace=trace)
    assert_shows(of(topology, capture, "seen 0"), x * 2)
    assert_shows(of(topology, capture, "seen 2"), x * 5)
    assert not probe_core._EVERY_EMIT


# -- batches -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("batch_first", [True, False])
def test_recurrent_outputs_show_one_element_of_the_batch(batch_first: bool) -> None:
    class Tagger(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rnn = nn.LSTM(4, 5, batch_first=batch_first)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.rnn(x)[0]

    model = Tagger()
    x = random(3, 7, 4) if batch_first else random(7, 3, 4)
    topology, capture = captured(model, (x,), "rnn", sample=2)
    out = model(x).detach()
    expected = out[2] if batch_first else out[:, 2]
    assert_shows(of(topology, capture, "rnn"), expected)
    assert_shows(of(topology, capture, "output"), expected)


def test_inside_a_batch_first_model_a_sequence_first_module_is_read_its_own_way() -> None:
    class Turns(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attention = nn.MultiheadAttention(4, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = x.transpose(0, 1)
            return self.attention(x, x, x, need_weights=False)[0].transpose(0, 1)

    model, x = Turns().eval(), random(3, 6, 4)
    topology, capture = captured(model, (x,), "attention", sample=1)
    expected = model(x)[1].detach()
    assert_shows(of(topology, capture, "attention"), expected)
    assert_shows(of(topology, capture, "output"), expected)
    maps = capture.attention[of(topology, capture, "attention").stage_id][0]
    weights = model.attention(*[x.transpose(0, 1)] * 3, average_attn_weights=False)[1][1].detach()
    assert_shows(maps, weights, "heads")


def test_an_input_without_batch_is_shown_whole() -> None:
    model = nn.Conv2d(3, 6, 3)
    x = random(3, 8, 8)
    topology, capture = captured(nn.Sequential(model), (x,), "0")
    assert of(topology, capture, "input").kind == "image"
    summary = of(topology, capture, "0")
    assert summary.facts["num_channels"] == 6
    assert_shows(summary, model(x).detach()[list(summary.facts["channels"])], "planes")


def test_windows_and_folded_sequences_show_a_share_of_one_element() -> None:
    class Folds(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.flat, self.windows, self.positions = nn.Identity(), nn.Identity(), nn.Embedding(6, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.flat(x.flatten(0, 1) * 1)
            self.windows(x.reshape(4, 3, 2, 2) * 1)
            return x + self.positions(torch.arange(6))

    model, x = Folds(), random(2, 6, 4)
    topology, capture = captured(model, (x,), "flat", "windows", "positions", sample=1)
    assert_shows(of(topology, capture, "flat"), x[1])
    windows = of(topology, capture, "windows")
    assert_shows(windows, x.reshape(4, 3, 2, 2)[2][list(windows.facts["channels"])], "planes")
    assert_shows(of(topology, capture, "positions"), model.positions.weight.detach())


def test_what_all_elements_share_is_a_batch_of_one() -> None:
    class Adds(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.positions = nn.Embedding(6, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + self.positions(torch.arange(6)[None])

    model = Adds()
    topology, capture = captured(model, (random(2, 6, 4),), "positions", sample=1)
    assert_shows(of(topology, capture, "positions"), model.positions.weight.detach())


def test_a_vector_whose_length_is_a_multiple_of_the_batch_is_shown_whole() -> None:
    class Adds(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.made, self.kept = nn.Linear(3, 12), nn.Identity()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.kept(x.sum(1) * 1) + self.made(torch.ones(3))[:4]

    model, x = Adds(), random(4, 6)
    topology, capture = captured(model, (x,), "made", "kept", sample=2)
    assert of(topology, capture, "made").facts["sample_shape"] == (12,)
    assert of(topology, capture, "kept").facts["sample_shape"] == ()


def test_nodes_of_a_graph_are_no_batch() -> None:
    class Graph(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(3, 5)

        def forward(self, x: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
            x = self.fc(x)
            if edges.is_sparse:
                return torch.sparse.mm(edges, x)
            if edges.shape == (7, 7):
                return edges @ x
            return torch.zeros_like(x).index_add(0, edges[1], x[edges[0]])

    model, x = Graph(), random(7, 3)
    pairs = torch.tensor([[0, 1, 2, 6], [1, 2, 3, 0]])
    for edges in (pairs, torch.eye(7).to_sparse(), torch.eye(7)):
        topology, capture = captured(model, (x, edges), "fc")
        assert_shows(of(topology, capture, "fc"), model.fc(x).detach())


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
def test_sequences_of_two_lengths_share_their_batch() -> None:
    model = nn.Transformer(8, 2, 1, 1, 16).eval()
    source, target = random(9, 2, 8), random(5, 2, 8, seed=1)
    topology, capture = captured(model, (source, target), "encoder", "decoder", sample=1)
    assert_shows(of(topology, capture, "src"), source[:, 1])
    assert_shows(of(topology, capture, "tgt"), target[:, 1])
    assert of(topology, capture, "encoder").facts["sample_shape"] == (9, 8)
    assert of(topology, capture, "decoder").facts["sample_shape"] == (5, 8)


@pytest.mark.parametrize(("batch_dim", "expected"), [("none", (4, 5)), (1, (4,)), (0, (5,))])
def test_the_user_can_say_where_the_batch_is(batch_dim: Any, expected: tuple[int, ...]) -> None:
    topology, capture = captured(nn.Sequential(nn.Identity()), (random(4, 5),), "0", batch_dim=batch_dim)
    assert of(topology, capture, "0").facts["sample_shape"] == expected


def test_a_packed_sequence_shows_the_steps_of_one_sequence() -> None:
    class Packs(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rnn = nn.GRU(3, 4, batch_first=True)

        def forward(self, x: torch.Tensor, lengths: torch.Tensor) -> PackedSequence:
            return self.rnn(pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False))[0]

    model, x, lengths = Packs(), random(3, 6, 3), torch.tensor([2, 6, 4])
    topology, capture = captured(model, (x, lengths), "rnn", sample=2)
    summary = of(topology, capture, "rnn")
    assert_shows(summary, model.rnn(x[2:, :4])[0][0].detach())
    assert summary.caption == "one of 3 packed sequences, 4 steps"


# -- what is known of the model ------------------------------------------------------------------------------------


def test_an_output_of_the_input_size_is_a_segmentation_over_the_input() -> None:
    model = nn.Sequential(nn.Conv2d(1, 3, 1))
    x = torch.rand(1, 1, 16, 12)
    topology, capture = captured(model, (x,), "0", labels=("ground", "cell", "edge"))
    summary = of(topology, capture, "output")
    assert summary.kind == "segmentation"
    assert np.array_equal(summary.arrays["classes"], model(x)[0].argmax(0).numpy())
    assert np.array_equal(summary.arrays["picture"], of(topology, capture, "input").arrays["pixels"])
    assert of(topology, capture, "0").kind == "feature_maps"


def test_an_output_of_the_input_volume_is_painted_over_its_slices() -> None:
    model, x = nn.Sequential(nn.Conv3d(1, 3, 1)), random(1, 1, 6, 8, 10)
    topology, capture = captured(model, (x,), "0")
    summary = of(topology, capture, "output")
    assert summary.kind == "volume_segmentation"
    winner = model(x)[0].argmax(0).numpy()
    assert np.array_equal(summary.arrays["z"], winner[3])
    assert np.array_equal(summary.arrays["y"], winner[:, 4])
    assert np.array_equal(summary.arrays["x"], winner[:, :, 5])
    grey = of(topology, capture, "input").arrays
    assert np.abs(summary.arrays["y_picture"] / 255 - grey["y"] / MAX_INDEX).max() < 0.01


def test_inputs_of_several_channels_are_grey_and_carry_the_overlay() -> None:
    model, x = nn.Sequential(nn.Conv2d(4, 2, 1)), random(1, 4, 9, 7)
    topology, capture = captured(model, (x,), "0")
    assert of(topology, capture, "input").facts["is_grey"]
    assert "is_signed" not in of(topology, capture, "input").facts
    assert of(topology, capture, "output").kind == "segmentation"
    picture = of(topology, capture, "output").arrays["picture"].astype(float)
    assert np.corrcoef(picture.ravel(), x[0, 0].numpy().ravel())[0, 1] > 0.999


def test_scores_of_the_next_token_and_labels_of_classes() -> None:
    class Language(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.head = nn.Embedding(300, 8), nn.Linear(8, 300)

        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            return self.head(self.embed(ids))

    model, ids = Language(), torch.arange(5)[None]
    names = tuple(f"word {index}" for index in range(300))
    topology, capture = captured(model, (ids,), "embed", labels=names, tokens=tuple("abcde"))
    summary = of(topology, capture, "output")
    best = model(ids)[0, -1].softmax(0).topk(5)
    assert summary.kind == "class_logits"
    assert list(summary.facts["names"]) == [names[index] for index in best.indices.tolist()]
    assert summary.arrays["shares"] == pytest.approx(best.values.detach().numpy(), rel=1e-5)
    assert of(topology, capture, "ids").facts["names"] == tuple("abcde")


def test_keyword_inputs_and_outputs_in_containers() -> None:
    class Words(nn.Module):
        def forward(self, *, left: torch.Tensor, right: dict[str, Any]) -> dict[str, Any]:
            return {"sum": left + right["x"], "none": None, "right": right["x"]}

    left, right = random(1, 5), random(1, 5, seed=1)
    topology, capture = captured(Words(), (), kwargs={"right": {"x": right, "id": "a"}, "left": left})
    assert_shows(of(topology, capture, "left"), left)
    assert_shows(of(topology, capture, "right.x"), right)
    assert_shows(of(topology, capture, "sum"), left + right)
    assert of(topology, capture, "right", 0).kind == "vector"


def test_what_is_not_finite_is_counted_and_shown() -> None:
    class Bad(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = x.clone()
            x[0, 0, 0, :3] = torch.tensor([float("nan"), float("inf"), -float("inf")])
            return x

    topology, capture = captured(nn.Sequential(Bad()), (random(1, 8, 6, 6),), "0")
    summary = of(topology, capture, "0")
    assert (summary.facts["num_nan"], summary.facts["num_inf"]) == (1, 2)
    assert summary.facts["channels"][0] == 0
    assert summary.arrays["planes"][0, 0, :3].tolist() == [255, 254, 253]
    stats = capture.stats[summary.stage_id]
    assert (stats.num_nan, stats.num_inf) == (1, 2)
    _, capture = captured(nn.Sequential(Bad()), (random(1, 8, 6, 6),), "0", has_stats=False)
    assert (capture.summaries[1].facts["num_nan"], capture.summaries[1].facts["num_inf"]) == (1, 2)
    assert not capture.stats


@pytest.mark.parametrize("norm", ["stage", "global"])
def test_planes_share_a_scale_when_asked(norm: Any) -> None:
    model = nn.Sequential(nn.ReLU(), nn.Hardtanh(0.0, 0.5))
    x = random(1, 16, 9, 9) * torch.arange(1, 17)[:, None, None]
    topology, capture = captured(model, (x,), "0", "1", norm=norm)
    tops = [set(of(topology, capture, name).facts["high"]) for name in ("0", "1")]
    assert all(len(top) == 1 for top in tops)
    assert (tops[0] == tops[1]) == (norm == "global")
    clipped = of(topology, capture, "1")
    expected = x.relu().clamp(max=0.5)[0][list(clipped.facts["channels"])]
    shown = values_of(clipped, "planes")
    assert float((shown - expected).abs().max()) <= 1.1 * max(tops[0 if norm == "global" else 1]) / MAX_INDEX


# -- attention -----------------------------------------------------------------------------------------------------


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        heads = self.inner(x).unflatten(-1, (4, 2)).transpose(1, 2)
        return F.scaled_dot_product_attention(heads, heads, heads, is_causal=True).transpose(1, 2).flatten(2)


def test_attention_belongs_to_the_nearest_drawn_call() -> None:
    model, x = nn.Sequential(nn.Sequential(Block()), Block()), random(2, 5, 8)
    topology, capture = captured(model, (x,), "0", "1", sample=1)
    first, second = (of(topology, capture, name).stage_id for name in ("0", "1"))
    (maps,) = capture.attention[first]
    assert maps.facts["path"] == "0.0"
    assert maps.facts["length"] == (5, 5)
    heads = x[1].unflatten(-1, (4, 2)).transpose(0, 1)
    scores = (heads @ heads.transpose(-1, -2) / 2**0.5).masked_fill(~torch.ones(5, 5).tril().bool(), -torch.inf)
    keep = torch.ones(5, 5).tril().bool()
    shown = values_of(maps, "heads")[:, keep]
    assert float((shown - scores.softmax(-1)[:, keep]).abs().max()) <= 0.51 / MAX_INDEX + 1e-6
    assert len(capture.attention[second]) == 1
    _, capture = captured(model, (x,), "0", "1", has_attention=False)
    assert not capture.attention


def test_heads_can_be_chosen() -> None:
    model, x = nn.Sequential(Block(), Block()), random(1, 5, 8)
    topology, capture = captured(model, (x,), "0", "1", heads="1:0-1,3")
    assert [capture.attention[of(topology, capture, name).stage_id][0].facts["heads"] for name in ("0", "1")] == [
        (0, 1, 2, 3),
        (0, 1, 3),
    ]
    with pytest.raises(UsageError, match="heads"):
        captured(model, (x,), "0", heads="first")


def test_attention_that_cannot_be_computed_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    from neural_flow.capture import attention

    def fail(*args: Any) -> Any:
        raise ArithmeticError("too odd")

    monkeypatch.setattr(attention, "pooled_weights", fail)
    topology, capture = captured(nn.Sequential(Block()), (random(1, 5, 8),), "0")
    assert of(topology, capture, "0").kind == "token_map"
    assert capture.notes == ("no attention weights of 0: scaled_dot_product_attention: ArithmeticError: too odd",)


def test_pictures_can_be_limited_to_what_is_drawn() -> None:
    model, x = nn.Sequential(Block(), Block()), random(1, 5, 8)
    topology, capture = captured(model, (x,), "0", "1", picture_ids=[2])
    assert [stage.name for stage in topology.stages] == ["input", "0", "1", "output"]
    assert {stage_id for stage_id, summary in capture.summaries.items() if summary.arrays} == {0, 2}
    assert [summary.facts.get("is_drawn", True) for summary in capture.summaries.values()] == [True, False, True, False]
    assert not capture.attention[1][0].arrays
    assert capture.attention[2][0].arrays
    assert set(capture.stats) == {0, 1, 2, 3}
    assert not capture.skipped


@pytest.mark.parametrize("kind", ["block", "multihead", "lstm"])
def test_a_stage_without_picture_is_described_alike(kind: str) -> None:
    class Layer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attention = nn.MultiheadAttention(8, 2, batch_first=True, add_zero_attn=True, add_bias_kv=True)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.attention(x, x, x)[0]

    parts = {"block": Block, "multihead": Layer, "lstm": lambda: nn.LSTM(8, 8, batch_first=True)}
    model, x = nn.Sequential(parts[kind]()), random(2, 5, 8)
    _, whole = captured(model, (x,), "0")
    _, sparing = captured(model, (x,), "0", picture_ids=[])
    for summary in whole.summaries.values():
        found = sparing.summaries[summary.stage_id]
        assert (found.kind, found.tensor) == (summary.kind, summary.tensor)
        assert found.facts["sample_shape"] == summary.facts["sample_shape"]
    assert whole.attention.keys() == sparing.attention.keys()
    for stage_id, calls in whole.attention.items():
        for call, found in zip(calls, sparing.attention[stage_id], strict=True):
            assert found.caption == call.caption
            assert {key: found.facts[key] for key in ("length", "num_heads", "path", "index")} == {
                key: call.facts[key] for key in ("length", "num_heads", "path", "index")
            }
    assert whole.stats == sparing.stats


# -- failures ------------------------------------------------------------------------------------------------------


def test_a_picture_that_fails_is_skipped_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    from neural_flow.summaries.vector import Vector

    def fail(tensor: torch.Tensor, context: Any) -> Any:
        raise ArithmeticError("no vectors today")

    monkeypatch.setattr(Vector, "reduce", staticmethod(fail))

    class Silent(nn.Module):
        def forward(self, x: torch.Tensor) -> tuple[str]:
            return ("nothing",)

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.silent, self.fc = Silent(), nn.Linear(4, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.silent(x)
            return self.fc(x)

    topology, capture = captured(Model(), (random(1, 2, 4),), "silent", "fc")
    by_name = {stage.name: stage.stage_id for stage in topology.stages}
    assert capture.skipped[by_name["silent"]] == "its output holds no tensor"
    assert of(topology, capture, "fc").kind == "token_map"
    topology, capture = captured(Model(), (random(1, 4),), "fc")
    assert capture.skipped[by_name["silent"]] == "ArithmeticError: no vectors today"
    assert set(capture.stats) == {0, 1, 2}


def test_where_the_model_raises_what_ran_is_kept() -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(9, 2))
    x = random(1, 4)
    trace = run_metadata_pass(model, (x,))
    topology = make_topology(trace, "0", "1", "2")
    for known in (trace, None):
        raised: list[Exception] = []
        capture = run_capture_pass(model, (x,), {}, topology, trace=known, on_raise=raised.append)
        assert [type(error) for error in raised] == [RuntimeError]
        assert capture.failure is not None
        assert (capture.failure.module, capture.failure.type) == ("2", "RuntimeError")
        assert "mat1 and mat2" in capture.failure.message
        assert_shows(of(topology, capture, "1"), model[1](model[0](x)).detach())
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


def test_an_interrupt_passes_and_leaves_nothing() -> None:
    class Interrupts(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            raise KeyboardInterrupt

    model = nn.Sequential(nn.Linear(4, 4), Interrupts()).train()
    trace_model = nn.Sequential(nn.Linear(4, 4), nn.Identity())
    trace = run_metadata_pass(trace_model, (random(1, 4),))
    with pytest.raises(KeyboardInterrupt):
        run_capture_pass(model, (random(1, 4),), {}, make_topology(trace, "0", "1"), trace=trace)
    assert model.training
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


def test_random_numbers_and_outputs_are_those_of_a_plain_run() -> None:
    class Noisy(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.drop, self.norm = nn.Dropout(0.5), nn.BatchNorm1d(8)
            self.seen: list[torch.Tensor] = []

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.norm(self.drop(x))

    model, x = Noisy().train(), random(4, 8)
    state, buffers = torch.get_rng_state(), {name: value.clone() for name, value in model.named_buffers()}
    trace = run_metadata_pass(model, (x,), train=True)
    topology = make_topology(trace, "drop", "norm")
    capture = run_capture_pass(model, (x,), {}, topology, trace=trace, train=True)
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(value, buffers[name]) for name, value in model.named_buffers())
    assert_shows(of(topology, capture, "drop"), F.dropout(x, 0.5)[0])  # the same mask as a plain run from this state


@pytest.mark.parametrize("is_compiled", [False, True])
def test_parameters_that_forward_writes_are_put_back(is_compiled: bool) -> None:
    class Moves(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(3))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            with torch.no_grad():
                self.weight.mul_(2)
            return x * self.weight

    inner, x = Moves(), random(1, 3)
    model = nn.Sequential(torch.compile(inner) if is_compiled else inner)
    topology, capture = captured(model, (x,), "0")
    assert torch.equal(inner.weight, torch.ones(3))
    assert_shows(of(topology, capture, "0"), x * 2)


# -- whole tensors -------------------------------------------------------------------------------------------------


def test_whole_tensors_by_path_and_call() -> None:
    shared = nn.Linear(4, 4)
    model, x = nn.Sequential(shared, nn.ReLU(inplace=True), shared), random(3, 4)
    trace = run_metadata_pass(model, (x,))
    found = capture_activations(model, (x,), {}, make_topology(trace, "0", "1"), trace=trace)
    first = shared(x).detach()
    assert set(found) == {("0", 0), ("0", 1), ("1", 0)}
    torch.testing.assert_close(found["0", 0], first)
    torch.testing.assert_close(found["1", 0], first.relu())
    torch.testing.assert_close(found["0", 1], shared(first.relu()).detach())
    assert not any(tensor.requires_grad for tensor in found.values())
    with pytest.raises(RuntimeError):
        capture_activations(model, (random(3, 5),), {}, make_topology(trace, "0"), trace=trace)
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
