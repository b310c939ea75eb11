"""Train the U-Net on cells drawn from seeds, on one CPU core, and store its weights beside it.

Run ``python sample_models/train_unet.py``. It stops by itself after ``--minutes``.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from _pictures import draw_cells
from safetensors.torch import save_file
from torch import Tensor
from unet import HELD_OUT_SEED, WEIGHTS, UNet

BATCH_SIZE = 8


def soft_dice_loss(logits: Tensor, truth: Tensor) -> Tensor:
    cell = logits.softmax(dim=1)[:, 1]
    return 1 - (2 * (cell * truth).sum() + 1) / (cell.sum() + truth.sum() + 1)


def dice(logits: Tensor, truth: Tensor) -> float:
    found = logits.argmax(dim=1)
    return float(2 * (found * truth).sum() / (found.sum() + truth.sum()))


def draw_batch(seeds: range) -> tuple[Tensor, Tensor]:
    pairs = [draw_cells(seed=seed, num_cells=16 + seed % 28) for seed in seeds]
    images, truths = zip(*pairs, strict=True)
    return torch.stack(images), torch.stack(truths)


def learning_rate(progress: float) -> float:
    """Warm up over the first twentieth, then fall to zero along a cosine."""
    if progress < 0.05:
        return 4e-3 * progress / 0.05 + 1e-5
    return 4e-3 * 0.5 * (1 + float(torch.cos(torch.tensor(torch.pi * min(progress, 1.0)))))


def train(model: UNet, minutes: float) -> int:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=1e-3)
    begin, step = time.monotonic(), 0
    while (progress := (time.monotonic() - begin) / (60 * minutes)) < 1:
        images, truths = draw_batch(range(step * BATCH_SIZE, (step + 1) * BATCH_SIZE))
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(progress)
        logits = model(images)
        loss = F.cross_entropy(logits, truths) + soft_dice_loss(logits, truths)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
        if step % 20 == 0:
            print(f"{progress:4.0%}  step {step}  loss {loss.item():.4f}  dice {dice(logits, truths):.4f}", flush=True)
    return step


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=12.0)
    parser.add_argument("--weights", type=Path, default=WEIGHTS)
    options = parser.parse_args()

    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = UNet()
    num_steps = train(model, options.minutes)

    model.eval().half().float()  # the score is that of the weights as they are stored
    images, truths = draw_batch(range(HELD_OUT_SEED, HELD_OUT_SEED + 64))
    with torch.no_grad():
        score = dice(model(images), truths)
    save_file(
        {name: value.half() if value.is_floating_point() else value for name, value in model.state_dict().items()},
        options.weights,
    )
    report = (
        f"Dice {score:.4f} on 64 held-out images of synthetic cells (seeds from {HELD_OUT_SEED})\n"
        f"after {num_steps} steps of {BATCH_SIZE} images; weights stored as float16\n"
    )
    options.weights.with_suffix(".score.txt").write_text(report)
    print(report, end="")


if __name__ == "__main__":
    main()
