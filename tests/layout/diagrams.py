"""Diagrams to lay out: drawn by Hypothesis, and the usual nets by hand. All sizes are points."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from random import Random

from hypothesis import strategies as st

from neural_flow.drawing import Arrow, Diagram, DiagramNode, Frame, NodeSize, Sizes

RING = NodeSize(width=10.4, height=10.4, front_width=10.4, front_height=10.4)


class Builder:
    """Collects a diagram with its sizes."""

    def __init__(self):
        self.nodes, self.arrows, self.frames = [], [], []
        self.sizes, self.texts, self.titles = {}, {}, {}

    def card(self, label="card", side=46.0, planes=4, resolution=0, width=None, height=None):
        node = len(self.nodes)
        depth = 2.3 * (planes - 1)
        width, height = width or side, height or side
        self.nodes.append(DiagramNode(node_id=node, role="card", label=label, order=node, stage_id=node))
        self.sizes[node] = NodeSize(
            width=width + depth,
            height=height + depth,
            front_width=width,
            front_height=height,
            label_width=max(3.5 * len(label), 24.0) if label else 0.0,
            label_height=13.0 if label else 0.0,
            resolution=resolution,
        )
        return node

    def ring(self, symbol="add"):
        node = len(self.nodes)
        self.nodes.append(DiagramNode(node_id=node, role="ring", symbol=symbol, order=node))
        self.sizes[node] = RING
        return node

    def arrow(self, source, target, kind="primary", text=""):
        arrow = len(self.arrows)
        self.arrows.append(Arrow(arrow_id=arrow, source=source, target=target, kind=kind, text=text))
        if text:
            self.texts[arrow] = (3.0 * len(text), 6.6)
        return arrow

    def frame(self, kind, title, nodes, badge="", parent=None):
        frame = len(self.frames)
        self.frames.append(
            Frame(frame_id=frame, kind=kind, title=title, badge=badge, node_ids=tuple(nodes), parent_id=parent)
        )
        self.titles[frame] = (3.4 * len(title + badge) + 6.0, 8.0)
        return frame

    def done(self):
        diagram = Diagram(nodes=tuple(self.nodes), arrows=tuple(self.arrows), frames=tuple(self.frames))
        return diagram, Sizes(nodes=self.sizes, arrow_labels=self.texts, frame_titles=self.titles)


@st.composite
def diagrams(draw, max_nodes=40, has_rings=True, has_frames=True, has_texts=True, has_returns=True):
    """Draw any acyclic diagram, with return arrows, nested frames, texts and labels of all sizes."""
    build = Builder()
    num_nodes = draw(st.integers(0, max_nodes))
    for _ in range(num_nodes):
        if has_rings and draw(st.integers(0, 4)) == 0:
            build.ring()
        else:
            build.card(
                "x" * draw(st.integers(0, 22)),
                planes=draw(st.integers(1, 6)),
                width=draw(st.floats(8, 90)),
                height=draw(st.floats(5, 70)),
                resolution=draw(st.sampled_from([0, 8, 16, 32])),
            )
    if num_nodes:
        num_arrows = draw(st.integers(0, 2 * num_nodes))
        for _ in range(num_arrows):
            target = draw(st.integers(0, num_nodes - 1))
            reach = draw(st.sampled_from([1, 1, 1, 2, 3, 8, num_nodes]))
            source = draw(st.integers(max(0, target - reach), target))
            text = "y" * draw(st.integers(1, 12)) if has_texts and draw(st.integers(0, 5)) == 0 else ""
            if source < target:
                build.arrow(source, target, text=text)
            elif has_returns and draw(st.integers(0, 3)) == 0:
                build.arrow(draw(st.integers(target, num_nodes - 1)), target, "return")
        if has_frames:
            for _ in range(draw(st.integers(0, 3))):
                low = draw(st.integers(0, num_nodes - 1))
                nodes = range(low, draw(st.integers(low, min(num_nodes - 1, low + 9))) + 1)
                build.frame(draw(st.sampled_from(["group", "fold"])), "frame", nodes, "×3")
    return build.done()


@st.composite
def large_diagrams(draw, max_nodes=300):
    """Draw a diagram of any size by its seed: too many choices to draw one by one."""
    random = Random(draw(st.integers(0, 2**32 - 1)))
    num_nodes = draw(st.integers(1, max_nodes))
    density = draw(st.sampled_from([0.7, 1.0, 1.3, 1.6, 2.2]))
    has_rings, has_frames, has_texts, has_returns = (draw(st.booleans()) for _ in range(4))
    build = Builder()
    for _ in range(num_nodes):
        if has_rings and random.random() < 0.2:
            build.ring()
        else:
            build.card(
                "x" * random.randint(0, 22),
                planes=random.randint(1, 6),
                width=random.uniform(8, 90),
                height=random.uniform(5, 70),
            )
    for _ in range(int(density * num_nodes)):
        target = random.randrange(num_nodes)
        source = random.randint(max(0, target - random.choice([1, 1, 1, 2, 3, 8, num_nodes])), target)
        if source < target:
            build.arrow(source, target, text="y" * random.randint(1, 12) if has_texts and random.random() < 0.2 else "")
        elif has_returns and random.random() < 0.2:
            build.arrow(random.randint(target, num_nodes - 1), target, "return")
    for _ in range(3 if has_frames else 0):
        low = random.randrange(num_nodes)
        nodes = range(low, min(num_nodes, low + random.randint(1, 10)))
        build.frame(random.choice(["group", "fold"]), "frame", nodes, "×3")
    return build.done()


def stored_graphs():
    """Return the stored stage graphs by name: sizes, edges, and what dot drew."""
    with gzip.open(Path(__file__).with_name("layout_graphs.json.gz")) as file:
        return json.load(file)["graphs"]


def diagram_of(graph):
    """Return the diagram and sizes of a stored graph: plain cards without labels."""
    nodes = tuple(DiagramNode(node_id=index, role="card", order=index) for index in range(len(graph["sizes"])))
    arrows = tuple(
        Arrow(arrow_id=index, source=source, target=target) for index, (source, target) in enumerate(graph["edges"])
    )
    sizes = {
        index: NodeSize(width=width, height=height, front_width=width, front_height=height)
        for index, (width, height) in enumerate(graph["sizes"])
    }
    return Diagram(nodes=nodes, arrows=arrows), Sizes(nodes=sizes)


def chain(num_nodes, side=46.0, label="card"):
    """Return cards in one line."""
    build = Builder()
    for _ in range(num_nodes):
        build.card(label, side)
    for node in range(num_nodes - 1):
        build.arrow(node, node + 1)
    return build.done()


SIDES = (56, 45, 35, 27, 22)


def unet(levels=3, cards_per_level=1, merge="concat", has_frames=True, has_texts=True):
    """Return a U-Net; ``merge`` is a ring's symbol, or ``card`` where the skip enters the stage itself."""
    build = Builder()
    last = build.card("input", 46, 1, resolution=128)
    skips, left, right, text = [], [], [], ""
    for level in range(levels):
        for index in range(cards_per_level):
            card = build.card(f"down{level}", SIDES[level], 3 + level, resolution=128 >> level)
            build.arrow(last, card, text=text if has_texts and not index else "")
            last, text = card, ""
            left.append(card)
        skips.append(last)
        text = "pool ÷2"
    card = build.card("mid", SIDES[levels], 3 + levels, resolution=128 >> levels)
    build.arrow(last, card, text=text if has_texts else "")
    last = card
    for level in reversed(range(levels)):
        text = "up ×2" if has_texts else ""
        skip_text = "skip" if has_texts else ""
        if merge != "card":
            ring = build.ring(merge)
            build.arrow(last, ring, text=text)
            build.arrow(skips[level], ring, "skip", skip_text)
            last, text = ring, ""
            right.append(ring)
        for index in range(cards_per_level):
            card = build.card(f"up{level}", SIDES[level], 3 + level, resolution=128 >> level)
            build.arrow(last, card, text=text if not index else "")
            if merge == "card" and not index:
                build.arrow(skips[level], card, "skip", skip_text)
            last = card
            right.append(card)
    card = build.card("mask", 46, 1, resolution=128)
    build.arrow(last, card)
    if has_frames:
        build.frame("group", "encoder", left)
        build.frame("group", "decoder", right)
    return build.done()


def attention_unet(levels=3):
    """Return a U-Net whose skips pass gates that the way up drives."""
    build = Builder()
    last, skips = build.card("input", 46, 1, resolution=128), []
    for level in range(levels):
        card = build.card(f"down{level}", SIDES[level], 3 + level, resolution=128 >> level)
        build.arrow(last, card)
        last = card
        skips.append(card)
    card = build.card("mid", SIDES[levels], 3 + levels, resolution=128 >> levels)
    build.arrow(last, card)
    last = card
    for level in reversed(range(levels)):
        up = build.card(f"up{level}", SIDES[level], 4, resolution=128 >> level)
        build.arrow(last, up)
        gate = build.card(f"gate{level}", SIDES[level], 2, resolution=128 >> level)
        build.arrow(up, gate)
        build.arrow(skips[level], gate, "skip")
        ring = build.ring("concat")
        build.arrow(gate, ring)
        build.arrow(up, ring, "skip")
        last = build.card(f"block{level}", SIDES[level], 4, resolution=128 >> level)
        build.arrow(ring, last)
    return build.done()


def side_stage_unet(levels=3):
    """Return a U-Net whose skips pass a stage of their own."""
    build = Builder()
    last, skips = build.card("input", 46, 1, resolution=128), []
    for level in range(levels):
        card = build.card(f"stage{level}", SIDES[level], 3 + level, resolution=128 >> level)
        build.arrow(last, card)
        last = card
        skips.append(card)
    card = build.card("mid", SIDES[levels], 3 + levels, resolution=128 >> levels)
    build.arrow(last, card)
    last = card
    for level in reversed(range(levels)):
        side = build.card(f"side{level}", SIDES[level] * 0.7, 3, resolution=128 >> level)
        build.arrow(skips[level], side, "branch")
        ring = build.ring("concat")
        build.arrow(last, ring)
        build.arrow(side, ring, "skip")
        last = build.card(f"up{level}", SIDES[level], 3 + level, resolution=128 >> level)
        build.arrow(ring, last)
    return build.done()


def diffusion_unet(merge="concat", levels=3):
    """Return a U-Net that a time embedding drives in every stage, run in a loop."""
    build = Builder()
    time = build.card("time", planes=1, width=64, height=7)
    first = build.card("x", 46, 1, resolution=64)
    last, skips = build.card("in", 50, 4, resolution=64), []
    build.arrow(first, last)
    for level in range(levels + 1):
        card = build.card(f"down{level}", SIDES[level], 3 + level, resolution=64 >> level)
        build.arrow(last, card)
        build.arrow(time, card, "merge")
        last = card
        skips.append(card)
    skips.pop()
    for level in reversed(range(levels)):
        if merge != "card":
            ring = build.ring(merge)
            build.arrow(last, ring)
            build.arrow(skips[level], ring, "skip")
            last = ring
        card = build.card(f"up{level}", SIDES[level], 3 + level, resolution=64 >> level)
        build.arrow(last, card)
        if merge == "card":
            build.arrow(skips[level], card, "skip")
        build.arrow(time, card, "merge")
        last = card
    card = build.card("noise", 46, 1, resolution=64)
    build.arrow(last, card)
    build.arrow(card, first, "return")
    return build.done()


def shifted_skip_unet(levels=3):
    """Return a U-Net whose way up reads two skips a level, one of them from the level below; time drives all."""
    build = Builder()
    time = build.card("time", planes=1, width=64, height=7)
    first = build.card("x", 46, 1, resolution=64)
    last = build.card("in", 50, 4, resolution=64)
    build.arrow(first, last)
    outputs = [last]
    for level in range(levels):
        card = build.card(f"down{level}", SIDES[level + 1], 3 + level, resolution=64 >> min(level + 1, levels - 1))
        build.arrow(last, card)
        build.arrow(time, card, "merge")
        last = card
        outputs.append(card)
    card = build.card("mid", SIDES[levels], 3 + levels, resolution=64 >> (levels - 1))
    build.arrow(last, card)
    build.arrow(time, card, "merge")
    last = card
    for index in range(levels):
        level = levels - 1 - index
        card = build.card(f"up{index}", SIDES[level], 3 + level, resolution=64 >> max(level - 1, 0))
        build.arrow(last, card)
        build.arrow(outputs[level + 1], card, "skip")
        build.arrow(outputs[level], card, "skip")
        build.arrow(time, card, "merge")
        last = card
    card = build.card("out", 46, 1, resolution=64)
    build.arrow(last, card)
    build.frame("group", "down", outputs[1:])
    return build.done()


def residual_unet(levels=3):
    """Return a U-Net with a residual block in every level and two heads."""
    build = Builder()
    last, skips = build.card("input", 46, 1, resolution=128), []

    def block(last, name, level):
        first = build.card(f"{name}.0", SIDES[level], 4, resolution=128 >> level)
        build.arrow(last, first)
        second = build.card(f"{name}.1", SIDES[level], 4, resolution=128 >> level)
        build.arrow(first, second)
        ring = build.ring("add")
        build.arrow(second, ring)
        build.arrow(first, ring, "skip")
        return ring

    for level in range(levels):
        last = block(last, f"down{level}", level)
        skips.append(last)
    last = block(last, "mid", levels)
    for level in reversed(range(levels)):
        ring = build.ring("concat")
        build.arrow(last, ring)
        build.arrow(skips[level], ring, "skip")
        last = block(ring, f"up{level}", level)
    for name in ("segment", "edges"):
        head = build.card(name, 46, 1, resolution=128)
        build.arrow(last, head, "primary" if name == "segment" else "branch")
    return build.done()


def resnet(counts=(3, 4, 6, 3)):
    """Return a residual net with every repeat opened once in its frame."""
    build = Builder()
    last = build.card("input", 46, 1)
    stem = build.card("conv1 + bn1", 50, 4)
    build.arrow(last, stem)
    last, text = stem, "maxpool ÷2"
    for stage, (count, side) in enumerate(zip(counts, (45, 38, 31, 25), strict=False)):
        members, source = [], last
        for index, name in enumerate(("conv1", "conv2", "conv3")):
            card = build.card(name, side, 4)
            build.arrow(last, card, text="" if index else text)
            last, text = card, ""
            members.append(card)
        ring = build.ring("add")
        build.arrow(last, ring)
        build.arrow(source, ring, "skip")
        last = ring
        build.frame("fold", f"layer{stage + 1}", [*members, ring], f"×{count}")
    head = build.card("fc", planes=1, width=64, height=8)
    build.arrow(last, head, text="avgpool")
    return build.done()


def transformer(count=12):
    """Return a pre-norm transformer: two residual rings in one opened repeat, run in a loop or not."""
    build = Builder()
    token = build.card("wte", planes=1, width=40, height=60)
    position = build.card("wpe", planes=1, width=40, height=60)
    last = build.ring("add")
    build.arrow(token, last)
    build.arrow(position, last, "merge")
    members = []
    for pair in (("ln_1", "attn"), ("ln_2", "mlp")):
        source = last
        for name in pair:
            card = build.card(name, planes=1, width=40, height=60)
            build.arrow(last, card)
            last = card
            members.append(card)
        ring = build.ring("add")
        build.arrow(last, ring)
        build.arrow(source, ring, "skip")
        last = ring
        members.append(ring)
    build.frame("fold", "h", members, f"×{count}")
    for name in ("ln_f", "lm_head"):
        card = build.card(name, planes=1, width=40, height=60)
        build.arrow(last, card)
        last = card
    return build.done()


def multimodal():
    """Return three towers of unequal length in frames, one of them with a repeat, a fusion, and two heads."""
    build = Builder()
    image = build.card("image", 46, 1)
    text = build.card("text", planes=1, width=60, height=10)
    table = build.card("table", planes=1, width=60, height=8)
    last, tower = image, []
    for index, side in enumerate((46, 36, 28)):
        card = build.card(f"conv{index}", side)
        build.arrow(last, card, text="÷2" if index else "")
        last = card
        tower.append(card)
    ends = [last]
    build.frame("group", "image tower", tower)
    last = build.card("embed", planes=1, width=40, height=30)
    build.arrow(text, last)
    words, repeat = [last], []
    for name in ("attn", "mlp"):
        source, card, ring = last, build.card(name, planes=1, width=40, height=30), build.ring("add")
        build.arrow(source, card)
        build.arrow(card, ring)
        build.arrow(source, ring, "skip")
        last = ring
        repeat += [card, ring]
    ends.append(last)
    parent = build.frame("group", "text tower", words + repeat)
    build.frame("fold", "blocks", repeat, "×2", parent)
    last, tower = table, []
    for index in range(2):
        card = build.card(f"linear{index}", planes=1, width=64, height=7)
        build.arrow(last, card)
        last = card
        tower.append(card)
    ends.append(last)
    build.frame("group", "table tower", tower)
    ring = build.ring("concat")
    for index, end in enumerate(ends):
        build.arrow(end, ring, "primary" if index == 1 else "merge")
    fusion = build.card("fusion", planes=1, width=64, height=7)
    build.arrow(ring, fusion)
    build.arrow(fusion, build.card("classify", planes=1, width=64, height=34))
    build.arrow(fusion, build.card("regress", planes=1, width=64, height=10), "branch")
    return build.done()


def densenet(num_layers=6):
    """Return a dense block: every layer reads all before it."""
    build = Builder()
    last = build.card("input", 46, 1)
    outputs = [build.card("stem", 46)]
    build.arrow(last, outputs[0])
    for index in range(num_layers + 1):
        card = build.card(f"dense{index}" if index < num_layers else "transition", 36)
        for output in outputs:
            build.arrow(output, card, "primary" if output == outputs[-1] else "skip")
        outputs.append(card)
    return build.done()


NETS = {
    "unet": unet,
    "unet of 4 levels": lambda: unet(4),
    "unet of 2 cards a level": lambda: unet(3, 2),
    "unet of 4 cards a level": lambda: unet(3, 4),
    "additive unet": lambda: unet(merge="add", has_frames=False),
    "unet merging in cards": lambda: unet(merge="card", has_frames=False),
    "attention unet": attention_unet,
    "side stage unet": side_stage_unet,
    "diffusion unet": diffusion_unet,
    "diffusion unet merging in cards": lambda: diffusion_unet("card"),
    "shifted skip unet": shifted_skip_unet,
    "residual unet": residual_unet,
    "resnet": resnet,
    "transformer": transformer,
    "multimodal": multimodal,
    "densenet": densenet,
    "chain": lambda: chain(7),
}
