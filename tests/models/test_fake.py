"""``--fake`` builds and runs a model that no memory holds."""

import textwrap

import pytest
import torch

from neural_flow.cli.main import main
from neural_flow.errors import ModelLoadError
from neural_flow.models.target import load_target
from neural_flow.torch_private import FakeTensor

HUGE = """
    import torch
    from torch import nn

    class Huge(nn.Module):
        def __init__(self):
            super().__init__()
            self.up, self.down = nn.Linear(1_000_000, 3_000_000), nn.Linear(3_000_000, 10)
            self.register_buffer("scale", torch.ones(1_000_000_000_000))

        def forward(self, x):
            return self.down(torch.relu(self.up(x)))
"""


def write(folder, text, name="model.py"):
    file = folder / name
    file.write_text(textwrap.dedent(text))
    return str(file)


def test_a_model_that_no_memory_holds(tmp_path, capsys):
    file = write(tmp_path, HUGE)
    assert main(["render", file, "--fake", "-i", "2,1000000", "-o", str(tmp_path / "out.svg")]) == 0
    figure = (tmp_path / "out.svg").read_text()
    assert "up" in figure
    assert "3 T parameters" in figure
    assert "real tensors" not in capsys.readouterr().err


def test_inputs_are_tried_without_memory(tmp_path, capsys):
    assert main(["render", write(tmp_path, HUGE), "--fake", "-o", str(tmp_path / "out.svg")]) == 3
    assert "--fake -i 1,1000000" in capsys.readouterr().err


def test_a_summary_of_it(tmp_path, capsys):
    file = write(tmp_path, HUGE)
    assert main(["summary", file, "--fake", "-i", "2,1000000"]) == 0
    assert "[2, 3000000]" in capsys.readouterr().out


def test_code_that_reads_values_is_built_with_real_tensors(tmp_path):
    file = write(
        tmp_path,
        """
        import torch
        from torch import nn

        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.rates = [rate.item() for rate in torch.linspace(0, 1, 3)]
                self.layer = nn.Linear(4, 4)

            def forward(self, x):
                return self.layer(x) * self.rates[1]
        """,
    )
    loaded = load_target(file, fake=True)
    assert not isinstance(loaded.model.layer.weight, FakeTensor)
    assert loaded.model.rates == [0.0, 0.5, 1.0]
    assert len(loaded.notes) == 1
    assert "model.py:8" in loaded.notes[0]


def test_what_is_wrong_with_the_code_itself_is_said_as_ever(tmp_path):
    file = write(tmp_path, "from torch import nn\nclass Net(nn.Linear):\n    def __init__(self): raise OSError('no')\n")
    with pytest.raises(ModelLoadError, match="OSError: no"):
        load_target(file, fake=True)


def test_weights_are_not_read(tmp_path):
    loaded = load_target(write(tmp_path, HUGE), fake=True, weights="nowhere.pt")
    assert isinstance(loaded.model.up.weight, FakeTensor)
    assert loaded.notes == ("--fake has no values: --weights is not read",)


def test_no_mode_is_left_on(tmp_path):
    load_target(write(tmp_path, HUGE), fake=True)
    assert type(torch.ones(2)) is torch.Tensor
