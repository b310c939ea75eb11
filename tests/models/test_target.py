from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

from neural_flow.errors import ModelLoadError, NeuralFlowError, UnknownNameError, UsageError
from neural_flow.models.target import load_target, sample_names

Write = Callable[[str, str], Path]
NET = """
    from torch import nn

    class Block(nn.Module):
        def __init__(self, width):
            super().__init__()
            self.linear = nn.Linear(width, width)

        def forward(self, x):
            return self.linear(x)

    class Net(nn.Module):
        def __init__(self, depth: int = 2, norm="batch"):
            super().__init__()
            self.norm = norm
            self.blocks = nn.Sequential(*[Block(4) for _ in range(depth)])

        def forward(self, x):
            return self.blocks(x)
"""


def test_the_only_class_without_arguments_is_built(write: Write) -> None:
    loaded = load_target(str(write("net.py", NET)))
    assert loaded.name == "Net"
    assert len(loaded.model.blocks) == 2  # pyright: ignore[reportArgumentType]
    assert loaded.file is not None
    assert loaded.file.name == "net.py"


@pytest.mark.parametrize("target", ["net.py:Net", "net.py::Net", "./net.py:Net", "net:Net", "net"])
def test_all_spellings_reach_the_same_class(write: Write, target: str) -> None:
    write("net.py", NET)
    assert load_target(target, {"depth": 3, "norm": None}).model.norm is None


def test_order_of_the_conventional_names(write: Write) -> None:
    lines = [
        "model = nn.Linear(1, 1)",
        "def build(): return nn.Linear(2, 2)",
        "def create_model(): return nn.Linear(3, 3)",
        "def get_model(): return nn.Linear(4, 4)",
        "def build_model(): return nn.Linear(5, 5)",
        "def neural_flow_model(): return nn.Linear(6, 6)",
    ]
    for count in range(1, len(lines) + 1):
        text = "\n".join(["from torch import nn", *reversed(lines[:count])])
        loaded = load_target(str(write(f"order{count}.py", text)))
        assert loaded.model.in_features == count


def test_a_builder_that_wants_what_was_not_given_is_passed_over(write: Write) -> None:
    write("net.py", "from torch import nn\ndef build(config): return config\nmodel = nn.Linear(2, 2)")
    assert isinstance(load_target("net.py").model, nn.Linear)


def test_dotted_attributes_reach_into_instances(write: Write) -> None:
    write(
        "net.py",
        "from torch import nn\nmodel = nn.Sequential(nn.Linear(2, 3), nn.ReLU())\nclass Zoo:\n    best = model",
    )
    assert isinstance(load_target("net.py:model.0").model, nn.Linear)
    assert isinstance(load_target("net.py:Zoo.best").model, nn.Sequential)


def test_relative_imports_work_inside_a_package(write: Write) -> None:
    write("pkg/__init__.py", "")
    write("pkg/parts/__init__.py", "")
    write("pkg/parts/blocks.py", "from torch import nn\nclass Block(nn.Linear):\n    pass")
    write("pkg/nets/__init__.py", "")
    write("pkg/nets/net.py", "from ..parts.blocks import Block\ndef build_model(): return Block(2, 2)")
    for target in ("pkg/nets/net.py", "pkg.nets.net", "pkg.nets.net:build_model"):
        assert type(load_target(target).model).__name__ == "Block"


def test_a_file_in_a_package_runs_without_its_init_where_it_can(write: Write) -> None:
    write("pkg/__init__.py", "raise RuntimeError('not needed')")
    write("pkg/other.py", "width = 7")
    write("pkg/net.py", "from other import width\nfrom torch import nn\nmodel = nn.Linear(width, 1)")
    assert load_target("pkg/net.py").model.in_features == 7


def test_name_is_not_main_and_arguments_of_the_process_are_hidden(write: Write) -> None:
    write(
        "net.py",
        """
        import sys
        from torch import nn
        assert __name__ != "__main__"
        assert len(sys.argv) == 1 and sys.argv[0].endswith("net.py")
        model = nn.Identity()
        """,
    )
    load_target("net.py")


def test_two_files_with_their_own_utils_do_not_clash(write: Write) -> None:
    for folder, width in (("a", 3), ("b", 5)):
        write(f"{folder}/utils.py", f"width = {width}")
        write(
            f"{folder}/net.py",
            """
            from torch import nn
            import utils

            class Net(nn.Module):
                def forward(self, x):
                    import utils as late
                    return x * late.width

            width = utils.width
            """,
        )
    a, b = load_target("a/net.py"), load_target("b/net.py")
    assert "utils" not in sys.modules
    assert (a.namespace["width"], b.namespace["width"]) == (3, 5)
    for loaded, width in ((b, 5), (a, 3), (b, 5)):  # an import inside forward meets its own file, in any order
        with loaded.scope:
            assert loaded.model(torch.ones(1)) == width
    assert "utils" not in sys.modules


def test_modules_of_a_folder_that_a_file_puts_on_the_path_do_not_clash_either(write: Write) -> None:
    for name in ("a", "b"):
        write(f"{name}_lib/my_width.py", f"WIDTH = {2 if name == 'a' else 5}\n")
        text = f"import sys\nsys.path.append({str(Path.cwd() / f'{name}_lib')!r})\nfrom my_width import WIDTH\n"
        write(f"{name}/net.py", f"{text}from torch import nn\nmodel = nn.Linear(WIDTH, 1)\n")
    loaded = [load_target(f"{name}/net.py") for name in ("a", "b")]
    assert [one.model.in_features for one in loaded] == [2, 5]
    assert [file.parent.name for one in loaded for file in one.scope.files if file.stem == "my_width"] == [
        "a_lib",
        "b_lib",
    ]


def test_a_module_that_the_process_holds_already_comes_back(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = type(sys)("utils")
    kept.__file__ = str(Path("elsewhere/utils.py").resolve())
    monkeypatch.setitem(sys.modules, "utils", kept)
    write("utils.py", "width = 4")
    write("net.py", "import utils\nfrom torch import nn\nmodel = nn.Linear(utils.width, 1)")
    assert load_target("net.py").model.in_features == 4
    assert sys.modules["utils"] is kept


def test_what_a_file_sets_holds_for_its_model_only(write: Write) -> None:
    write(
        "net.py",
        """
        import os, torch
        from torch import nn
        os.makedirs("data", exist_ok=True)
        os.chdir("data")
        torch.set_default_dtype(torch.float64)
        torch.set_grad_enabled(False)

        class Net(nn.Module):
            def forward(self):
                return torch.zeros(1)
        """,
    )
    folder = os.getcwd()
    loaded = load_target("net.py")
    assert os.getcwd() == folder
    with loaded.scope:
        assert loaded.model().dtype == torch.float64
        assert os.getcwd().endswith("data")
    assert torch.zeros(1).dtype == torch.float32


def test_scopes_nest_and_survive_errors(write: Write) -> None:
    loaded = load_target(str(write("net.py", NET)))
    with pytest.raises(KeyError), loaded.scope, loaded.scope:
        raise KeyError
    assert "net" not in sys.modules


def test_a_file_named_like_a_library_hides_nothing(write: Write) -> None:
    write("random.py", "from torch import nn\nmodel = nn.Linear(1, 1)")
    write("torch_private.py", "from torch import nn\nmodel = nn.Linear(1, 1)")
    for name in ("random.py", "torch_private.py"):
        assert isinstance(load_target(name).model, nn.Linear)
    assert sys.modules["random"].__name__ == "random"
    assert hasattr(sys.modules["random"], "gauss")


@pytest.mark.parametrize("name", ["my-model.py", "model.v2.py", "1st model.py"])
def test_any_file_name_loads(write: Write, name: str) -> None:
    write(name, "from torch import nn\nmodel = nn.Identity()")
    assert isinstance(load_target(name).model, nn.Identity)


def test_the_seed_makes_weights_and_leaves_the_generators(write: Write) -> None:
    write(
        "net.py",
        """
        import random
        import numpy as np
        from torch import nn
        model = nn.Linear(3, 3)
        r = (random.random(), np.random.rand())
        """,
    )
    first, again, other = (load_target("net.py", seed=seed) for seed in (1, 1, 2))
    assert torch.equal(first.model.weight, again.model.weight)
    assert not torch.equal(first.model.weight, other.model.weight)
    assert first.namespace["r"] == again.namespace["r"] != other.namespace["r"]


def test_device(write: Write) -> None:
    write("net.py", NET)
    assert next(load_target("net.py", device="meta").model.parameters()).is_meta
    with pytest.raises(ModelLoadError, match="cannot move the model to gpu7"):
        load_target("net.py", device="gpu7")


ERRORS = {
    "no such file": ("nope.py", {}, {}, "no such file: nope.py", "holds|try"),
    "near file": ("nett.py", {"net.py": NET}, {}, "no such file", "did you mean neural-flow render net.py"),
    "no folder": ("nope/net.py", {}, {}, "no folder nope", "check"),
    "a folder": ("m", {"m/a.py": "", "m/b.py": "nn.Module"}, {}, "folder", "render m/b.py$"),
    "a folder of folders": (".", {"m/a.py": ""}, {}, "folder", "look in m"),
    "a folder with a configuration": ("m", {"m/config.json": "{}"}, {}, "folder", "render hf:m"),
    "error inside": ("net.py", {"net.py": "x = 1\nx.y"}, {}, r"AttributeError.*\(net.py:2\)", "--debug"),
    "error in a helper": ("n.py", {"n.py": "import h", "h.py": "\n\n1/0"}, {}, r"ZeroDivisionError.*\(h.py:3\)", ""),
    "error in a library": ("n.py", {"n.py": "import json\n\njson.loads('{')"}, {}, r"JSONDecodeError.*n.py:3", ""),
    "syntax": ("net.py", {"net.py": "def f(:"}, {}, r"SyntaxError.*\(net.py:1\)", "python"),
    "missing import": ("net.py", {"net.py": "import zzz_absent.sub"}, {}, "zzz_absent", "pip install zzz_absent"),
    "exits": ("net.py", {"net.py": "import sys; sys.exit(3)"}, {}, "SystemExit: 3", "__main__"),
    "reads arguments": (
        "n.py", {"n.py": "import argparse\np = argparse.ArgumentParser()\np.add_argument('d')\np.parse_args()"}, {},
        "SystemExit: 2", "give every argument a default",
    ),
    "reads a file": ("n.py", {"n.py": "open('data.csv')"}, {}, "FileNotFoundError", "where data.csv lies"),
    "other name": ("n.py", {"n.py": "import skimage"}, {}, "skimage", "pip install scikit-image"),
    "nothing there": ("net.py", {"net.py": "x = 1"}, {}, "no nn.Module class", "neural_flow_model"),
    "other instances": ("n.py", {"n.py": "from torch import nn\nnet = nn.ReLU()"}, {}, "none called model", "n.py:net"),
    "several": ("net.py", {"net.py": NET + "\n    class Other(Net): pass"}, {}, "Net, Other", "render net.py:Other"),
    "no such name": ("net.py:Nett", {"net.py": NET}, {}, "no 'Nett'", "did you mean net.py:Net"),
    "no such part": ("n.py:model.a", {"n.py": "from torch import nn\nmodel = nn.Sequential()"}, {}, "no 'a'", ""),
    "needs arguments": ("net.py:Block", {"net.py": NET}, {}, "missing: width", "-a width="),
    "no model": ("net.py:x", {"net.py": "x = 3"}, {}, "found int", ""),
    "built no model": ("net.py:f", {"net.py": "def f(): return 'text'"}, {}, "returned a str", "nn.Module"),
    "raises": ("n.py:f", {"n.py": "def f():\n    raise KeyError('w')"}, {}, r"KeyError: 'w' \(n.py:2\)", "--debug"),
    "weights as target": ("net.pt", {"net.pt": ""}, {}, "holds weights", "render model.py --weights net.pt"),
    "absent module": ("zzz.net:Net", {}, {}, "No module named 'zzz'", "model.py:ATTR"),
    "only a word": ("resnet", {}, {}, "no file or module", "sample:resnet50"),
}  # fmt: skip


@pytest.mark.parametrize("case", ERRORS)
def test_every_mistake_says_what_was_found_and_what_to_type(write: Write, case: str) -> None:
    target, files, arguments, found, hint = ERRORS[case]
    for name, text in files.items():
        write(name, text)
    with pytest.raises(ModelLoadError, match=f"(?s){found}") as raised:
        load_target(target, arguments)
    assert raised.value.exit_code == 3
    assert len(str(raised.value).splitlines()) == 2
    assert raised.value.hint
    assert __import__("re").search(hint, raised.value.hint)


@pytest.mark.parametrize(
    ("target", "arguments", "hint"),
    [("net.py:Net", {"deph": 4}, "did you mean -a depth=4"), ("inst.py:model", {"depth": 4}, "name the class")],
)
def test_arguments_that_fit_nothing_are_a_usage_error(write: Write, target: str, arguments: dict, hint: str) -> None:
    write("net.py", NET)
    write("inst.py", "from torch import nn\nmodel = nn.ReLU()")
    with pytest.raises(UsageError) as raised:
        load_target(target, arguments)
    assert hint in raised.value.hint


def test_an_unknown_sample_lists_the_nearest() -> None:
    with pytest.raises(UnknownNameError) as raised:
        load_target("sample:unett")
    assert "unet" in raised.value.hint


def test_the_printed_command_for_missing_arguments_builds_the_model(write: Write) -> None:
    write("net.py", NET)
    with pytest.raises(ModelLoadError) as raised:
        load_target("net.py:Block")
    words = raised.value.hint.split()
    name, value = words[words.index("-a") + 1].split("=")
    assert load_target(words[words.index("render") + 1], {name: int(value)}).model.linear.in_features == int(value)


def test_every_error_is_ours(write: Write) -> None:
    for target in ("", ":", "a:b:c", "x.py:", ":x", "sample:", "torchvision:", "hf:", "😀", "a b"):
        with pytest.raises(NeuralFlowError):
            load_target(target)


def test_samples_are_found() -> None:
    assert {"unet", "resnet50", "gpt2", "vit", "mlp"} <= set(sample_names())


def test_classes_that_cannot_run_are_named(write: Write) -> None:
    write("base.py", "from torch import nn\nclass Base(nn.Module):\n    pass\n")
    with pytest.raises(ModelLoadError, match=r"none of its nn\.Module classes can run.* without forward: Base"):
        load_target("base.py")
    write("empty.py", "from torch import nn\n")
    with pytest.raises(ModelLoadError, match=r"it defines no nn\.Module class"):
        load_target("empty.py")


def test_a_wrapped_model_has_the_name_of_its_class(write: Write) -> None:
    head = "import torch\nfrom torch import nn\nclass Net(nn.Linear): pass\n"
    makers = {"compiled": "torch.compile(Net(2, 2))", "parallel": "nn.DataParallel(Net(2, 2))",
              "scripted": "torch.jit.script(Net(2, 2))"}  # fmt: skip
    for name, maker in makers.items():
        write(f"{name}.py", f"{head}model = {maker}\n")
        assert load_target(f"{name}.py").name == "Net"
