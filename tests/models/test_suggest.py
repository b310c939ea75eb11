from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from neural_flow.models.input_text import parse_input
from neural_flow.models.layer_shapes import shapes_of
from neural_flow.models.suggest import suggest_inputs, suggest_nearby
from neural_flow.models.values import draw_values


class Wired(nn.Module):
    """Parts by name, and a forward given as a function: a net in one line."""

    def __init__(self, **parts: nn.Module) -> None:
        super().__init__()
        for name, part in parts.items():
            self.add_module(name, part)


class LeNet(Wired):
    def forward(self, x: Tensor) -> Tensor:
        x = F.max_pool2d(self.c1(x).relu(), 2)
        return self.f(F.max_pool2d(self.c2(x), 2).flatten(1))


class OddFlat(Wired):
    def forward(self, x: Tensor) -> Tensor:
        return self.f(self.c(x).flatten(1))


class NanoGpt(Wired):
    def forward(self, idx: Tensor) -> Tensor:
        B, L = idx.size()
        assert (B, L) <= (B, 8)
        return self.head(self.tok(idx) + self.pos(torch.arange(L)))


class PatchNet(Wired):
    def forward(self, image: Tensor) -> Tensor:
        patches = F.unfold(image, 16, stride=16).transpose(1, 2)
        assert patches.shape[1] == 196
        return self.linear(self.norm(patches))


class Recurrent(Wired):
    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.rnn(x)[0][-1])


class KeywordOnly(Wired):
    def forward(self, *, x: Tensor, mask: Tensor | None = None) -> Tensor:
        return self.f(x)


class AllOptional(Wired):
    def forward(self, input_ids: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        assert input_ids is not None
        return self.e(input_ids)


class TwoKinds(Wired):
    def forward(self, image: Tensor, tokens: Tensor) -> Tensor:
        return self.f(torch.cat([self.c(image).mean((2, 3)), self.e(tokens).mean(1)], 1))


class Denoiser(Wired):
    def forward(self, sample: Tensor, timestep: Tensor) -> Tensor:
        waves = torch.stack([torch.sin(timestep.float() * k) for k in range(8)], -1)
        return self.c(sample) + self.f(waves)[:, :, None, None]


class Masked(Wired):
    def forward(self, tokens: Tensor, mask: Tensor) -> Tensor:
        return self.f((self.e(tokens) * mask[..., None]).sum(1))


class Graph(Wired):
    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        h = self.f(x)
        return torch.zeros_like(h).index_add(0, edge_index[1], h[edge_index[0]])


class Positional(Wired):
    def __init__(self, **parts: nn.Module) -> None:
        super().__init__(**parts)
        self.pos = nn.Parameter(torch.zeros(1, 8, 12, 12))

    def forward(self, x: Tensor) -> Tensor:
        y = self.c(x)
        assert y.shape == self.pos.shape
        return y + self.pos


class Siamese(Wired):
    def forward(self, left: Tensor, right: Tensor) -> Tensor:
        return self.c(left) - self.c(right)


class Branching(Wired):
    def forward(self, x: Tensor) -> Tensor:
        return self.a(x) if x.sum() > 0 else self.b(x)


class Variadic(Wired):
    def forward(self, *xs: Tensor) -> Tensor:
        return self.f(xs[0])


NETS = {
    "LeNet": (LeNet(c1=nn.Conv2d(1, 6, 5), c2=nn.Conv2d(6, 16, 5), f=nn.Linear(400, 10)), ["1,1,32,32"]),
    "a flatten of an odd size": (OddFlat(c=nn.Conv2d(3, 8, 3, 2), f=nn.Linear(8 * 54 * 54, 9)), ["1,3,109,109"]),
    "pictures": (nn.Sequential(nn.Conv2d(3, 4, 3), nn.AdaptiveAvgPool2d(1)), ["1,3,224,224"]),
    "grey pictures": (nn.Sequential(nn.Conv2d(1, 4, 3)), ["1,1,128,128"]),
    "perceptron": (nn.Sequential(nn.Linear(12, 4), nn.Linear(4, 2)), ["1,12"]),
    "table norm": (nn.Sequential(nn.BatchNorm1d(9), nn.Linear(9, 2)), ["1,9"]),
    "signal": (nn.Sequential(nn.Conv1d(2, 4, 7)), ["1,2,1024"]),
    "volume": (nn.Sequential(nn.Conv3d(1, 4, 3), nn.MaxPool3d(4)), ["1,1,32,32,32"]),
    "tokens, short context": (
        NanoGpt(tok=nn.Embedding(99, 4), pos=nn.Embedding(8, 4), head=nn.Linear(4, 9)),
        ["1,8:int64[0,99)"],
    ),
    "patches": (PatchNet(norm=nn.LayerNorm(768), linear=nn.Linear(768, 4)), ["1,3,224,224"]),
    "LSTM": (Recurrent(rnn=nn.LSTM(12, 20), head=nn.Linear(20, 3)), ["16,1,12"]),
    "attention": (nn.TransformerEncoderLayer(16, 2, 32, batch_first=True), ["1,16,16"]),
    "encoder and decoder": (nn.Transformer(16, 2, 1, 1, 32, batch_first=True), ["src=1,16,16", "tgt=1,16,16"]),
    "keyword only": (KeywordOnly(f=nn.Linear(7, 2)), ["x=1,7"]),
    "all optional": (AllOptional(e=nn.Embedding(30, 4)), ["1,16:int64[0,30)"]),
    "variadic": (Variadic(f=nn.Linear(7, 2)), ["1,7"]),
    "two kinds": (
        TwoKinds(c=nn.Conv2d(3, 8, 3), e=nn.Embedding(50, 8), f=nn.Linear(16, 2)),
        ["image=1,3,224,224", "tokens=1,16:int64[0,50)"],
    ),
    "denoiser": (
        Denoiser(c=nn.Conv2d(4, 8, 3), f=nn.Linear(8, 8)),
        ["sample=1,4,224,224", "timestep=1:int64[0,1000)"],
    ),
    "mask": (Masked(e=nn.Embedding(30, 8), f=nn.Linear(8, 3)), ["tokens=1,16:int64[0,30)", "mask=1,16:bool"]),
    "graph": (Graph(f=nn.Linear(5, 4)), ["x=16,5", "edge_index=2,32:int64[0,16)"]),
    "fixed grid": (Positional(c=nn.Conv2d(3, 8, 8, 8)), ["1,3,96,96"]),
    "siamese": (Siamese(c=nn.Conv2d(3, 8, 8)), ["left=1,3,224,224", "right=1,3,224,224"]),
    "branch on a value": (Branching(a=nn.Linear(4, 2), b=nn.Linear(4, 2)), ["1,4"]),
    "no parameters": (nn.Softmax(-1), ["1,3,224,224"]),
}


@pytest.mark.parametrize("kind", NETS)
def test_what_is_suggested_runs(kind: str) -> None:
    model, expected = NETS[kind]
    texts = suggest_inputs(model)
    assert texts == expected
    random = torch.Generator().manual_seed(7)  # other values than those tried
    specs = [parse_input(text) for text in texts]
    values = [draw_values(spec, random) for spec in specs]
    args = [value for spec, value in zip(specs, values, strict=True) if spec.name is None]
    kwargs = {spec.name: value for spec, value in zip(specs, values, strict=True) if spec.name}
    with torch.no_grad():
        model.eval()(*args, **kwargs)


class Configured(Wired):
    config: object = None

    def forward(self, x: Tensor) -> Tensor:
        return self.c(x)


@pytest.mark.parametrize(
    ("config", "text"),
    [
        ({"sample_size": 48}, "1,3,48,48"),
        (SimpleNamespace(image_size=(40, 56)), "1,3,40,56"),
        ({"input_size": (3, 88, 88)}, "1,3,88,88"),
        ({"sample_size": None}, "1,3,224,224"),
        ({"image_size": "large"}, "1,3,224,224"),
    ],
)
def test_the_size_that_a_configuration_names_comes_first(config: object, text: str) -> None:
    with torch.random.fork_rng():
        model = Configured(c=nn.Conv2d(3, 4, 3))
    model.config = config
    assert suggest_inputs(model) == [text]


def _scripted() -> nn.Module:
    return torch.jit.script(nn.Sequential(nn.Linear(7, 3), nn.ReLU()))


class FewerBits(nn.Module):
    """A layer as libraries of quantisation have them."""

    def __init__(self) -> None:
        super().__init__()
        self.in_features, self.packed = 7, nn.ParameterList([torch.zeros(3, 7)])

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.packed[0].T


class Linear4bit(FewerBits):
    pass


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (_scripted, "1,7"),
        (Linear4bit, "1,7"),
        (lambda: nn.Conv2d(2, 3, 3, dtype=torch.complex64), "1,2,224,224:complex64"),
        (lambda: nn.Linear(7, 2, dtype=torch.bfloat16), "1,7:bfloat16"),
        (lambda: nn.Linear(7, 2, dtype=torch.float64), "1,7:float64"),
    ],
)
def test_layers_of_other_kinds_tell_their_input(make: Callable[[], nn.Module], text: str) -> None:
    with torch.random.fork_rng():
        model = make()
    assert suggest_inputs(model)[0].rpartition("=")[2] == text


class TakesADict(Wired):
    def forward(self, batch: dict[str, Tensor]) -> Tensor:
        return self.f(batch["x"])


def test_nothing_is_suggested_where_nothing_runs() -> None:
    with torch.random.fork_rng():
        model = TakesADict(f=nn.Linear(3, 2))
    assert suggest_inputs(model) == []


@pytest.mark.parametrize(
    "layer",
    [
        nn.Conv1d(2, 3, 3), nn.ConvTranspose2d(2, 3, 3), nn.Conv3d(2, 3, 3), nn.BatchNorm1d(4), nn.BatchNorm2d(4),
        nn.Embedding(9, 4), nn.EmbeddingBag(9, 4), nn.GRU(3, 4), nn.GRU(3, 4, batch_first=True), nn.LSTMCell(3, 4),
        nn.LayerNorm((4, 5)), nn.RMSNorm(4), nn.Linear(12, 2),
    ],
)  # fmt: skip
def test_every_known_layer_takes_the_first_shape_it_is_said_to(layer: nn.Module) -> None:
    value = draw_values(parse_input(shapes_of(layer)[0]), torch.Generator())
    with torch.no_grad():
        layer.eval()(value)
    assert suggest_inputs(layer)[0].removeprefix("input=") in shapes_of(layer)


class NeedsEven(Wired):
    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([x, F.interpolate(F.max_pool2d(F.max_pool2d(x, 4), 4), scale_factor=16)], 1)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("1,1,30,30", "1,1,32,32"),
        ("x=1,1,33,17:float64[0,1]", "x=1,1,48,32:float64[0,1]"),
        ("1,1,32,31[0,1]", "1,1,32,32[0,1]"),
    ],
)
def test_sizes_are_rounded_up_to_what_runs(given: str, expected: str) -> None:
    assert suggest_nearby(NeedsEven(), [parse_input(given)]) == [expected]


def test_other_channels_are_suggested_where_no_size_helps() -> None:
    model, expected = NETS["grey pictures"]
    assert suggest_nearby(model, [parse_input("1,3,32,32")]) == expected
