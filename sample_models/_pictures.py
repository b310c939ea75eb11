"""Pictures drawn from a seed, so that the samples need no data: cells under a microscope, and a landscape."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def draw_cells(*, seed: int, size: int = 128, num_cells: int = 34) -> tuple[Tensor, Tensor]:
    """Draw a fluorescence image: textured elliptic cells, some touching, over haze, uneven light and noise.

    Returns:
        The image, float32 ``[1, size, size]`` in 0-1, and the truth, int64 ``[size, size]``, 1 inside a cell.
    """
    random = torch.Generator().manual_seed(seed)
    radii = size * (0.035 + 0.055 * torch.rand(num_cells, generator=random))  # [K]
    centres = _scatter_centres(radii, size, random)  # [K, 2]
    distance = _ellipse_distance(radii, centres, size, random)  # [K, size, size], 1 on a cell's rim

    light = 0.36 + 0.46 * torch.rand(num_cells, 1, 1, generator=random)
    dome = (1 - distance.square()).clamp(min=0).sqrt()  # a cell is thickest in its middle
    nucleus = torch.exp(-(distance / 0.38).square())
    body = torch.sigmoid((1 - distance) * radii[:, None, None] * 1.6)  # the rim is one or two pixels soft
    cells = (light * body * (0.42 + 0.38 * dome + 0.25 * nucleus)).amax(dim=0)

    grain = _smooth_noise(size, 24, random) * 0.5 + _smooth_noise(size, 48, random) * 0.5
    haze = 0.07 * _smooth_noise(size, 5, random).clamp(min=0)
    shade = 1 + 0.22 * _smooth_noise(size, 3, random)
    image = (0.08 + haze + cells * (1 + 0.22 * grain)) * shade
    image = image + torch.randn(size, size, generator=random) * (0.025 + 0.035 * image.clamp(min=0))
    return image.clamp(0, 1)[None], (distance.amin(dim=0) < 1).long()


def draw_landscape(*, seed: int, size: int = 224) -> Tensor:
    """Draw hills under a low sun: three channels, float32 ``[3, size, size]`` in 0-1."""
    random = torch.Generator().manual_seed(seed)
    y, x = torch.meshgrid(torch.linspace(0, 1, size), torch.linspace(0, 1, size), indexing="ij")

    height = y.clamp(max=0.75) / 0.75
    picture = _blend(torch.tensor([0.30, 0.48, 0.74]), torch.tensor([0.98, 0.80, 0.62]), height)
    to_sun = ((x - 0.68).square() + (y - 0.36).square()).sqrt()
    glow = torch.exp(-(to_sun / 0.22).square())
    picture = picture + glow * torch.tensor([0.25, 0.16, 0.02])[:, None, None]
    disc = torch.sigmoid((0.075 - to_sun) * size)
    picture = torch.lerp(picture, torch.tensor([1.0, 0.95, 0.78])[:, None, None].expand_as(picture), disc)

    far, near = torch.tensor([0.45, 0.52, 0.62]), torch.tensor([0.10, 0.20, 0.14])
    for layer in range(4):
        ridge = F.interpolate(torch.randn(1, 1, 5 + 3 * layer, generator=random), size, mode="linear")[0, 0]
        ridge = 0.50 + 0.12 * layer + 0.055 * ridge  # [size], where the hill begins
        hill = torch.sigmoid((y - ridge) * size)
        leaves = 1 + 0.10 * _smooth_noise(size, 20 + 20 * layer, random)
        colour = torch.lerp(far, near, torch.tensor(layer / 3))[:, None, None] * leaves
        picture = torch.lerp(picture, colour, hill)
    return picture.clamp(0, 1)


def _scatter_centres(radii: Tensor, size: int, random: torch.Generator) -> Tensor:
    """Drop cells one by one where the free space is widest among some tries: few overlap, none hides another."""
    centres = torch.empty(0, 2)
    for index in range(len(radii)):
        tries = size * (0.03 + 0.94 * torch.rand(24, 2, generator=random))
        if index:
            room = torch.cdist(tries, centres) - radii[:index] - radii[index]  # [24, index]
            best = room.amin(dim=1).clamp(max=size * 0.012).argmax()
        else:
            best = torch.tensor(0)
        centres = torch.cat([centres, tries[best][None]])
    return centres


def _ellipse_distance(radii: Tensor, centres: Tensor, size: int, random: torch.Generator) -> Tensor:
    angle = torch.pi * torch.rand(len(radii), 1, 1, generator=random)
    stretch = 1 + 0.35 * torch.rand(len(radii), 1, 1, generator=random)
    y, x = torch.meshgrid(torch.arange(size), torch.arange(size), indexing="ij")
    dy, dx = y - centres[:, 0, None, None], x - centres[:, 1, None, None]  # [K, size, size]
    along = dx * angle.cos() + dy * angle.sin()
    across = dy * angle.cos() - dx * angle.sin()
    return ((along / stretch).square() + (across * stretch).square()).sqrt() / radii[:, None, None]


def _smooth_noise(size: int, num_knots: int, random: torch.Generator) -> Tensor:
    knots = torch.randn(1, 1, num_knots, num_knots, generator=random)
    return F.interpolate(knots, (size, size), mode="bicubic", align_corners=True)[0, 0]


def _blend(top: Tensor, bottom: Tensor, weight: Tensor) -> Tensor:
    return torch.lerp(top[:, None, None], bottom[:, None, None], weight)
