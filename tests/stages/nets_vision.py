"""Vision nets in small widths, each written the way people write it."""

import torch
import torch.nn.functional as F
from torch import nn


class DoubleConv(nn.Module):
    def __init__(self, cin, cout):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(cin, cout, 3, padding=1), nn.BatchNorm2d(cout), nn.ReLU(),
            nn.Conv2d(cout, cout, 3, padding=1), nn.BatchNorm2d(cout), nn.ReLU(),
        )  # fmt: skip

    def forward(self, x):
        return self.body(x)


WIDTHS = (4, 8, 16, 32, 64)


class UNet(nn.Module):
    """Skips concatenated (or added) in the net's own forward."""

    def __init__(self, add=False, num_out=2):
        super().__init__()
        self.add = add
        self.downs = nn.ModuleList(DoubleConv(a, b) for a, b in zip((1, *WIDTHS[:3]), WIDTHS[:4], strict=True))
        self.mid = DoubleConv(WIDTHS[3], WIDTHS[4])
        self.ups = nn.ModuleList(nn.ConvTranspose2d(2 * w, w, 2, stride=2) for w in reversed(WIDTHS[:4]))
        self.blocks = nn.ModuleList(DoubleConv(w if add else 2 * w, w) for w in reversed(WIDTHS[:4]))
        self.pool = nn.MaxPool2d(2)
        self.head = nn.Conv2d(WIDTHS[0], num_out, 1)

    def forward(self, x):
        skips = []
        for down in self.downs:
            x = down(x)
            skips.append(x)
            x = self.pool(x)
        x = self.mid(x)
        for up, block, skip in zip(self.ups, self.blocks, reversed(skips), strict=True):
            x = up(x)
            x = block(skip + x if self.add else torch.cat([skip, x], 1))
        return self.head(x)


class Down(nn.Module):
    def __init__(self, cin, cout):
        super().__init__()
        self.pool_conv = nn.Sequential(nn.MaxPool2d(2), DoubleConv(cin, cout))

    def forward(self, x):
        return self.pool_conv(x)


class Up(nn.Module):
    def __init__(self, cin, cout):
        super().__init__()
        self.up = nn.ConvTranspose2d(cin, cout, 2, stride=2)
        self.conv = DoubleConv(2 * cout, cout)

    def forward(self, x, skip):
        return self.conv(torch.cat([skip, self.up(x)], 1))


class ClassUNet(nn.Module):
    """Skips concatenated inside Up."""

    def __init__(self):
        super().__init__()
        self.inc = DoubleConv(1, WIDTHS[0])
        for k in range(4):
            setattr(self, f"down{k + 1}", Down(WIDTHS[k], WIDTHS[k + 1]))
            setattr(self, f"up{k + 1}", Up(WIDTHS[4 - k], WIDTHS[3 - k]))
        self.outc = nn.Conv2d(WIDTHS[0], 2, 1)

    def forward(self, x):
        skips = [self.inc(x)]
        for k in range(4):
            skips.append(getattr(self, f"down{k + 1}")(skips[-1]))
        x = skips[-1]
        for k in range(4):
            x = getattr(self, f"up{k + 1}")(x, skips[3 - k])
        return self.outc(x)


class UNetLevel(nn.Module):
    """One level that holds the next."""

    def __init__(self, cin, widths):
        super().__init__()
        width, *rest = widths
        self.down = DoubleConv(cin, width)
        self.inner = UNetLevel(width, rest) if len(rest) > 1 else DoubleConv(width, rest[0])
        self.up = nn.ConvTranspose2d(rest[0], width, 2, stride=2)
        self.out = DoubleConv(2 * width, width)

    def forward(self, x):
        x = self.down(x)
        return self.out(torch.cat([x, self.up(self.inner(F.max_pool2d(x, 2)))], 1))


class RecursiveUNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.levels = UNetLevel(1, WIDTHS)
        self.head = nn.Conv2d(WIDTHS[0], 2, 1)

    def forward(self, x):
        return self.head(self.levels(x))


class SkipConnection(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.submodule = inner

    def forward(self, x):
        return torch.cat([x, self.submodule(x)], 1)


class Convolution(nn.Sequential):
    def __init__(self, cin, cout, up=False, down=False):
        kind = nn.ConvTranspose2d if up else nn.Conv2d
        size = {"kernel_size": 2, "stride": 2} if up or down else {"kernel_size": 3, "padding": 1}
        super().__init__(kind(cin, cout, **size), nn.InstanceNorm2d(cout), nn.PReLU())


class NestedSkipUNet(nn.Module):
    """Sequentials of a down layer, a skip connection round the rest, and an up layer."""

    def __init__(self):
        super().__init__()

        def level(cin, cout, widths):
            width, *rest = widths
            inner = level(width, width, rest) if len(rest) > 1 else Convolution(width, rest[0])
            from_inner = width if len(rest) > 1 else rest[0]
            return nn.Sequential(
                Convolution(cin, width, down=True),
                SkipConnection(inner),
                Convolution(width + from_inner, cout, up=True),
            )

        self.model = level(1, 2, WIDTHS)

    def forward(self, x):
        return self.model(x)


class Gate(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.g, self.x, self.psi = nn.Conv2d(c, c, 1), nn.Conv2d(c, c, 1), nn.Conv2d(c, 1, 1)

    def forward(self, g, x):
        return x * torch.sigmoid(self.psi(F.relu(self.g(g) + self.x(x))))


class AttentionUNet(UNet):
    def __init__(self):
        super().__init__()
        self.gates = nn.ModuleList(Gate(w) for w in reversed(WIDTHS[:4]))

    def forward(self, x):
        skips = []
        for down in self.downs:
            x = down(x)
            skips.append(x)
            x = self.pool(x)
        x = self.mid(x)
        for up, gate, block, skip in zip(self.ups, self.gates, self.blocks, reversed(skips), strict=True):
            x = up(x)
            x = block(torch.cat([gate(x, skip), x], 1))
        return self.head(x)


class UNetPlusPlus(nn.Module):
    def __init__(self, levels=4):
        super().__init__()
        widths = WIDTHS[:levels]
        self.grid = nn.ModuleDict()
        for i in range(levels):
            self.grid[f"x{i}_0"] = DoubleConv(widths[i - 1] if i else 1, widths[i])
        for j in range(1, levels):
            for i in range(levels - j):
                self.grid[f"x{i}_{j}"] = DoubleConv(j * widths[i] + widths[i + 1], widths[i])
        self.levels, self.head = levels, nn.Conv2d(widths[0], 2, 1)

    def forward(self, x):
        done = {}
        for i in range(self.levels):
            done[i, 0] = x = self.grid[f"x{i}_0"](x)
            x = F.max_pool2d(x, 2)
        for j in range(1, self.levels):
            for i in range(self.levels - j):
                up = F.interpolate(done[i + 1, j - 1], scale_factor=2)
                done[i, j] = self.grid[f"x{i}_{j}"](torch.cat([*(done[i, k] for k in range(j)), up], 1))
        return self.head(done[0, self.levels - 1])


class TimeEmbedding(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.width = width
        self.mlp = nn.Sequential(nn.Linear(width, width), nn.SiLU(), nn.Linear(width, width))

    def forward(self, t):
        angles = t[:, None].float() * torch.arange(1, self.width // 2 + 1)
        return self.mlp(torch.cat([angles.sin(), angles.cos()], -1))


class ResBlock(nn.Module):
    def __init__(self, cin, cout, time):
        super().__init__()
        self.norm1, self.conv1 = nn.GroupNorm(1, cin), nn.Conv2d(cin, cout, 3, padding=1)
        self.time = nn.Linear(time, cout)
        self.norm2, self.conv2 = nn.GroupNorm(1, cout), nn.Conv2d(cout, cout, 3, padding=1)
        self.skip = nn.Conv2d(cin, cout, 1) if cin != cout else nn.Identity()

    def forward(self, x, t):
        h = self.conv1(F.silu(self.norm1(x))) + self.time(t)[:, :, None, None]
        return self.skip(x) + self.conv2(F.silu(self.norm2(h)))


class SpatialAttention(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.norm, self.qkv, self.out = nn.GroupNorm(1, c), nn.Conv2d(c, 3 * c, 1), nn.Conv2d(c, c, 1)

    def forward(self, x):
        n, c, h, w = x.shape
        q, k, v = self.qkv(self.norm(x)).reshape(n, 3, c, h * w).transpose(2, 3).unbind(1)
        return x + self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(n, c, h, w))


class DiffusionDown(nn.Module):
    def __init__(self, cin, cout, time):
        super().__init__()
        self.res = nn.ModuleList([ResBlock(cin, cout, time), ResBlock(cout, cout, time)])
        self.attn = nn.ModuleList([SpatialAttention(cout), SpatialAttention(cout)])
        self.down = nn.Conv2d(cout, cout, 3, 2, 1)

    def forward(self, x, t):
        for res, attn in zip(self.res, self.attn, strict=True):
            x = attn(res(x, t))
        return self.down(x), x


class DiffusionUp(nn.Module):
    def __init__(self, cin, cout, time):
        super().__init__()
        self.up = nn.ConvTranspose2d(cin, cout, 2, 2)
        self.res = nn.ModuleList([ResBlock(2 * cout, cout, time), ResBlock(cout, cout, time)])
        self.attn = nn.ModuleList([SpatialAttention(cout), SpatialAttention(cout)])

    def forward(self, x, skip, t):
        x = torch.cat([self.up(x), skip], 1)
        for res, attn in zip(self.res, self.attn, strict=True):
            x = attn(res(x, t))
        return x


class DiffusionMid(nn.Module):
    def __init__(self, c, time):
        super().__init__()
        self.res1, self.attn, self.res2 = ResBlock(c, c, time), SpatialAttention(c), ResBlock(c, c, time)

    def forward(self, x, t):
        return self.res2(self.attn(self.res1(x, t)), t)


class DiffusionUNet(nn.Module):
    def __init__(self, widths=(4, 8, 16), time=8):
        super().__init__()
        self.time = TimeEmbedding(time)
        self.conv_in = nn.Conv2d(3, widths[0], 3, padding=1)
        self.downs = nn.ModuleList(
            DiffusionDown(a, b, time) for a, b in zip((widths[0], *widths[:-1]), widths, strict=True)
        )
        self.mid = DiffusionMid(widths[-1], time)
        self.ups = nn.ModuleList(
            DiffusionUp(a, b, time) for a, b in zip((widths[-1], *widths[:0:-1]), reversed(widths), strict=True)
        )
        self.conv_out = nn.Conv2d(widths[0], 3, 3, padding=1)

    def forward(self, x, t):
        t, skips = self.time(t), []
        x = self.conv_in(x)
        for down in self.downs:
            x, skip = down(x, t)
            skips.append(skip)
        x = self.mid(x, t)
        for up in self.ups:
            x = up(x, skips.pop(), t)
        return self.conv_out(x)


class Bottleneck(nn.Module):
    def __init__(self, cin, width, stride=1):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(cin, width, 1, bias=False), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width)
        self.conv3, self.bn3 = nn.Conv2d(width, 4 * width, 1, bias=False), nn.BatchNorm2d(4 * width)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = None
        if stride != 1 or cin != 4 * width:
            self.downsample = nn.Sequential(nn.Conv2d(cin, 4 * width, 1, stride), nn.BatchNorm2d(4 * width))

    def forward(self, x):
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.relu(self.bn2(self.conv2(out)))
        out = self.bn3(self.conv3(out))
        out += x if self.downsample is None else self.downsample(x)
        return self.relu(out)


class ResNet(nn.Module):
    def __init__(self, counts=(3, 4, 6, 3), width=2, num_classes=10):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, width, 7, 2, 3), nn.BatchNorm2d(width)
        self.relu, self.maxpool = nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)
        cin = width
        for k, count in enumerate(counts):
            blocks = []
            for b in range(count):
                blocks.append(Bottleneck(cin, width * 2**k, 2 if k and not b else 1))
                cin = 4 * width * 2**k
            setattr(self, f"layer{k + 1}", nn.Sequential(*blocks))
        self.avgpool, self.fc = nn.AdaptiveAvgPool2d(1), nn.Linear(cin, num_classes)

    def features(self, x):
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        found = []
        for k in range(4):
            x = getattr(self, f"layer{k + 1}")(x)
            found.append(x)
        return found

    def forward(self, x):
        return self.fc(torch.flatten(self.avgpool(self.features(x)[-1]), 1))


class PyramidNet(nn.Module):
    """A ResNet, lateral and smoothing convolutions, and shared heads over the levels."""

    def __init__(self, width=8):
        super().__init__()
        self.backbone = ResNet((2, 2, 2, 2))
        self.lateral = nn.ModuleList(nn.Conv2d(8 * 2**k, width, 1) for k in range(4))
        self.smooth = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1) for _ in range(4))
        self.cls, self.box = nn.Conv2d(width, 5, 3, padding=1), nn.Conv2d(width, 4, 3, padding=1)

    def forward(self, x):
        levels = self.backbone.features(x)
        top = None
        merged = []
        for k in reversed(range(4)):
            level = self.lateral[k](levels[k])
            top = level if top is None else level + F.interpolate(top, scale_factor=2)
            merged.append(self.smooth[k](top))
        return [(self.cls(level), self.box(level)) for level in merged]


class ConvReLU(nn.Module):
    def __init__(self, cin, cout, size):
        super().__init__()
        self.conv, self.bn = nn.Conv2d(cin, cout, size, padding=size // 2), nn.BatchNorm2d(cout)

    def forward(self, x):
        return F.relu(self.bn(self.conv(x)))


class InceptionBlock(nn.Module):
    def __init__(self, cin, a, b, c, d):
        super().__init__()
        self.branch1 = ConvReLU(cin, a, 1)
        self.branch2 = nn.Sequential(ConvReLU(cin, b, 1), ConvReLU(b, 2 * b, 3))
        self.branch3 = nn.Sequential(ConvReLU(cin, c, 1), ConvReLU(c, 2 * c, 5))
        self.branch4 = nn.Sequential(nn.MaxPool2d(3, 1, 1), ConvReLU(cin, d, 1))

    def forward(self, x):
        return torch.cat([self.branch1(x), self.branch2(x), self.branch3(x), self.branch4(x)], 1)


class Inception(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem1, self.stem2 = ConvReLU(3, 4, 3), ConvReLU(4, 6, 3)
        sizes = [(4, 3, 2, 2), (6, 4, 3, 2), (4, 6, 3, 4), (8, 5, 4, 3), (6, 8, 2, 4), (10, 6, 4, 5)]
        cin, blocks = 6, []
        for size in sizes:
            blocks.append(InceptionBlock(cin, *size))
            cin = size[0] + 2 * size[1] + 2 * size[2] + size[3]
        self.blocks = nn.ModuleList(blocks)
        self.fc = nn.Linear(cin, 5)

    def forward(self, x):
        x = F.max_pool2d(self.stem2(self.stem1(x)), 2)
        for block in self.blocks:
            x = block(x)
        return self.fc(x.mean((2, 3)))


class DenseLayer(nn.Module):
    def __init__(self, cin, growth):
        super().__init__()
        self.norm1, self.conv1 = nn.BatchNorm2d(cin), nn.Conv2d(cin, 4 * growth, 1)
        self.norm2, self.conv2 = nn.BatchNorm2d(4 * growth), nn.Conv2d(4 * growth, growth, 3, padding=1)

    def forward(self, features):
        x = torch.cat(features, 1)
        return self.conv2(F.relu(self.norm2(self.conv1(F.relu(self.norm1(x))))))


class DenseBlock(nn.Module):
    def __init__(self, cin, growth, count):
        super().__init__()
        self.layers = nn.ModuleList(DenseLayer(cin + k * growth, growth) for k in range(count))

    def forward(self, x):
        features = [x]
        for layer in self.layers:
            features.append(layer(features))
        return torch.cat(features, 1)


class Transition(nn.Sequential):
    def __init__(self, cin):
        super().__init__(nn.BatchNorm2d(cin), nn.ReLU(), nn.Conv2d(cin, cin // 2, 1), nn.AvgPool2d(2))


class DenseNet(nn.Module):
    def __init__(self, counts, growth=2):
        super().__init__()
        self.conv0, self.norm0 = nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4)
        cin, parts = 4, []
        for k, count in enumerate(counts):
            parts.append((f"denseblock{k + 1}", DenseBlock(cin, growth, count)))
            cin += count * growth
            if k < len(counts) - 1:
                parts.append((f"transition{k + 1}", Transition(cin)))
                cin //= 2
        self.parts = [name for name, _ in parts]
        for name, part in parts:
            self.add_module(name, part)
        self.norm5, self.classifier = nn.BatchNorm2d(cin), nn.Linear(cin, 5)

    def forward(self, x):
        x = F.relu(self.norm0(self.conv0(x)))
        for name in self.parts:
            x = getattr(self, name)(x)
        return self.classifier(F.relu(self.norm5(x)).mean((2, 3)))


class SqueezeExcite(nn.Module):
    def __init__(self, c, r):
        super().__init__()
        self.fc1, self.fc2 = nn.Conv2d(c, r, 1), nn.Conv2d(r, c, 1)

    def forward(self, x):
        return x * torch.sigmoid(self.fc2(F.silu(self.fc1(x.mean((2, 3), keepdim=True)))))


class MBConv(nn.Module):
    def __init__(self, cin, cout, stride=1):
        super().__init__()
        mid = 2 * cin
        self.expand = nn.Sequential(nn.Conv2d(cin, mid, 1), nn.BatchNorm2d(mid), nn.SiLU())
        self.dw = nn.Sequential(nn.Conv2d(mid, mid, 3, stride, 1, groups=mid), nn.BatchNorm2d(mid), nn.SiLU())
        self.se = SqueezeExcite(mid, 2)
        self.project = nn.Sequential(nn.Conv2d(mid, cout, 1), nn.BatchNorm2d(cout))
        self.is_residual = cin == cout and stride == 1

    def forward(self, x):
        out = self.project(self.se(self.dw(self.expand(x))))
        return x + out if self.is_residual else out


class EfficientNet(nn.Module):
    def __init__(self, counts, has_last_conv=False):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 4, 3, 2, 1), nn.BatchNorm2d(4), nn.SiLU())
        cin, stages = 4, []
        for k, count in enumerate(counts):
            cout = 4 + 2 * k
            stages.append(
                nn.Sequential(
                    *(MBConv(cin if not b else cout, cout, 2 if not b and k % 3 == 1 else 1) for b in range(count))
                )
            )
            cin = cout
        self.stages = nn.Sequential(*stages)
        self.last = ConvReLU(cin, 2 * cin, 1) if has_last_conv else nn.Identity()
        self.head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(cin * (1 + has_last_conv), 5))

    def forward(self, x):
        return self.head(self.last(self.stages(self.stem(x))))


def image(size=32, channels=3):
    return torch.randn(1, channels, size, size)


NETS = {
    "unet": lambda: (UNet(), (image(32, 1),)),
    "unet_add": lambda: (UNet(add=True), (image(32, 1),)),
    "unet_classes": lambda: (ClassUNet(), (image(32, 1),)),
    "unet_recursive": lambda: (RecursiveUNet(), (image(32, 1),)),
    "unet_nested_skips": lambda: (NestedSkipUNet(), (image(32, 1),)),
    "unet_attention": lambda: (AttentionUNet(), (image(32, 1),)),
    "unet_plus_plus": lambda: (UNetPlusPlus(), (image(32, 1),)),
    "diffusion_unet": lambda: (DiffusionUNet(), (image(16), torch.tensor([3]))),
    "resnet50": lambda: (ResNet(), (image(64),)),
    "resnet152": lambda: (ResNet((3, 8, 36, 3)), (image(64),)),
    "feature_pyramid": lambda: (PyramidNet(), (image(64),)),
    "inception": lambda: (Inception(), (image(16),)),
    "densenet_small": lambda: (DenseNet((4, 4, 4)), (image(16),)),
    "densenet121": lambda: (DenseNet((6, 12, 24, 16)), (image(16),)),
    "efficientnet_small": lambda: (EfficientNet((2, 2, 3, 2)), (image(32),)),
    "efficientnet_b0": lambda: (EfficientNet((1, 2, 2, 3, 3, 4, 1), has_last_conv=True), (image(32),)),
}
