"""ResNet-50 (He et al., 2016): a stem, four stages of bottleneck blocks with residual sums, and a linear head."""

from __future__ import annotations

import torch
from _pictures import draw_landscape
from torch import Tensor, nn


class Bottleneck(nn.Module):
    """Narrow with 1×1, look around with 3×3, widen with 1×1, and add what came in."""

    expansion = 4

    def __init__(self, in_channels: int, channels: int, stride: int = 1) -> None:
        super().__init__()
        out_channels = channels * self.expansion
        self.conv1 = nn.Conv2d(in_channels, channels, kernel_size=1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, kernel_size=3, stride=stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        self.conv3 = nn.Conv2d(channels, out_channels, kernel_size=1, bias=False)
        self.bn3 = nn.BatchNorm2d(out_channels)
        self.relu = nn.ReLU(inplace=True)
        self.downsample: nn.Module | None = None
        if stride != 1 or in_channels != out_channels:
            self.downsample = nn.Sequential(
                nn.Conv2d(in_channels, out_channels, kernel_size=1, stride=stride, bias=False),
                nn.BatchNorm2d(out_channels),
            )

    def forward(self, x: Tensor) -> Tensor:
        shortcut = x if self.downsample is None else self.downsample(x)
        x = self.relu(self.bn1(self.conv1(x)))  # [N, channels, H, W]
        x = self.relu(self.bn2(self.conv2(x)))  # [N, channels, H/stride, W/stride]
        x = self.bn3(self.conv3(x))  # [N, 4 channels, H/stride, W/stride]
        return self.relu(x + shortcut)


class ResNet(nn.Module):
    """The network of any depth that bottlenecks make: 3, 4, 6, 3 blocks are ResNet-50."""

    def __init__(self, num_blocks: tuple[int, int, int, int] = (3, 4, 6, 3), num_classes: int = 1000) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, kernel_size=7, stride=2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(kernel_size=3, stride=2, padding=1)
        self.layer1 = _stage(64, 64, num_blocks[0], stride=1)
        self.layer2 = _stage(256, 128, num_blocks[1], stride=2)
        self.layer3 = _stage(512, 256, num_blocks[2], stride=2)
        self.layer4 = _stage(1024, 512, num_blocks[3], stride=2)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(2048, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))  # [N, 64, H/4, W/4]
        x = self.layer1(x)  # [N, 256, H/4, W/4]
        x = self.layer2(x)  # [N, 512, H/8, W/8]
        x = self.layer3(x)  # [N, 1024, H/16, W/16]
        x = self.layer4(x)  # [N, 2048, H/32, W/32]
        x = self.avgpool(x).flatten(1)  # [N, 2048]
        return self.fc(x)


def _stage(in_channels: int, channels: int, num_blocks: int, stride: int) -> nn.Sequential:
    first = Bottleneck(in_channels, channels, stride)
    rest = [Bottleneck(channels * Bottleneck.expansion, channels) for _ in range(num_blocks - 1)]
    return nn.Sequential(first, *rest)


def neural_flow_model() -> ResNet:
    return ResNet()


def neural_flow_inputs() -> Tensor:
    return torch.stack([draw_landscape(seed=0)])
