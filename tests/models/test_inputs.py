from __future__ import annotations

import os
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file

from neural_flow.errors import ModelLoadError, NeuralFlowError, SampleInputError, UsageError
from neural_flow.models.inputs import SampleInputs, interpret, make_inputs
from neural_flow.models.target import load_target

Write = Callable[[str, str], Path]
NET = """
    import torch
    from torch import nn

    class Net(nn.Module):
        def forward(self, x, mask=None, *, scale=1.0):
            return x
"""


def inputs_of(target: str, *texts: str, **options: Any) -> SampleInputs:
    return make_inputs(load_target(target), texts, **options)


def test_positional_and_named_texts(write: Write) -> None:
    write("net.py", NET)
    inputs = inputs_of("net.py", "1,4", "mask=4:bool", "scale=:float32")
    assert [tuple(value.shape) for value in inputs.args] == [(1, 4)]
    assert {name: (value.dtype, tuple(value.shape)) for name, value in inputs.kwargs.items()} == {
        "mask": (torch.bool, (4,)),
        "scale": (torch.float32, ()),
    }
    assert torch.equal(inputs.args[0], inputs_of("net.py", "1,4").args[0])
    assert not torch.equal(inputs.args[0], inputs_of("net.py", "1,4", seed=1).args[0])


@pytest.mark.parametrize(
    ("body", "args", "kwargs"),
    [
        ("torch.ones(2)", 1, []),
        ("(torch.ones(2), None)", 2, []),
        ("{'x': torch.ones(2), 'scale': 2.0}", 0, ["x", "scale"]),
        ("((torch.ones(2),), {'scale': 1.0})", 1, ["scale"]),
        ("(([torch.ones(2), torch.ones(3)],), {})", 1, []),
        ("(({'a': 1, 'b': None},), {})", 1, []),
        ("(torch.ones(1), {'a': 1})", 2, []),
    ],
)
@pytest.mark.parametrize("name", ["neural_flow_inputs", "sample_inputs", "example_inputs"])
def test_what_a_function_returns_is_taken_as_written(
    write: Write, name: str, body: str, args: int, kwargs: list[str]
) -> None:
    write("net.py", NET + f"\n    def {name}():\n        return {body}\n")
    inputs = inputs_of("net.py")
    assert len(inputs.args) == args
    assert list(inputs.kwargs) == kwargs


def test_a_list_is_never_guessed_at() -> None:
    for value in ([torch.ones(1)], 3, {1: torch.ones(1)}, None):
        with pytest.raises(SampleInputError, match="expected a tensor, a tuple") as raised:
            interpret(value, "make_inputs")
        assert "((value,), {})" in raised.value.hint


def test_example_inputs_may_be_a_value_and_order_holds(write: Write) -> None:
    write("net.py", NET + "\n    example_inputs = torch.ones(3)\n")
    assert inputs_of("net.py").args[0].shape == (3,)
    write("net2.py", NET + "\n    example_inputs = torch.ones(3)\n    def sample_inputs(): return torch.ones(4)\n")
    assert inputs_of("net2.py").args[0].shape == (4,)
    assert inputs_of("net2.py", "9").args[0].shape == (9,)


def test_modules_may_carry_their_inputs(write: Write) -> None:
    write("net.py", NET + "\n    class Own(Net):\n        example_input_array = torch.ones(5)\n")
    inputs = inputs_of("net.py:Own")
    assert inputs.args[0].shape == (5,)
    assert "example_input_array" in inputs.notes[0]
    write("hf.py", NET + "\n    class Own(Net):\n        dummy_inputs = {'x': torch.ones(6)}\n")
    assert inputs_of("hf.py:Own").kwargs["x"].shape == (6,)
    write("misfit.py", NET + "\n    class Own(Net):\n        dummy_inputs = {'input_ids': torch.ones(6)}\n")
    with pytest.raises(SampleInputError):
        inputs_of("misfit.py:Own")


def test_a_forward_without_parameters_needs_no_inputs(write: Write) -> None:
    write("net.py", NET + "\n    class Own(Net):\n        def forward(self):\n            return torch.ones(2)\n")
    assert inputs_of("net.py:Own") == SampleInputs(args=())
    with pytest.raises(SampleInputError, match="too many positional"):
        inputs_of("net.py:Own", "1,3")
    write("default.py", NET + "\n    class Own(Net):\n        def forward(self, x=None):\n            return x + 1\n")
    with pytest.raises(SampleInputError, match="none were given"):
        inputs_of("default.py:Own")


def test_an_inputs_function_of_another_file_has_its_own_neighbours(write: Write) -> None:
    write("net.py", NET)
    write("data/sizes.py", "width = 11")
    write("data/inputs.py", "import torch\nfrom sizes import width\ndef make_inputs(): return torch.ones(width)")
    for spec in ("data/inputs.py", "data/inputs.py:make_inputs", "data/inputs.py::make_inputs"):
        assert inputs_of("net.py", function=spec).args[0].shape == (11,)


def test_an_inputs_function_of_the_model_file_does_not_run_it_again(write: Write) -> None:
    write("net.py", NET + "\n    print('ran')\n    def mine(): return torch.ones(2), Net()\n")
    loaded = load_target("net.py")
    assert type(make_inputs(loaded, function="net.py:mine").args[1]) is type(loaded.model)


@pytest.mark.parametrize(
    ("function", "found"),
    [
        ("absent.py", "no such file"),
        ("inputs.py:mak", "no mak"),
        ("inputs", "not FILE.py"),
        ("inputs.py:bad", "KeyError"),
    ],
)
def test_an_inputs_function_that_fails_says_where(write: Write, function: str, found: str) -> None:
    write("net.py", NET)
    write("inputs.py", "def make_inputs(): return 1\ndef bad(): raise KeyError('a')")
    with pytest.raises(NeuralFlowError, match=found) as raised:
        inputs_of("net.py", function=function)
    assert raised.value.exit_code == 3
    assert raised.value.hint


def test_files(write: Write, tmp_path: Path) -> None:
    write("net.py", NET)
    tensor = torch.arange(6.0).reshape(2, 3)
    np.save("a.npy", tensor.numpy())
    np.savez("a.npz", x=tensor.numpy(), other=np.ones(4))
    np.savez("one.npz", only=tensor.numpy())
    torch.save(tensor, "a.pt")
    torch.save({"batch": {"x": tensor, "id": "text"}}, "nest.pt")
    save_file({"x": tensor}, "a.safetensors")
    np.save("big.npy", tensor.numpy().astype(">f8"))
    texts = (
        "@a.npy",
        "x=@a.npz",
        "@a.npz:x",
        "@one.npz",
        "@a.pt",
        "@nest.pt:batch.x",
        "@a.safetensors",
        "@big.npy:float32",
    )
    for text in texts:
        inputs = inputs_of("net.py", text)
        value = inputs.kwargs["x"] if text.startswith("x=") else inputs.args[0]
        assert torch.equal(value, tensor), text
    assert inputs_of("net.py", "@a.npy:1,6:float16").args[0].shape == (1, 6)
    Image.new("L", (4, 4), 255).save("a.png")
    assert inputs_of("net.py", "@a.png").args[0].shape == (1, 1, 4, 4)
    named = inputs_of("net.py", "x=@a.png~0.5,0.5")
    assert set(named.normalisations) == {"x"}


@pytest.mark.parametrize(
    ("text", "found", "hint"),
    [
        ("@a.npz", "several tensors", "-i @a.npz:x"),
        ("x=@a.npz:zz", "no entry 'zz'", ""),
        ("@a.npy:7", "cannot reshape", ""),
        ("@a.npy[0,1]", "no image", ""),
        ("@text.pt", "found str", "--inputs"),
        ("@objects.npy", "allow_pickle", ""),
        ("@none.npy", "no such file", ""),
        ("@a.xyz", "known kind", ".npz"),
    ],
)
def test_files_that_give_no_tensor(write: Write, text: str, found: str, hint: str) -> None:
    write("net.py", NET)
    write("a.xyz", "")
    np.save("a.npy", np.ones(6))
    np.savez("a.npz", x=np.ones(2), other2=np.ones(4))
    torch.save("text", "text.pt")
    np.save("objects.npy", np.array([{}], dtype=object), allow_pickle=True)
    with pytest.raises(NeuralFlowError, match=found) as raised:
        inputs_of("net.py", text)
    assert hint in raised.value.hint


class Trap:
    def __reduce__(self) -> tuple[Any, ...]:
        return (os.mkdir, ("sprung",))


def test_a_trap_in_an_input_file_does_not_run(write: Write) -> None:
    write("net.py", NET)
    torch.save({"x": Trap()}, "evil.pt")
    np.save("evil.npy", np.array([Trap()], dtype=object), allow_pickle=True)
    for text in ("@evil.pt", "@evil.npy"):
        with pytest.raises(SampleInputError):
            inputs_of("net.py", text)
    assert not Path("sprung").exists()


def test_ids_are_guessed_aloud_and_only_where_nothing_was_said(write: Write) -> None:
    write(
        "net.py",
        """
        from torch import nn

        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.words, self.places = nn.Embedding(30, 4), nn.Embedding(7, 4)

            def forward(self, words, places, other):
                return self.words(words) + self.places(places) + other
        """,
    )
    inputs = inputs_of("net.py", "1,9", "places=1,9:int32", "other=1,9,4")
    assert inputs.args[0].dtype == torch.int64
    assert inputs.args[0].max() < 30
    assert inputs.kwargs["places"].dtype == torch.int32
    assert inputs.kwargs["places"].max() < 7
    assert inputs.kwargs["other"].is_floating_point()
    assert len(inputs.notes) == 2
    assert "1,9:int64[0,30)" in inputs.notes[0]
    said = inputs_of("net.py", "1,9:int64[0,2)", "1,9:int64[5,6)", "1,9,4")
    assert not said.notes
    assert said.args[0].max() < 2


@pytest.mark.parametrize(
    ("texts", "found", "hint"),
    [
        ((), r"forward\(x, mask=None, \*, scale=1.0\); none were given", "-i "),
        (("y=1,2",), "no parameter 'y'", "-i "),
        (("mas=1,2",), "no parameter 'mas'", ""),
        (("mask=1,2",), "missing a required argument: 'x'", "-i "),
        (("1", "1", "1"), "too many positional", "-i "),
    ],
)
def test_inputs_that_forward_does_not_take(write: Write, texts: tuple[str, ...], found: str, hint: str) -> None:
    write("net.py", NET)
    with pytest.raises(SampleInputError, match=found) as raised:
        inputs_of("net.py", *texts)
    assert hint in raised.value.hint


def test_usage_errors(write: Write) -> None:
    write("net.py", NET)
    with pytest.raises(UsageError, match="exclude each other"):
        inputs_of("net.py", "1", function="net.py:f")
    with pytest.raises(UsageError, match="given twice"):
        inputs_of("net.py", "x=1", "x=2")


def test_the_command_keeps_what_was_typed_and_is_quoted_for_a_shell(write: Write) -> None:
    write(
        "net.py",
        "from torch import nn\nclass Net(nn.Module):\n    def __init__(self, n: int = 9):\n        super().__init__()\n"
        "        self.e = nn.Embedding(n, 2)\n    def forward(self, ids):\n        return self.e(ids)",
    )
    command = "neural-flow render net.py -a n=5"
    with pytest.raises(SampleInputError) as raised:
        make_inputs(load_target("net.py", {"n": 5}), command=command)
    words = shlex.split(raised.value.hint.partition(": ")[2])
    assert words[:5] == command.split()
    assert words[5:] == ["-i", "1,16:int64[0,5)"]


def test_making_inputs_leaves_the_model_alone(write: Write) -> None:
    write(
        "net.py",
        """
        from torch import nn
        def build_model():
            net = nn.Sequential(nn.Embedding(9, 4), nn.Flatten(1), nn.LazyBatchNorm1d(), nn.Dropout(), nn.LazyLinear(3))
            import torch; net(torch.zeros(4, 16, dtype=torch.int64)); net[3].eval()
            return net
        """,
    )
    loaded = load_target("net.py")
    before = {name: value.clone() for name, value in loaded.model.state_dict().items()}
    modes = [module.training for module in loaded.model.modules()]
    with pytest.raises(SampleInputError):
        make_inputs(loaded)
    make_inputs(loaded, ["1,16"])
    assert all(torch.equal(value, before[name]) for name, value in loaded.model.state_dict().items())
    assert [module.training for module in loaded.model.modules()] == modes
    assert not any(module._forward_pre_hooks or module._forward_hooks for module in loaded.model.modules())
    assert all(parameter.grad is None for parameter in loaded.model.parameters())


def test_devices(write: Write) -> None:
    write("net.py", NET)
    assert inputs_of("net.py", "2,2", device="meta").args[0].is_meta
    with pytest.raises(SampleInputError, match="gpu9"):
        inputs_of("net.py", "2,2", device="gpu9")


def test_files_are_found_from_where_the_user_stands(write: Write) -> None:
    write("net.py", "import os\nfrom pathlib import Path\nPath('data').mkdir(exist_ok=True)\nos.chdir('data')\n"
          "from torch import nn\nmodel = nn.Linear(2, 2)")  # fmt: skip
    write("inputs.py", "import torch\ndef make_inputs(): return torch.ones(1, 2)")
    torch.save({"weight": torch.ones(2, 2), "bias": torch.zeros(2)}, "w.pt")
    np.save("x.npy", np.ones((1, 2), dtype=np.float32))
    loaded = load_target("net.py", weights="w.pt")
    assert torch.equal(loaded.model.weight, torch.ones(2, 2))  # pyright: ignore[reportArgumentType]
    for inputs in (make_inputs(loaded, ["@x.npy"]), make_inputs(loaded, function="inputs.py")):
        assert torch.equal(inputs.args[0], torch.ones(1, 2))


def test_typed_inputs_follow_the_model_to_its_device(write: Write) -> None:
    write("net.py", "import torch\nfrom torch import nn\nmodel = nn.Linear(3, 2, device='meta')\n")
    loaded = load_target("net.py")
    inputs = make_inputs(loaded, ("1,3",))
    assert inputs.args[0].device.type == "meta"
    assert inputs.notes == ("inputs: on meta, where the model is",)
    assert make_inputs(loaded, ("1,3",), device="cpu").args[0].device.type == "cpu"


def test_a_model_without_forward_is_said_to_have_none(write: Write) -> None:
    write("net.py", "from torch import nn\nmodel = nn.ModuleList([nn.ReLU()])\n")
    with pytest.raises(ModelLoadError, match="ModuleList cannot run\nit has no forward"):
        make_inputs(load_target("net.py"), ("1,3",))


def test_a_function_of_the_file_that_makes_inputs_is_pointed_at(write: Write) -> None:
    write("net.py", "from torch import nn\nmodel = nn.ReLU()\ndef make_inputs(): return 1\n")
    with pytest.raises(SampleInputError) as raised:
        make_inputs(load_target("net.py"))
    assert raised.value.hint.endswith("neural-flow render net.py --inputs net.py:make_inputs")


def test_why_nothing_ran_is_said(write: Write) -> None:
    write("net.py", "from torch import nn\nclass Net(nn.Module):\n    def forward(self, x): return 1/0\n")
    with pytest.raises(SampleInputError, match=r"it raises ZeroDivisionError: .* \(net.py:3\)"):
        make_inputs(load_target("net.py"))
