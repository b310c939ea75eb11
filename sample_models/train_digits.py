"""Train the classifier of handwritten digits on one CPU core and store its weights beside it.

Run ``python sample_models/train_digits.py``; it needs scikit-learn, takes a quarter of a minute, and stops by itself.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
import torch.nn.functional as F
from digits import WEIGHTS, DigitClassifier
from safetensors.torch import save_file
from sklearn.datasets import load_digits
from torch import Tensor

BATCH_SIZE = 64
NUM_HELD_OUT = 360
"""The last images of the set; they come from people who wrote none of the others."""


def load() -> tuple[Tensor, Tensor]:
    """Return images float32 ``[N, 1, 8, 8]`` in 0-1 and classes int64 ``[N]``."""
    images, classes = load_digits(return_X_y=True)
    return torch.tensor(images, dtype=torch.float32).reshape(-1, 1, 8, 8) / 16, torch.tensor(classes)


def shift(images: Tensor) -> Tensor:
    """Move each image by up to one pixel in each direction."""
    padded = F.pad(images, (1, 1, 1, 1))
    moves = torch.randint(3, (len(images), 2)).tolist()
    return torch.stack([image[:, y : y + 8, x : x + 8] for image, (y, x) in zip(padded, moves, strict=True)])


def train(model: DigitClassifier, images: Tensor, classes: Tensor, num_epochs: int) -> None:
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=1e-2)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, num_epochs)
    for epoch in range(num_epochs):
        total = 0.0
        for rows in torch.randperm(len(images)).split(BATCH_SIZE):
            loss = F.cross_entropy(model(shift(images[rows])), classes[rows], label_smoothing=0.05)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item() * len(rows)
        schedule.step()
        print(f"epoch {epoch + 1}  loss {total / len(images):.4f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--weights", type=Path, default=WEIGHTS)
    options = parser.parse_args()

    torch.set_num_threads(1)
    torch.manual_seed(0)
    images, classes = load()
    model = DigitClassifier()
    train(model, images[:-NUM_HELD_OUT], classes[:-NUM_HELD_OUT], options.epochs)

    model.eval()
    with torch.no_grad():
        found = model(images[-NUM_HELD_OUT:]).argmax(dim=1)
    num_right = int((found == classes[-NUM_HELD_OUT:]).sum())
    save_file(model.state_dict(), options.weights)
    options.weights.chmod(0o644)  # it is written for its owner alone
    report = (
        f"{num_right} of {NUM_HELD_OUT} held-out digits right ({num_right / NUM_HELD_OUT:.1%}): the last of "
        f"scikit-learn's set, by other writers\nafter {options.epochs} epochs over the other "
        f"{len(images) - NUM_HELD_OUT}\n"
    )
    options.weights.with_suffix(".score.txt").write_text(report)
    print(report, end="")


if __name__ == "__main__":
    main()
