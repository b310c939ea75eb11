"""Train the transformer that writes words backwards on one CPU core and store its weights beside it.

Run ``python sample_models/train_reverse.py``; it takes less than a minute and stops by itself.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
import torch.nn.functional as F
from reverse import LENGTH, LETTERS, WEIGHTS, Reverser
from safetensors.torch import save_file
from torch import Tensor

BATCH_SIZE = 128
HELD_OUT_SEED = 1_000_007
NUM_HELD_OUT = 1000


def draw_words(count: int, random: torch.Generator) -> Tensor:
    """Return int64 ``[count, LENGTH]``; letters repeat, so that places must be looked up and not letters."""
    return torch.randint(len(LETTERS), (count, LENGTH), generator=random)


def train(model: Reverser, num_steps: int) -> None:
    random = torch.Generator().manual_seed(0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=1e-2)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 3e-3, total_steps=num_steps)
    for step in range(num_steps):
        words = draw_words(BATCH_SIZE, random)
        logits = model(words)
        loss = F.cross_entropy(logits.flatten(0, 1), words.flip(1).flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        if (step + 1) % 200 == 0:
            print(f"step {step + 1}  loss {loss.item():.4f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--weights", type=Path, default=WEIGHTS)
    options = parser.parse_args()

    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = Reverser()
    train(model, options.steps)

    model.eval()
    words = draw_words(NUM_HELD_OUT, torch.Generator().manual_seed(HELD_OUT_SEED))
    with torch.no_grad():
        is_right = model(words).argmax(dim=2) == words.flip(1)
    save_file(model.state_dict(), options.weights)
    options.weights.chmod(0o644)  # it is written for its owner alone
    report = (
        f"{int(is_right.all(dim=1).sum())} of {NUM_HELD_OUT} held-out words reversed without a mistake "
        f"(seed {HELD_OUT_SEED}; {is_right.float().mean():.2%} of the letters)\n"
        f"after {options.steps} steps of {BATCH_SIZE} random words\n"
    )
    options.weights.with_suffix(".score.txt").write_text(report)
    print(report, end="")


if __name__ == "__main__":
    main()
