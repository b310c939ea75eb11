"""Pairs, towers, loops, functional code and flat lists."""

import torch
import torch.nn.functional as F
from torch import nn

VOCAB = 11


class GenBlock(nn.Module):
    def __init__(self, cin, cout):
        super().__init__()
        self.conv1, self.bn1 = nn.ConvTranspose2d(cin, cout, 4, 2, 1), nn.BatchNorm2d(cout)
        self.conv2 = nn.Conv2d(cout, cout, 3, padding=1)

    def forward(self, x):
        return F.relu(self.conv2(F.relu(self.bn1(self.conv1(x)))))


class DiscBlock(nn.Module):
    def __init__(self, cin, cout):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(cin, cout, 3, padding=1), nn.Conv2d(cout, cout, 4, 2, 1)

    def forward(self, x):
        return F.leaky_relu(self.conv2(F.leaky_relu(self.conv1(x))))


class Generator(nn.Module):
    def __init__(self):
        super().__init__()
        self.project = nn.Linear(6, 16 * 4)
        self.blocks = nn.ModuleList([GenBlock(16, 8), GenBlock(8, 4), GenBlock(4, 2)])
        self.to_rgb = nn.Conv2d(2, 3, 1)

    def forward(self, z):
        x = self.project(z).unflatten(1, (16, 2, 2))
        for block in self.blocks:
            x = block(x)
        return self.to_rgb(x)


class Discriminator(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([DiscBlock(3, 2), DiscBlock(2, 4), DiscBlock(4, 8)])
        self.head = nn.Linear(8, 1)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.head(x.mean((2, 3)))


class GanPair(nn.Module):
    def __init__(self):
        super().__init__()
        self.generator, self.discriminator = Generator(), Discriminator()

    def forward(self, z, real):
        return self.discriminator(self.generator(z)), self.discriminator(real)


class Vae(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Linear(12, 10), nn.ReLU(), nn.Linear(10, 8), nn.ReLU(), nn.Linear(8, 6), nn.ReLU()
        )
        self.mu, self.logvar = nn.Linear(6, 3), nn.Linear(6, 3)
        self.decoder = nn.Sequential(nn.Linear(3, 6), nn.ReLU(), nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 12))

    def forward(self, x):
        h = self.encoder(x)
        mu, logvar = self.mu(h), self.logvar(h)
        return self.decoder(mu + torch.randn_like(mu) * torch.exp(0.5 * logvar)), mu, logvar


class Siamese(nn.Module):
    def __init__(self):
        super().__init__()
        self.tower = nn.Sequential(nn.Linear(8, 6), nn.ReLU(), nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 4))
        self.head = nn.Linear(4, 1)

    def forward(self, a, b):
        return self.head((self.tower(a) - self.tower(b)).abs())


class GraphConv(nn.Module):
    def __init__(self, cin, cout):
        super().__init__()
        self.lin = nn.Linear(cin, cout)

    def forward(self, x, adj):
        return adj @ self.lin(x)


class GraphNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.convs = nn.ModuleList([GraphConv(5, 8), GraphConv(8, 6), GraphConv(6, 4)])
        self.head = nn.Linear(4, 2)

    def forward(self, x, adj):
        for conv in self.convs:
            x = conv(x, adj).relu()
        return self.head(x.mean(0))


class LstmTagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.lstm, self.out = nn.Embedding(VOCAB, 6), nn.LSTM(6, 5, batch_first=True), nn.Linear(5, 4)

    def forward(self, ids):
        return self.out(self.lstm(self.embed(ids))[0])


class CellLoop(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.cell, self.out = nn.Embedding(VOCAB, 6), nn.GRUCell(6, 5), nn.Linear(5, 4)

    def forward(self, ids):
        x, h, outs = self.embed(ids), torch.zeros(1, 5), []
        for t in range(ids.shape[1]):
            h = self.cell(x[:, t], h)
            outs.append(self.out(h))
        return torch.stack(outs, 1)


class DotAttention(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.weight = nn.Linear(d, d, bias=False)

    def forward(self, h, memory):
        scores = memory @ self.weight(h)[..., None]
        return (scores.softmax(1).transpose(1, 2) @ memory)[:, 0]


class Seq2Seq(nn.Module):
    def __init__(self, d=6):
        super().__init__()
        self.src, self.enc = nn.Embedding(VOCAB, d), nn.GRU(d, d, batch_first=True)
        self.tgt, self.attn = nn.Embedding(VOCAB, d), DotAttention(d)
        self.cell, self.out = nn.GRUCell(2 * d, d), nn.Linear(d, VOCAB)

    def forward(self, src, tgt):
        memory, h = self.enc(self.src(src))
        h, outs = h[0], []
        for t in range(tgt.shape[1]):
            token = self.tgt(tgt[:, t])
            h = self.cell(torch.cat([token, self.attn(h, memory)], -1), h)
            outs.append(self.out(h))
        return torch.stack(outs, 1)


class TinyDenoiser(nn.Module):
    """A small U-Net with a time embedding, for the loop below."""

    def __init__(self, unet):
        super().__init__()
        self.time, self.unet = nn.Linear(2, 4), unet

    def forward(self, x, t):
        angle = torch.tensor([[float(t)]])
        shift = self.time(torch.cat([angle.sin(), angle.cos()], -1))
        return self.unet(x + shift.mean())


class Denoiser(nn.Module):
    def __init__(self, net, steps=50):
        super().__init__()
        self.net, self.steps = net, steps

    def forward(self, x):
        for t in range(self.steps):
            x = x - 0.1 * self.net(x, t)
        return x


class Multimodal(nn.Module):
    def __init__(self, d=8):
        super().__init__()
        self.image = nn.Sequential(
            nn.Conv2d(3, 4, 3, 2, 1), nn.ReLU(), nn.Conv2d(4, 6, 3, 2, 1), nn.ReLU(),
            nn.Conv2d(6, d, 3, 2, 1), nn.ReLU(),
            nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        )  # fmt: skip
        self.table = nn.Sequential(nn.Linear(5, 6), nn.ReLU(), nn.Linear(6, d), nn.ReLU())
        self.embed = nn.Embedding(VOCAB, d)
        self.text = nn.TransformerEncoder(
            nn.TransformerEncoderLayer(d, 2, 16, batch_first=True), 2, enable_nested_tensor=False
        )
        self.fusion = nn.Linear(3 * d, d)
        self.risk, self.kind = nn.Linear(d, 1), nn.Linear(d, 4)

    def forward(self, image, table, ids):
        text = self.text(self.embed(ids)).mean(1)
        h = F.relu(self.fusion(torch.cat([self.image(image), self.table(table), text], 1)))
        return {"risk": self.risk(h), "kind": self.kind(h)}


def flat_conv():
    """Twenty conv-bn-relu in one Sequential, wider every fourth."""
    layers, cin = [], 3
    for k in range(20):
        cout = 4 * (1 + k // 4)
        layers += [nn.Conv2d(cin, cout, 3, padding=1), nn.BatchNorm2d(cout), nn.ReLU()]
        cin = cout
    return nn.Sequential(*layers)


def flat_linear(count=60):
    """Linears of which no two are alike."""
    return nn.Sequential(*(nn.Linear(count + 4 - k, count + 3 - k) for k in range(count)))


class Functional(nn.Module):
    """Sixty linears, twelve times five widths, in one forward without submodules."""

    def __init__(self):
        super().__init__()
        self.widths = (4, 6, 8, 6, 5)
        self.weights = nn.ParameterList(
            nn.Parameter(torch.randn(self.widths[(k + 1) % 5], self.widths[k % 5])) for k in range(60)
        )

    def forward(self, x):
        for weight in self.weights:
            x = torch.relu(F.linear(x, weight))
        return x


class RandomDag(nn.Module):
    def __init__(self, count=60, seed=0):
        super().__init__()
        draw = torch.Generator().manual_seed(seed)
        self.nodes = nn.ModuleList(nn.Linear(6, 6) for _ in range(count))
        self.sources = [
            torch.randint(max(0, k - 20), max(1, k), (min(k, 2),), generator=draw).tolist() for k in range(count)
        ]

    def forward(self, x):
        values = []
        for node, sources in zip(self.nodes, self.sources, strict=True):
            values.append(torch.tanh(node(sum((values[s] for s in sources), x if not sources else 0))))
        return sum(values[-3:])


def ids(length=6):
    return torch.arange(length)[None] % VOCAB


NETS = {
    "multimodal": lambda: (Multimodal(), (torch.randn(1, 3, 16, 16), torch.randn(1, 5), ids())),
    "gan_pair": lambda: (GanPair(), (torch.randn(1, 6), torch.randn(1, 3, 16, 16))),
    "vae": lambda: (Vae(), (torch.randn(2, 12),)),
    "siamese": lambda: (Siamese(), (torch.randn(2, 8), torch.randn(2, 8))),
    "graph_net": lambda: (GraphNet(), (torch.randn(7, 5), torch.rand(7, 7))),
    "lstm_tagger": lambda: (LstmTagger(), (ids(),)),
    "mlp": lambda: (
        nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 2)),
        (torch.randn(2, 4),),
    ),
    "cell_loop": lambda: (CellLoop(), (ids(12),)),
    "seq2seq": lambda: (Seq2Seq(), (ids(), ids(7))),
    "flat_conv": lambda: (flat_conv(), (torch.randn(1, 3, 8, 8),)),
    "flat_linear": lambda: (flat_linear(), (torch.randn(2, 64),)),
    "functional": lambda: (Functional(), (torch.randn(2, 4),)),
    "random_dag": lambda: (RandomDag(), (torch.randn(2, 6),)),
}
