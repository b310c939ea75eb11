from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from safetensors.torch import load_file

from neural_flow.models.target import load_target, sample_folder


@pytest.mark.slow
def test_training_writes_weights_that_fit_and_their_score(tmp_path: Path) -> None:
    folder = sample_folder()
    assert folder is not None
    file = tmp_path / "w.safetensors"
    command = [sys.executable, str(folder / "train_unet.py"), "--minutes", "0.1", "--weights", str(file)]
    subprocess.run(command, check=True, capture_output=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert set(load_file(file)) == set(load_target("sample:unet").model.state_dict())
    assert file.stat().st_mode & 0o777 == 0o644
    assert (tmp_path / "w.score.txt").read_text().startswith("Dice 0.")
