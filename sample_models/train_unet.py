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
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle
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


class DeepSupervision(nn.Module):
    """Ask every decoder level for the mask of its own size too: coarse levels then learn cells, not only edges."""

    def __init__(self, model: UNet) -> None:
        super().__init__()
        self.heads = nn.ModuleList()
        self.losses: list[Tensor] = []
        self.truth = torch.empty(0)
        self._handles: list[RemovableHandle] = []
        for level in list(model.decoder.values())[:-1]:
            head = nn.LazyConv2d(2, kernel_size=1)
            self.heads.append(head)
            hook = level.register_forward_hook(lambda _module, _args, output, head=head: self._judge(head(output)))
            self._handles.append(hook)

    def _judge(self, logits: Tensor) -> None:
        coverage = F.adaptive_avg_pool2d(
            self.truth[:, None].float(), (logits.shape[2], logits.shape[3])
        )  # [N, 1, h, w]
        self.losses.append(F.cross_entropy(logits, torch.cat([1 - coverage, coverage], dim=1)))

    def collect(self) -> Tensor:
        """Return the sum of the losses since the last call."""
        total = torch.stack(self.losses).sum()
        self.losses.clear()
        return total

    def remove(self) -> None:
        """Leave the model as it was."""
        for handle in self._handles:
            handle.remove()


def train(model: UNet, minutes: float) -> int:
    supervision = DeepSupervision(model)
    with torch.no_grad():
        supervision.truth = torch.zeros(1, 128, 128)
        model(torch.zeros(1, 1, 128, 128))  # the lazy heads learn their widths
        supervision.losses.clear()
    parameters = [*model.parameters(), *supervision.parameters()]
    optimizer = torch.optim.AdamW(parameters, lr=1e-3, weight_decay=1e-3)
    begin, step = time.monotonic(), 0
    while (progress := (time.monotonic() - begin) / (60 * minutes)) < 1:
        images, truths = draw_batch(range(step * BATCH_SIZE, (step + 1) * BATCH_SIZE))
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(progress)
        supervision.truth = truths
        logits = model(images)
        loss = F.cross_entropy(logits, truths) + soft_dice_loss(logits, truths) + 0.5 * supervision.collect()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
        if step % 20 == 0:
            print(f"{progress:4.0%}  step {step}  loss {loss.item():.4f}  dice {dice(logits, truths):.4f}", flush=True)
    supervision.remove()
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
    options.weights.chmod(0o644)  # it is written for its owner alone
    options.weights.with_suffix(".score.txt").write_text(report)
    print(report, end="")


if __name__ == "__main__":
    main()
