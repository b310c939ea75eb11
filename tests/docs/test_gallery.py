"""The gallery's script draws what it says, from networks that need no library."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_the_gallery_draws_every_look_of_what_is_named(tmp_path: Path) -> None:
    names, looks = ["siamese", "functional", "graph_net"], ["light", "dark", "structure", "structure-dark"]
    command = [sys.executable, str(ROOT / "docs" / "gallery.py"), *names, "--folder", str(tmp_path)]
    done = subprocess.run(
        command, capture_output=True, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"}, check=False
    )
    assert done.returncode == 0, done.stderr
    assert {file.name for file in tmp_path.iterdir()} == {f"{name}-{look}.png" for name in names for look in looks}
    for file in tmp_path.iterdir():
        with Image.open(file) as picture:
            assert min(picture.size) > 100


def test_the_index_shows_only_pictures_that_are_there() -> None:
    page = (ROOT / "docs" / "gallery.md").read_text(encoding="utf-8")
    names = {part.split('"')[0] for part in page.split('="gallery/')[1:]}
    stored = {file.name for file in (ROOT / "docs" / "gallery").glob("*.png")}
    assert names == stored
    assert sum((ROOT / "docs" / "gallery" / name).stat().st_size for name in stored) < 8e6
