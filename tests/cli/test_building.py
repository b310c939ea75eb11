"""Builds whose child processes are calls of ``main`` in this process, and one with real ones."""

from __future__ import annotations

import contextlib
import io
import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from neural_flow import build
from neural_flow.build import Ran
from neural_flow.cli import building
from neural_flow.cli.main import main

Run = Callable[..., Any]
PROJECT = """\
[tool.neural-flow.defaults]
legend = false

[[tool.neural-flow.figures]]
name = "wide"
target = "net.py:Net"
args = { width = 6 }
outputs = ["figures/wide.svg", "figures/wide.txt"]
graph = "figures/wide.json"

[[tool.neural-flow.figures]]
name = "plain"
target = "net.py"
inputs = ["1,3,16,16"]
outputs = ["figures/plain.svg"]
"""


@pytest.fixture
def in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    def run_child(children: Any, arguments: Sequence[str]) -> Ran:
        stdout, stderr = io.StringIO(), io.StringIO()
        hidden = {name: os.environ.pop(name) for name in build._NOT_FOR_CHILDREN if name in os.environ}
        try:
            with (
                contextlib.chdir(children._folder),
                contextlib.redirect_stdout(stdout),
                contextlib.redirect_stderr(stderr),
            ):
                code = main(arguments)
        finally:
            os.environ.update(hidden)
        return Ran(code=code, stdout=stdout.getvalue(), stderr=stderr.getvalue())

    monkeypatch.setattr(build.Children, "_run", run_child)


@pytest.fixture
def project(folder: Path) -> Path:
    (folder / "pyproject.toml").write_text(PROJECT)
    return folder


def states(stdout: str) -> dict[str, str]:
    rows = [line.split() for line in stdout.splitlines()[1:]]
    return {row[0]: "out of date" if row[1] == "out" else row[1] for row in rows}


def contents(folder: Path) -> dict[str, tuple[bytes, int]]:
    files = [*sorted((folder / "figures").iterdir()), folder / build.MANIFEST]
    return {file.name: (file.read_bytes(), file.stat().st_mtime_ns) for file in files}


@pytest.mark.usefixtures("in_process")
def test_files_are_rewritten_only_when_something_that_matters_changed(run: Run, project: Path) -> None:
    assert run("build", "--check").code == 1
    assert not (project / "figures").exists(), "--check writes nothing"
    first = run("build")
    assert first.code == 0, first.stderr
    assert states(first.stdout) == {"wide": "written", "plain": "written"}
    written = contents(project)
    assert set(written) == {"wide.svg", "wide.txt", "wide.json", "plain.svg", build.MANIFEST}
    assert "<svg" in (project / "figures/wide.svg").read_text()

    second = run("build")
    assert states(second.stdout) == {"wide": "unchanged", "plain": "unchanged"}
    assert contents(project) == written
    assert run("build", "--check").code == 0

    # other last bits of an activation, as another processor computes them
    text = (project / "figures/wide.svg").read_text().replace("0", "1")
    (project / "figures/wide.svg").write_text(text)
    assert run("build", "--check").code == 0
    assert states(run("build").stdout)["wide"] == "unchanged"
    assert (project / "figures/wide.svg").read_text() == text

    (project / "figures/plain.svg").unlink()
    assert states(run("build").stdout) == {"wide": "unchanged", "plain": "written"}
    (project / "pyproject.toml").write_text(PROJECT.replace("width = 6", "width = 7"))
    assert run("build", "--check").code == 1
    assert states(run("build").stdout) == {"wide": "written", "plain": "unchanged"}
    with (project / "net.py").open("a") as stream:
        stream.write("\n# another byte of the model\n")
    assert states(run("build", "--only", "p*").stdout) == {"plain": "written"}
    assert states(run("build", "--check").stdout) == {"wide": "out of date", "plain": "unchanged"}


@pytest.mark.usefixtures("in_process")
def test_the_manifest_tells_what_figures_were_made_from(run: Run, project: Path) -> None:
    assert run("build").code == 0
    data = json.loads((project / build.MANIFEST).read_text())
    assert list(data["figures"]) == ["plain", "wide"]
    wide = data["figures"]["wide"]
    assert wide["fingerprint"] == json.loads((project / "figures/wide.json").read_text())["fingerprint"]
    assert set(wide["sources"]) == {"net.py"}
    assert str(project) not in json.dumps(data)
    (project / "pyproject.toml").write_text(PROJECT.replace('name = "plain"', 'name = "other"'))
    assert run("build").code == 0
    assert list(json.loads((project / build.MANIFEST).read_text())["figures"]) == ["other", "wide"]
    (project / build.MANIFEST).write_text("{")
    result = run("build")
    assert result.code == 3
    assert "delete it" in result.lines["hint"]


@pytest.mark.usefixtures("in_process")
def test_whatever_the_model_read_decides_about_rewriting(run: Run, folder: Path, tmp_path_factory: Any) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (elsewhere / "my_blocks.py").write_text("SCALE = 2.0\n")
    (folder / "config.yaml").write_text("bias: 1.0\n")
    (folder / "model.py").write_text(
        f"import sys\nsys.path.append({str(elsewhere)!r})\nimport torch\nfrom torch import nn\n"
        "class Net(nn.Linear):\n"
        "    def forward(self, x):\n"
        "        from my_blocks import SCALE\n"
        "        return super().forward(x) * SCALE\n"
        "model = Net(3, 2)\n"
        "from pathlib import Path\n"
        "torch.nn.init.constant_(model.bias, float(Path('config.yaml').read_text().split()[1]))\n"
    )
    (folder / "pyproject.toml").write_text(
        '[[tool.neural-flow.figures]]\nname = "net"\ntarget = "model.py"\ninputs = ["1,3"]\noutputs = ["net.svg"]\n'
    )
    assert run("build").code == 0
    manifest = (folder / "neural-flow.lock").read_text()
    sources = json.loads(manifest)["figures"]["net"]["sources"]
    assert sorted(Path(name).name for name in sources) == ["config.yaml", "model.py", "my_blocks.py"]
    assert str(elsewhere) not in manifest
    assert "unchanged" in run("build").stdout
    for file, text in ((folder / "config.yaml", "bias: 2.0\n"), (elsewhere / "my_blocks.py", "SCALE = 4.0\n")):
        file.write_text(text)
        assert run("build", "--check").code == 1
        assert run("build").code == 0
        assert run("build", "--check").code == 0


def test_one_failure_does_not_stop_the_rest(run: Run, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    more = '[[tool.neural-flow.figures]]\ntarget = "{}"\noutputs = ["figures/{}"]\n'
    broken = more.format("broken.py", "broken.svg") + more.format("absent.py", "absent.svg")
    (project / "pyproject.toml").write_text(broken + PROJECT)
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    result = run("build", "--jobs", "1")
    assert result.code == 4, "the first failure's"
    assert states(result.stdout) == {"broken": "failed", "absent": "failed", "wide": "written", "plain": "written"}
    assert "broken: error: the model raised" in result.stderr
    assert "absent: error: no such file" in result.stderr
    annotations = [line for line in result.stderr.splitlines() if line.startswith("::error")]
    assert [line.partition("::error ")[2].partition("::")[0] for line in annotations] == [
        "file=pyproject.toml,title=figure broken",
        "file=pyproject.toml,title=figure absent",
    ]
    assert not (project / "figures/broken.svg").exists()
    assert list(json.loads((project / build.MANIFEST).read_text())["figures"]) == ["plain", "wide"]


@pytest.mark.usefixtures("in_process")
def test_the_summary_of_a_pull_request(run: Run, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    summary = project / "summary.md"
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    assert run("build").code == 0
    text = summary.read_text()
    assert "| wide | written | " in text
    assert text.count("```mermaid") == 2
    changed = (project / "net.py").read_text().replace("nn.Linear(width, 4)", "nn.Linear(width, 5)")
    (project / "net.py").write_text(changed)
    summary.unlink()
    assert run("build").code == 0
    text = summary.read_text()
    assert "~ head: parameters 28 → 35" in text
    assert "```diff" in text
    monkeypatch.setattr(building, "MAX_SUMMARY_NBYTES", 1500)
    summary.unlink()
    assert run("build").code == 0
    assert len(summary.read_bytes()) < 1700
    assert "too large" in summary.read_text()


@pytest.mark.usefixtures("in_process")
def test_check_without_a_target_checks_every_graph(run: Run, project: Path) -> None:
    assert run("build").code == 0
    result = run("check")
    assert result.code == 0, result.stderr
    assert result.stdout.startswith("wide: figures/wide.json: the same architecture")
    changed = (project / "net.py").read_text().replace("nn.Linear(width, 4)", "nn.Linear(width, 5)")
    (project / "net.py").write_text(changed)
    result = run("check")
    assert result.code == 1
    assert "wide: ~ head: parameters 28 → 35" in result.stdout
    data = json.loads(run("check", "--json").stdout)
    assert [(found["figure"], found["exit_code"]) for found in data["figures"]] == [("wide", 1)]
    assert run("check", "--update").code == 0
    assert run("check").code == 0


@pytest.mark.usefixtures("in_process")
def test_a_folder_that_cannot_be_written(run: Run, project: Path) -> None:
    (project / "figures").write_text("a file where a folder should be")
    result = run("build")
    assert result.code == 6
    assert states(result.stdout) == {"wide": "failed", "plain": "failed"}
    assert not (project / build.MANIFEST).exists()


@pytest.mark.parametrize(
    ("text", "code", "word"),
    [
        ("", 5, "no figure is listed"),
        ('[tool.neural-flow]\nfigures = "net.py"\n', 2, "no tables"),
        ('[[tool.neural-flow.figures]]\nname = "a"\n', 2, "no target"),
        ('[[tool.neural-flow.figures]]\ntarget = "net.py"\n', 2, "no outputs"),
        (PROJECT.replace('"plain"', '"wide"'), 2, "the name 'wide'"),
        (PROJECT.replace("plain.svg", "wide.svg"), 2, "the file 'figures/wide.svg'"),
        ("[tool.neural-flow", 2, "pyproject.toml"),
    ],
)
def test_mistakes_in_the_list(run: Run, folder: Path, text: str, code: int, word: str) -> None:
    (folder / "pyproject.toml").write_text(text)
    result = run("build")
    assert result.code == code, result.stderr
    assert word in result.stderr
    assert "hint" in result.lines


def test_a_glob_that_fits_nothing(run: Run, project: Path) -> None:
    result = run("build", "--only", "z*")
    assert result.code == 5
    assert "wide, plain" in result.lines["hint"]


@pytest.mark.slow
def test_thirty_models_with_their_own_utils(run: Run, folder: Path) -> None:
    entries: list[str] = []
    for number in range(30):
        place = folder / f"model{number:02}"
        place.mkdir()
        (place / "utils.py").write_text(f"WIDTH = {number + 1}\n")
        (place / "net.py").write_text(
            "import torch\nfrom torch import nn\nfrom utils import WIDTH\nmodel = nn.Sequential(nn.Linear(2, WIDTH))\n"
            "example_inputs = torch.ones(1, 2)\n"
        )
        name = place.name
        entries.append(
            f'[[tool.neural-flow.figures]]\nname = "{name}"\ntarget = "{name}/net.py"\noutputs = ["{name}.json"]\n'
        )
    (folder / "pyproject.toml").write_text("\n".join(entries))
    result = run("build", "--jobs", "2")
    assert result.code == 0, result.stderr
    for number in range(30):
        graph = json.loads((folder / f"model{number:02}.json").read_text())
        assert graph["model"]["num_params"] == 3 * (number + 1)


@pytest.mark.slow
def test_another_instruction_set_changes_no_file(run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "pyproject.toml").write_text(
        '[[tool.neural-flow.figures]]\ntarget = "sample:unet"\noutputs = ["figures/unet.svg", "figures/unet.png"]\n'
        'graph = "figures/unet.json"\n'
    )
    assert run("build").code == 0
    written = contents(folder)
    monkeypatch.setenv("ATEN_CPU_CAPABILITY", "default")
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    result = run("build")
    assert states(result.stdout) == {"unet": "unchanged"}
    assert contents(folder) == written
    assert run("check").code == 0
