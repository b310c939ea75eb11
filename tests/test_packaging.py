"""What is built from a clean checkout runs without it. Slow: it builds, installs and starts processes."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parents[1]


def ran(*command: str | Path, cwd: Path, env: dict[str, str] | None = None) -> str:
    return subprocess.run(list(map(str, command)), cwd=cwd, env=env, check=True, capture_output=True, text=True).stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the wheel and the sdist of the last commit."""
    pytest.importorskip("hatchling")
    clone = tmp_path_factory.mktemp("clone")
    ran("git", "clone", "-q", ROOT, clone / "source", cwd=clone)
    code = "from hatchling.build import build_wheel, build_sdist; build_wheel('{0}'); build_sdist('{0}')"
    folder = tmp_path_factory.mktemp("dist")
    ran(sys.executable, "-c", code.format(folder), cwd=clone / "source")
    return folder


@pytest.mark.slow
def test_the_sdist_holds_what_building_needs(built: Path) -> None:
    with tarfile.open(next(built.glob("*.tar.gz"))) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"pyproject.toml", "README.md", "LICENSE", "neural_flow/py.typed", "sample_models/unet.py"} <= names
    assert not [name for name in names if name.endswith(".pyc")]


@pytest.mark.slow
def test_every_command_runs_from_the_wheel_alone(built: Path, tmp_path: Path) -> None:
    fresh = tmp_path / "fresh"
    ran(sys.executable, "-m", "venv", fresh, cwd=tmp_path)
    site = next(fresh.glob("lib/python*/site-packages"))
    (site / "libraries.pth").write_text(f"{Path(torch.__file__).parents[1]}\n")
    wheel = next(built.glob("*.whl"))
    ran(fresh / "bin/pip", "install", "-q", "--no-deps", "--no-index", "--force-reinstall", wheel, cwd=tmp_path)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    work = tmp_path / "work"
    work.mkdir()
    (work / "pyproject.toml").write_text(
        '[[tool.neural-flow.figures]]\ntarget = "sample:mlp"\noutputs = ["f.svg"]\ngraph = "f.json"\n'
    )

    def flow(*arguments: str) -> str:
        return ran(fresh / "bin/neural-flow", *arguments, cwd=work, env=environment)

    home = ran(fresh / "bin/python", "-c", "import neural_flow; print(neural_flow.__file__)", cwd=work, env=environment)
    assert home.startswith(str(fresh))
    formats = ("svg", "png", "pdf", "html", "json", "md", "txt")
    assert len(flow("render", "sample:unet", *[w for f in formats for w in ("-o", f"u.{f}")]).split()) == len(formats)
    assert "487,730 parameters" in flow("summary", "sample:unet", "--fake")
    assert "saved for backward" in flow("memory", "sample:mlp")
    assert flow("diff", "u.json", "sample:unet").startswith("no difference")
    assert "the same architecture" in flow("check", "sample:unet", "--against", "u.json")
    assert "cat" in flow("why", "sample:unet", "mid", "decoder.up2")
    assert "written" in flow("build")
    assert "the same architecture" in flow("check")
    assert "unet" in flow("list", "samples").split()
