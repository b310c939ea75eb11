from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from neural_flow import pipeline
from neural_flow.cli.loading import load_job, model_options
from neural_flow.cli.rendering import default_stem, read_outputs
from neural_flow.errors import UnknownNameError, UsageError

Run = Callable[..., Any]


def test_without_an_output_the_figure_takes_the_name_of_the_file(run: Run, folder: Path) -> None:
    result = run("render", "net.py")
    assert result.code == 0, result.stderr
    assert result.stdout == "net.svg\n"
    assert (folder / "net.svg").read_text().startswith(("<svg", "<?xml"))
    assert "the model speaks" in result.stderr
    assert "the model speaks" not in result.stdout


def test_a_folder_takes_a_figure_with_the_name_of_the_file(run: Run, folder: Path) -> None:
    (folder / "figures").mkdir()
    for name in ("figures", "figures/"):
        result = run("render", "net.py", "-o", name, "-o", "figures/b.json")
        assert result.code == 0, result.stderr
        assert result.stdout.splitlines() == ["figures/net.svg", "figures/b.json"]
    result = run("diff", "net.py", "net.py", "-o", "figures/")
    assert (result.code, result.lines["hint"]) == (2, "name a file in it: -o figures/figure.svg")


def test_code_in_a_hint_can_be_copied(run: Run, folder: Path) -> None:
    (folder / "dicts.py").write_text(
        "from torch import nn\nclass Net(nn.Linear):\n    def __init__(self): super().__init__(3, 2)\n"
        "    def forward(self, batch): return super().forward(batch['x'])\n"
    )
    result = run("render", "dicts.py")
    assert result.code == 3
    hint, _, code = result.stderr.partition("hint:  ")[2].partition("\n")
    (folder / "inputs.py").write_text(code)
    words = shlex.split(hint.partition("this works: ")[2])
    assert run(*words[1:]).code == 0


def test_many_outputs(run: Run, folder: Path) -> None:
    result = run("render", "net.py:Net", "-a", "width=6", "-o", "a.svg", "-o", "b.png", "-o", "c.json", "-q")
    assert result.code == 0, result.stderr
    assert result.stdout.splitlines() == ["a.svg", "b.png", "c.json"]
    graph = json.loads((folder / "c.json").read_text())
    assert graph["request"]["target"] == "net.py:Net"
    assert graph["model"]["name"] == "Net"
    stem = next(node for node in graph["nodes"] if node.get("module") == "stem")
    assert stem["outputs"][0]["shape"] == [1, 6, 16, 16]
    assert str(folder) not in json.dumps(graph)


def test_an_absolute_target_leaves_no_path_in_the_files(run: Run, folder: Path) -> None:
    torch.save(torch.ones(1, 3, 16, 16), folder / "x.pt")
    result = run("render", str(folder / "net.py"), "-i", f"x=@{folder / 'x.pt'}", "-o", "a.svg", "-o", "c.json")
    assert result.code == 0, result.stderr
    for name in ("a.svg", "c.json"):
        assert str(folder) not in (folder / name).read_text()
    assert list(json.loads((folder / "c.json").read_text())["request"]["inputs"]) == ["x=@x.pt"]


def test_the_same_command_writes_the_same_bytes(run: Run, folder: Path) -> None:
    for name in ("a", "b"):
        assert run("render", "net.py", "-i", "1,3,16,16", "-o", f"{name}.svg", "-o", f"{name}.png").code == 0
    assert (folder / "a.svg").read_bytes() == (folder / "b.svg").read_bytes()
    assert (folder / "a.png").read_bytes() == (folder / "b.png").read_bytes()


def test_stdout_carries_the_figure_alone(folder: Path) -> None:
    text = (
        (folder / "net.py")
        .read_text()
        .replace('print("the model speaks")', 'print("loud"); import os; os.system("echo child")')
    )
    (folder / "loud.py").write_text("print('at import')\n" + text)
    command = [sys.executable, "-m", "neural_flow", "render", "loud.py", "-o", "-", "--format", "svg", "-o", "b.png"]
    ran = subprocess.run(command, capture_output=True, check=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    figure, _, rest = ran.stdout.partition(b"</svg>")
    assert figure.lstrip().startswith((b"<svg", b"<?xml"))
    assert rest.split() == [b"b.png"]
    for said in (b"at import", b"loud", b"child"):
        assert said not in ran.stdout
        assert said in ran.stderr


def test_a_stored_graph_is_drawn_again(run: Run, folder: Path) -> None:
    assert run("render", "net.py", "-o", "graph.json").code == 0
    result = run("render", "graph.json", "-o", "again.svg", "-o", "again.json")
    assert result.code == 0, result.stderr
    first, again = (json.loads((folder / name).read_text()) for name in ("graph.json", "again.json"))
    assert again["fingerprint"] == first["fingerprint"]
    assert again["edges"] == first["edges"]
    (folder / "bad.json").write_text("{")
    (folder / "other.json").write_text("{}")
    for name in ("bad.json", "other.json", "absent.json"):
        result = run("render", name)
        assert result.code == 3, result.stderr
        assert "hint" in result.lines


def test_a_stored_graph_keeps_its_numbers_and_says_what_comes_too_late(run: Run, folder: Path) -> None:
    assert run("render", "net.py", "-o", "graph.json", "--color-by", "flops").code == 0
    result = run("render", "graph.json", "-o", "a.svg", "--color-by", "flops", "--theme", "dark")
    assert result.code == 0, result.stderr
    assert "FLOP" in (folder / "a.svg").read_text()
    assert result.stderr == ""
    result = run("render", "graph.json", "-o", "a.json", "-o", "b.svg", "--detail", "op", "--no-fold", "-i", "1,2")
    assert result.code == 0
    assert "without effect on this graph file" in result.stderr
    assert result.stderr.strip().endswith("-i, --detail, --no-fold")
    assert "--saved" in run("render", "graph.json", "-o", "a.svg", "--saved").stderr
    stored, again = (json.loads((folder / name).read_text()) for name in ("graph.json", "a.json"))
    numbers = [node["flops"] for node in stored["nodes"]]
    assert any(numbers)
    assert [node["flops"] for node in again["nodes"]] == numbers
    result = run("render", "graph.json", "-o", "a.svg", "--color-by", "time")
    assert result.code == 2
    assert "--color-by time" in result.lines["hint"]


def test_a_failing_forward_writes_the_partial_figure(run: Run, folder: Path) -> None:
    result = run("render", "broken.py", "-o", "b.svg", "-o", "b.json")
    assert result.code == 4
    assert result.stdout.splitlines() == ["b.svg", "b.json"]
    assert list(result.lines) == ["error", "cause", "hint"]
    assert "running 2" in result.lines["error"]
    assert "RuntimeError" in result.lines["cause"]
    assert "float32 [1, 8]" in result.lines["hint"]
    graph = json.loads((folder / "b.json").read_text())
    assert graph["status"] == "partial"
    assert graph["error"]["module"] == "2"


def test_a_failing_forward_is_told_which_sizes_work(run: Run, folder: Path) -> None:
    result = run("render", "broken.py", "-i", "1,5")
    assert result.code == 4
    assert "this works" not in result.lines["hint"]  # nothing does
    result = run("render", "sample:unet", "-i", "1,1,30,30")
    assert result.code == 4
    matched = re.search(r"neural-flow (render .*)", result.lines["hint"])
    assert matched
    assert matched[1] == "render sample:unet -i 1,1,32,32"
    assert run(*shlex.split(matched[1])).code == 0


def test_files_that_cannot_be_written_do_not_stop_the_others(run: Run, folder: Path) -> None:
    result = run("render", "net.py", "-o", "absent/a.svg", "-o", "b.svg", "-o", "gone/c.png")
    assert result.code == 6
    assert result.stdout == "b.svg\n"
    assert (folder / "b.svg").exists()
    assert "absent/a.svg" in result.stderr
    assert "mkdir" in result.lines["hint"]
    assert not [file for file in folder.iterdir() if file.suffix == ".part"]


@pytest.mark.parametrize(
    ("arguments", "code", "cause"),
    [
        (["absent.py"], 3, "no absent.py"),
        (["net.py", "-a", "wdth=3"], 2, "knows width"),
        (["net.py", "-i", "1,3,a"], 2, "'a' is no size"),
        (["net.py", "-i", "y=1,3"], 3, "no parameter 'y'"),
        (["net.py", "--weights", "absent.pt"], 3, "does not hold it"),
        (["net.py", "-o", "a.xyz"], 2, ""),
        (["net.py", "-o", "a"], 2, "suffix"),
        (["net.py", "-o", "-"], 2, "no suffix"),
        (["net.py", "--format", "svg"], 2, "suffix"),
        (["net.py", "--label", "stem"], 2, "PATH=TEXT"),
        (["net.py", "--select", "nothing.*"], 5, ""),
        (["net.py", "--theme", "drk"], 2, ""),
        (["net.py", "--width", "wide"], 2, ""),
        (["net.py", "--topology", "magic"], 2, ""),
        (["net.py", "--tokens", "absent.txt"], 3, "FileNotFoundError"),
    ],
)
def test_every_mistake_has_its_code_and_a_hint(run: Run, arguments: list[str], code: int, cause: str) -> None:
    result = run("render", *arguments)
    assert result.code == code, result.stderr
    assert "error" in result.lines
    assert "hint" in result.lines
    assert cause in result.lines.get("cause", "")
    assert "Traceback" not in result.stderr


def test_the_hint_for_missing_inputs_works_when_pasted(run: Run, folder: Path) -> None:
    text = (folder / "net.py").read_text().replace("def neural_flow_inputs", "def _unused")
    (folder / "my net.py").write_text(text)
    result = run("render", "my net.py", "-a", "width=5")
    assert result.code == 3
    matched = re.search(r"neural-flow (render .*)", result.lines["hint"])
    assert matched
    again = run(*shlex.split(matched[1]))
    assert again.code == 0, again.stderr
    assert again.stdout == "my net.svg\n"


def test_weights_and_notes(run: Run, folder: Path) -> None:
    torch.manual_seed(3)
    state = {"stem.weight": torch.ones(8, 3, 3, 3), "stem.bias": torch.zeros(8)}
    from importlib import util

    spec = util.spec_from_file_location("net_for_weights", folder / "net.py")
    assert spec is not None
    assert spec.loader is not None
    module = util.module_from_spec(spec)
    spec.loader.exec_module(module)
    state = {f"module.{name}": value for name, value in {**module.Net().state_dict(), **state}.items()}
    torch.save({"state_dict": state}, folder / "ckpt.pt")
    result = run("render", "net.py", "--weights", "ckpt.pt", "-o", "a.json")
    assert result.code == 0, result.stderr
    assert "took 'state_dict'" in result.stderr
    assert "dropped the prefix 'module.'" in result.stderr
    assert "note" not in run("render", "net.py", "--weights", "ckpt.pt", "-o", "a.json", "-q").lines


def test_structure_only_and_fake(run: Run, folder: Path) -> None:
    for flag in ("--no-capture", "--fake"):
        result = run("render", "net.py", flag, "-o", "a.json")
        assert result.code == 0, result.stderr
        graph = json.loads((folder / "a.json").read_text())
        assert all(node["summary"] is None for node in graph["nodes"])


@pytest.mark.parametrize(
    ("target", "stem"),
    [
        ("net.py", "net"), ("a/b/net.py:Net", "net"), ("net.py::Net.part", "net"), ("sample:unet", "unet"),
        ("torchvision:resnet18", "resnet18"), ("hf:path/to/folder", "folder"), ("hf:path/to/folder/", "folder"),
        ("package.module:Net", "Net"), ("package.module", "module"), ("net.pt2", "net"), ("graph.json", "graph"),
        ("a b (v2).py", "a b (v2)"), ("hf:../..", "figure"), ("model.v2.py", "model.v2"),
    ],
)  # fmt: skip
def test_the_default_name(target: str, stem: str) -> None:
    assert default_stem(target) == stem


def test_outputs_are_checked_before_anything_runs() -> None:
    assert [(str(output.file), output.suffix) for output in read_outputs(["A.SVG"], None, "x.py")] == [
        ("A.SVG", ".svg")
    ]
    with pytest.raises(UnknownNameError):
        read_outputs(["a.sgv"], None, "x.py")
    with pytest.raises(UsageError, match="twice"):
        read_outputs(["-", "-"], "svg", "x.py")


TWO_IMAGES = """\
import torch
from torch import nn


class Two(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(6, 4, 3)

    def forward(self, left, right):
        return self.conv(torch.cat([left, right], 1))
"""


@pytest.mark.parametrize(
    ("left", "right"), [("~imagenet", "~0.5,0.25"), ("~imagenet", ""), ("~0.5,0.5", "~0.5,0.5")], ids=str
)
def test_each_image_is_shown_as_it_was_before_its_own_normalisation(folder: Path, left: str, right: str) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (16, 16, 3), dtype=np.uint8)
    pixels[0, 0], pixels[0, 1] = 0, 255
    Image.fromarray(pixels).save(folder / "photo.png")
    (folder / "two.py").write_text(TWO_IMAGES)
    params = {
        "target": "two.py", "arguments": [], "weights": None, "unsafe_load": False, "allow_download": False, "seed": 0,
        "device": None, "inputs_function": None, "quiet": True,
        "inputs": [f"left=@photo.png:1,3,16,16{left}", f"right=@photo.png:1,3,16,16{right}"],
    }  # fmt: skip
    job = load_job(params, lambda _: None)
    options = model_options(params, job)
    _, captured = pipeline.observe_values(job.loaded.model, job.inputs.args, job.inputs.kwargs, **options)
    for stage_id in (0, 1):
        shown = captured.summaries[stage_id].arrays["pixels"].astype(int)
        assert np.abs(shown - pixels).max() <= 1


def test_a_font_that_is_not_there_is_said_once(run: Run, folder: Path) -> None:
    result = run("render", "net.py", "--font", "absent.ttf")
    assert result.code == 2
    assert result.lines["error"] == "the font absent.ttf cannot be read"
    assert result.lines["cause"].startswith("[Errno 2] No such file")


def test_a_class_that_is_not_there_names_classes(run: Run, folder: Path) -> None:
    result = run("render", "net.py", "--type", "Nope")
    assert result.code == 5
    assert result.lines["hint"] == "classes that ran: Net, Conv2d, Sequential, ReLU, Linear"
    assert run("render", "net.py", "--type", "Conv2").lines["hint"] == "nearest: Conv2d"


def test_inputs_that_are_called_otherwise(run: Run, folder: Path) -> None:
    result = run("render", "net.py", "-i", "image=1,3,16,16")
    assert result.code == 3
    assert result.lines["error"] == "the inputs do not fit Net"
    assert result.lines["hint"] == "did you mean -i x=...?"
