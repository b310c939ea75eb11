from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from neural_flow.errors import ModelLoadError
from neural_flow.git_files import read_git_file


def test_a_file_at_a_revision(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def git(*arguments: str) -> None:
        identity = ["-c", "user.name=n", "-c", "user.email=e@x"]
        subprocess.run(["git", *identity, *arguments], check=True, capture_output=True, cwd=tmp_path)

    inside = tmp_path / "docs"
    inside.mkdir()
    (inside / "a.json").write_bytes(b"one")
    git("init", "-q")
    git("add", ".")
    git("commit", "-qm", "first")
    (inside / "a.json").write_bytes(b"two")
    git("commit", "-qam", "second")
    assert read_git_file("git:HEAD:docs/a.json", tmp_path) == b"two"
    assert read_git_file("git:HEAD~1:docs/a.json", tmp_path) == b"one"
    assert read_git_file("git:HEAD~1:a.json", inside) == b"one", "paths are relative to the folder"
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ModelLoadError, match="no git"):
        read_git_file("git:HEAD:docs/a.json", tmp_path)


@pytest.mark.parametrize("spec", ["git:HEAD", "git::a.json", "git:HEAD:", "git:-x:a.json", "git:HEAD:a.json"])
def test_what_cannot_be_read(spec: str, tmp_path: Path):
    with pytest.raises(ModelLoadError) as caught:
        read_git_file(spec, tmp_path)
    assert caught.value.hint
