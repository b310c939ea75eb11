"""Small networks of the gallery that need no library but torch, written as people write them."""

from __future__ import annotations

from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class ConvReLU(nn.Sequential):
    """Convolution, batch normalisation, ReLU; the size stays unless ``stride`` says otherwise."""

    def __init__(self, in_channels: int, out_channels: int, size: int, stride: int = 1) -> None:
        super().__init__(
            nn.Conv2d(in_channels, out_channels, size, stride, padding=size // 2, bias=False),
            nn.BatchNorm2d(out_channels),
            nn.ReLU(),
        )


class Inception(nn.Module):
    """Four pathways of different reach over the same input, side by side (Szegedy et al., 2015)."""

    def __init__(self, in_channels: int, one: int, three: int, five: int, pooled: int) -> None:
        super().__init__()
        self.branch1 = ConvReLU(in_channels, one, 1)
        self.branch3 = nn.Sequential(ConvReLU(in_channels, three // 2, 1), ConvReLU(three // 2, three, 3))
        self.branch5 = nn.Sequential(ConvReLU(in_channels, five // 2, 1), ConvReLU(five // 2, five, 5))
        self.pool = nn.Sequential(nn.MaxPool2d(3, 1, 1), ConvReLU(in_channels, pooled, 1))

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([self.branch1(x), self.branch3(x), self.branch5(x), self.pool(x)], dim=1)


class GoogLeNet(nn.Module):
    """The nine inception modules of GoogLeNet at a quarter of its width."""

    SIZES: ClassVar[dict[str, tuple[int, int, int, int]]] = {
        "3a": (16, 32, 8, 8), "3b": (32, 48, 24, 16), "4a": (48, 52, 12, 16), "4b": (40, 56, 16, 16),
        "4c": (32, 64, 16, 16), "4d": (28, 72, 16, 16), "4e": (64, 80, 32, 32), "5a": (64, 80, 32, 32),
        "5b": (96, 96, 32, 32),
    }  # fmt: skip

    def __init__(self, num_classes: int = 100) -> None:
        super().__init__()
        self.conv1 = ConvReLU(3, 16, 7, stride=2)
        self.conv2 = ConvReLU(16, 48, 3)
        self.pool = nn.MaxPool2d(3, 2, 1)
        width = 48
        for name, size in self.SIZES.items():
            self.add_module(f"inception{name}", Inception(width, *size))
            width = sum(size)
        self.fc = nn.Linear(width, num_classes)

    def forward(self, image: Tensor) -> Tensor:
        x = self.pool(self.conv2(self.pool(self.conv1(image))))
        for name in self.SIZES:
            x = self.get_submodule(f"inception{name}")(x)
            if name in ("3b", "4e"):
                x = self.pool(x)
        return self.fc(x.mean(dim=(2, 3)))


class LstmTagger(nn.Module):
    """A tag for every word: embedding, two-way LSTM, linear head."""

    def __init__(self, vocab_size: int = 200, width: int = 48, num_tags: int = 6) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, width)
        self.lstm = nn.LSTM(width, width, bidirectional=True, batch_first=True)
        self.tags = nn.Linear(2 * width, num_tags)
        nn.init.normal_(self.tags.weight)  # untrained, it would give every word the same tag

    def forward(self, words: Tensor) -> Tensor:
        states, _ = self.lstm(self.embedding(words))
        return self.tags(states)


class GraphConv(nn.Module):
    """Mix each node with its neighbours, then map the features (Kipf and Welling, 2017)."""

    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def forward(self, x: Tensor, adjacency: Tensor) -> Tensor:
        return adjacency @ self.linear(x)


class GraphNet(nn.Module):
    """Three graph convolutions and a class for each node."""

    def __init__(self, num_features: int = 24, width: int = 32, num_classes: int = 2) -> None:
        super().__init__()
        self.conv1 = GraphConv(num_features, width)
        self.conv2 = GraphConv(width, width)
        self.conv3 = GraphConv(width, width // 2)
        self.classify = nn.Linear(width // 2, num_classes)

    def forward(self, nodes: Tensor, adjacency: Tensor) -> Tensor:
        x = self.conv1(nodes, adjacency).relu()
        x = self.conv2(x, adjacency).relu()
        x = self.conv3(x, adjacency).relu()
        return self.classify(x)


def ring_graph(num_nodes: int = 34, num_chords: int = 20) -> tuple[Tensor, Tensor]:
    """Return node features ``[num_nodes, 24]`` and the normalised adjacency matrix of a ring with chords."""
    random = torch.Generator().manual_seed(0)
    adjacency = torch.eye(num_nodes)
    ends = torch.randint(num_nodes, (num_chords, 2), generator=random)
    places = torch.arange(num_nodes)
    for start, end in [*zip(places, places.roll(-1), strict=True), *ends]:
        adjacency[start, end] = adjacency[end, start] = 1
    degree = adjacency.sum(dim=1)
    return torch.randn(num_nodes, 24, generator=random), adjacency / (degree[:, None] * degree).sqrt()


@torch.no_grad()
def soften(up: nn.ConvTranspose2d, gain: float) -> None:
    """Let a transposed convolution of size 4 mix channels at random and enlarge them without a grid.

    Untrained kernels would draw a chequerboard (Odena et al., 2016).
    """
    slope = torch.tensor([0.25, 0.75, 0.75, 0.25])
    mix = torch.randn(up.in_channels, up.out_channels) * gain / up.in_channels**0.5
    up.weight.copy_(mix[:, :, None, None] * torch.outer(slope, slope))


class Generator(nn.Module):
    """From noise to a picture of 32 pixels (Radford et al., 2016)."""

    def __init__(self, noise: int = 64, width: int = 32) -> None:
        super().__init__()
        self.project = nn.Linear(noise, width * 4 * 16)
        self.up1 = self._block(width * 4, width * 2)
        self.up2 = self._block(width * 2, width)
        self.to_rgb = nn.ConvTranspose2d(width, 3, 4, 2, 1)
        soften(self.to_rgb, gain=1.0)
        nn.init.normal_(self.project.weight, std=0.15)

    @staticmethod
    def _block(in_channels: int, out_channels: int) -> nn.Sequential:
        up = nn.ConvTranspose2d(in_channels, out_channels, 4, 2, 1)
        soften(up, gain=1.6)
        return nn.Sequential(up, nn.BatchNorm2d(out_channels), nn.ReLU())

    def forward(self, noise: Tensor) -> Tensor:
        x = self.project(noise).unflatten(1, (-1, 4, 4))
        return torch.tanh(self.to_rgb(self.up2(self.up1(x))))


class Discriminator(nn.Module):
    """From a picture to one number: real or made up."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.down1 = nn.Sequential(nn.Conv2d(3, width, 4, 2, 1), nn.LeakyReLU(0.2))
        self.down2 = nn.Sequential(nn.Conv2d(width, width * 2, 4, 2, 1), nn.LeakyReLU(0.2))
        self.down3 = nn.Sequential(nn.Conv2d(width * 2, width * 4, 4, 2, 1), nn.LeakyReLU(0.2))
        self.is_real = nn.Linear(width * 4 * 16, 1)

    def forward(self, image: Tensor) -> Tensor:
        return self.is_real(self.down3(self.down2(self.down1(image))).flatten(1))


class GanPair(nn.Module):
    """Both sides of the game: the discriminator sees a made-up picture and a real one."""

    def __init__(self) -> None:
        super().__init__()
        self.generator = Generator()
        self.discriminator = Discriminator()

    def forward(self, noise: Tensor, real: Tensor) -> dict[str, Tensor]:
        return {"made_up": self.discriminator(self.generator(noise)), "real": self.discriminator(real)}


class Vae(nn.Module):
    """Convolutional variational autoencoder: mean and spread of a code, a draw from it, the picture again."""

    def __init__(self, width: int = 16, code: int = 32) -> None:
        super().__init__()
        self.encoder = nn.Sequential(
            ConvReLU(3, width, 3, stride=2), ConvReLU(width, 2 * width, 3, stride=2),
            ConvReLU(2 * width, 4 * width, 3, stride=2),
        )  # fmt: skip
        self.mean = nn.Linear(4 * width * 64, code)
        self.log_variance = nn.Linear(4 * width * 64, code)
        self.expand = nn.Linear(code, 4 * width * 64)
        self.decoder = nn.Sequential(
            Generator._block(4 * width, 2 * width), Generator._block(2 * width, width),
            nn.ConvTranspose2d(width, 3, 4, 2, 1),
        )  # fmt: skip

    def forward(self, image: Tensor) -> Tensor:
        x = self.encoder(image).flatten(1)
        mean, log_variance = self.mean(x), self.log_variance(x)
        code = mean + torch.randn_like(mean) * (0.5 * log_variance).exp()
        return torch.sigmoid(self.decoder(self.expand(code).unflatten(1, (-1, 8, 8))))


def fitted_vae(picture: Tensor, num_steps: int = 100) -> Vae:
    """Return an autoencoder that has learned to draw one picture ``[1, 3, 64, 64]``; new ones draw a grey square."""
    model = Vae()
    optimiser = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(num_steps):
        optimiser.zero_grad()
        F.binary_cross_entropy(model(picture), picture).backward()
        optimiser.step()
    return model.eval()


class Siamese(nn.Module):
    """One tower looks at two pictures; a head judges the difference (Koch et al., 2015)."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.tower = nn.Sequential(
            ConvReLU(1, width, 3, stride=2), ConvReLU(width, 2 * width, 3, stride=2),
            ConvReLU(2 * width, 4 * width, 3, stride=2), nn.AdaptiveAvgPool2d(4), nn.Flatten(),
            nn.Linear(4 * width * 16, 64),
        )  # fmt: skip
        self.same = nn.Linear(64, 1)

    def forward(self, left: Tensor, right: Tensor) -> Tensor:
        return torch.sigmoid(self.same((self.tower(left) - self.tower(right)).abs()))


def flat_sequential(num_layers: int = 60) -> nn.Sequential:
    """Sixty layers in one list, as a tutorial would write it: convolution, normalisation, ReLU."""
    layers: list[nn.Module] = []
    width = 3
    for index in range(num_layers // 3):
        out, stride = 12 * 2 ** (index // 5), 2 if index % 5 == 0 else 1
        layers += [nn.Conv2d(width, out, 3, stride, padding=1), nn.BatchNorm2d(out), nn.ReLU()]
        width = out
    return nn.Sequential(*layers)


class Functional(nn.Module):
    """A convolutional classifier without a single submodule: parameters, and functions of them."""

    def __init__(self) -> None:
        super().__init__()
        random = torch.Generator().manual_seed(0)

        def kernel(out_channels: int, in_channels: int) -> nn.Parameter:
            values = 2 * torch.rand(out_channels, in_channels, 3, 3, generator=random) - 1
            return nn.Parameter(values * (6 / (in_channels * 9)) ** 0.5)

        self.kernel0, self.kernel1 = kernel(16, 3), kernel(32, 16)
        self.kernel2, self.kernel3 = kernel(64, 32), kernel(64, 64)
        self.weight = nn.Parameter(torch.randn(10, 64, generator=random) / 8)

    def forward(self, image: Tensor) -> Tensor:
        x = F.max_pool2d(F.relu(F.conv2d(image, self.kernel0, padding=1)), 2)
        x = F.max_pool2d(F.relu(F.conv2d(x, self.kernel1, padding=1)), 2)
        x = F.max_pool2d(F.relu(F.conv2d(x, self.kernel2, padding=1)), 2)
        x = x + F.relu(F.conv2d(x, self.kernel3, padding=1))
        return F.linear(x.mean(dim=(2, 3)), self.weight)
