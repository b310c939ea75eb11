"""Diagrams to lay out: drawn by Hypothesis, and the usual nets by hand. All sizes are points."""

from __future__ import annotations

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
