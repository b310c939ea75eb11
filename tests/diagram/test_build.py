from __future__ import annotations

import dataclasses
import itertools

from hypothesis import given
from hypothesis import strategies as st

from neural_flow.diagram import build_diagram
from neural_flow.records import Edge, Flow, Join, ModelInfo, Request, Stage, StageGroup, Topology


def unet(Net, meta):
    big, small = meta(1, 4, 64, 64), meta(1, 8, 32, 32)
    details = {
        ("d0", "d1"): {"tensors": big, "arrived": meta(1, 4, 32, 32), "through": ("max_pool2d",)},
        ("d1", "c0"): {"tensors": small, "arrived": meta(1, 8, 64, 64), "through": ("interpolate",)},
        ("d0", "c0"): {"tensors": big, "arrived": big},
    }
    return Net("in:x d0 d1 cat:c0 u0 out:y", "x>d0 d0>d1 d1>c0 d0>c0 c0>u0 u0>y", details)


def test_a_unet_has_its_rings_skips_and_factors(Net, arrows, check, meta):
    topology = unet(Net, meta).topology()
    diagram = build_diagram(topology)
    check(diagram, topology.stages)
    assert arrows(diagram, "kind", "text") == {
        ("x>d0", "primary", ""),
        ("d0>d1", "primary", "pool ÷2"),
        ("d1>concat0", "primary", "up ×2"),
        ("d0>concat0", "skip", ""),
        ("concat0>u0", "primary", ""),
        ("u0>y", "primary", ""),
    }


def test_towers_merge_and_heads_branch(Net, arrows, check):
    net = Net(
        "in:image in:table conv1 conv2 mlp cat:j fusion a b out:ya out:yb",
        "image>conv1 conv1>conv2 table>mlp conv2>j mlp>j j>fusion fusion>a fusion>b a>ya b>yb",
    )
    topology = net.topology()
    diagram = build_diagram(topology)
    check(diagram, topology.stages)
    kinds = dict(arrows(diagram, "kind"))
    assert kinds["mlp>concat0"] == "merge"
    assert kinds["fusion>a"] == "primary"
    assert kinds["fusion>b"] == "branch"
    assert kinds["b>yb"] == "primary"


def test_a_way_that_rejoins_is_no_branch(Net, arrows):
    net = Net("in:x a b c +j out:y", "x>a a>b b>j a>c c>j j>y")
    assert "branch" not in {kind for _, kind in arrows(build_diagram(net.topology()), "kind")}


def test_of_two_ways_of_equal_length_the_one_that_carries_more_is_the_trunk(Net, arrows, meta):
    details = {("embed", "mix"): {"tensors": meta(1, 8)}, ("stem", "mix"): {"tensors": meta(1, 8, 32, 32)}}
    net = Net("in:time in:image embed stem mix out:y", "time>embed image>stem embed>mix stem>mix mix>y", details)
    kinds = dict(arrows(build_diagram(net.topology()), "kind"))
    assert (kinds["stem>mix"], kinds["embed>mix"]) == ("primary", "merge")


def test_what_many_read_is_a_condition_however_large(Net, arrows, meta):
    details = {("adjacency", "conv1"): {"tensors": meta(1, 90, 90)}, ("nodes", "conv1"): {"tensors": meta(1, 9)}}
    lines = "nodes>conv1 adjacency>conv1 conv1>conv2 adjacency>conv2 conv2>y"
    net = Net("in:adjacency in:nodes conv1 conv2 out:y", lines, details)
    kinds = dict(arrows(build_diagram(net.topology()), "kind"))
    assert (kinds["nodes>conv1"], kinds["adjacency>conv1"]) == ("primary", "merge")


def test_a_head_that_leads_back_to_the_trunk_is_no_branch(Net, arrows):
    net = Net("in:x in:t a b c d p +j out:y out:z", "x>a a>b b>c c>j t>d d>p d>z p>j j>y")
    kinds = dict(arrows(build_diagram(net.topology()), "kind"))
    assert kinds["d>p"] == "primary"
    assert kinds["p>add0"] == "merge"
    assert kinds["d>z"] == "branch"


def test_plumbing_is_hidden_with_the_inputs_that_only_feed_it(Net, arrows, check):
    details = {("mask", "where"): {"plumbing": True}, ("mask", "attn"): {"plumbing": True}}
    net = Net("in:x in:mask a where:where attn out:y", "x>a a>where mask>where where>attn mask>attn attn>y", details)
    topology = net.topology()
    diagram = build_diagram(topology)
    check(diagram, topology.stages)
    assert arrows(diagram) == {"x>a", "a>attn", "attn>y"}
    assert [node.label for node in diagram.nodes] == ["x", "a", "attn", "y"]
    full = build_diagram(net.topology(detail="op"))
    assert {"mask>where0", "mask>attn", "where0>attn"} <= arrows(full)
    assert "mask" in [node.label for node in full.nodes]


def test_a_card_with_nothing_but_plumbing_keeps_it(Net, arrows):
    details = {("x", "rotary"): {"plumbing": True}, ("rotary", "attn"): {"plumbing": True}}
    net = Net("in:x rotary attn out:y", "x>rotary x>attn rotary>attn attn>y", details)
    assert {"x>rotary", "rotary>attn"} <= arrows(build_diagram(net.topology()))


def test_joins_of_the_same_cards_are_one_ring_if_they_follow_or_do_the_same(Net, arrows, check):
    net = Net(
        "in:x a b mul:m +s mul:n cat:far c out:y",
        "x>a x>b a>m b>m m>s a>s s>n b>n n>c x>far c>far far>y",
    )
    topology = net.topology()
    diagram = build_diagram(topology)
    check(diagram, topology.stages)
    assert arrows(diagram) == {
        "x>a", "x>b", "a>add0", "b>add0", "add0>c", "x>concat1", "c>concat1", "concat1>y",
    }  # fmt: skip


def test_different_joins_of_the_same_cards_stay_apart(Net, arrows):
    net = Net("in:x a b +s mul:m c d out:y out:z", "x>a x>b a>s b>s a>m b>m s>c m>d c>y d>z")
    assert {"add0>c", "mul1>d"} <= arrows(build_diagram(net.topology()))


def test_an_output_that_an_earlier_card_already_shows_is_thin(Net, meta):
    details = {("a", "features"): {"tensors": meta(1, 4), "arrived": meta(1, 4)}}
    net = Net("in:x a b out:features out:logits", "x>a a>b a>features b>logits", details)
    diagram = build_diagram(net.topology())
    assert {node.label: node.is_thin for node in diagram.nodes if node.label in ("features", "logits")} == {
        "features": True,
        "logits": False,
    }


def test_calls_of_one_module_say_that_they_share(Net):
    net = Net("in:x in:z a a#1 b out:y", "x>a z>a#1 a>b a#1>b b>y")
    diagram = build_diagram(net.topology())
    assert [node.label for node in diagram.nodes if node.is_shared] == ["a", "a#1"]


def test_inner_residuals_are_told_by_the_topology(Net):
    net = Net("in:x a b out:y", "x>a a>b b>y")
    diagram = build_diagram(net.topology(residual_stage_ids=(2,)))
    assert [node.has_residual for node in diagram.nodes] == [False, False, True, False]


def test_frames_are_the_groups_of_the_topology(Net, check):
    names = "net.enc.0 net.enc.1 net.mid net.dec.up.0 net.dec.up.1 net.head"
    words = names.split()
    lines = f"x>{words[0]} " + " ".join(f"{a}>{b}" for a, b in itertools.pairwise(words)) + f" {words[-1]}>y"
    net = Net(f"in:x {names} out:y", lines)
    groups = (
        StageGroup(module="net.enc", label="Encoder", stage_ids=(1, 2)),
        StageGroup(module="net.dec", label="dec", stage_ids=(4, 5)),
        StageGroup(module="net.mid", label="mid", stage_ids=(3,)),
    )
    topology = net.topology(groups=groups)
    diagram = build_diagram(topology)
    check(diagram, topology.stages)
    assert [(frame.kind, frame.title, frame.node_ids) for frame in diagram.frames] == [
        ("group", "Encoder", (1, 2)),
        ("group", "dec", (4, 5)),
    ]


def test_a_container_that_is_no_group_has_no_frame(Net):
    net = Net("in:x e.0 e.1 f out:y", "x>e.0 e.0>e.1 e.1>f f>y")
    assert build_diagram(net.topology()).frames == ()
    nameless = StageGroup(module="e", label="", stage_ids=(1, 2))
    assert build_diagram(net.topology(groups=(nameless,))).frames == ()


def test_a_frame_holds_the_rings_between_its_cards(Net, check):
    net = Net("in:x a d.0 cat:c d.1 e f out:y", "x>a a>d.0 d.0>c a>c c>d.1 d.1>e e>f f>y")
    topology = net.topology(groups=(StageGroup(module="d", label="d", stage_ids=(2, 3)),))
    diagram = build_diagram(topology)
    check(diagram, topology.stages)
    assert diagram.frames[0].node_ids == (2, 3, 4)


def test_the_first_merge_of_a_decoder_lies_in_its_frame_as_the_later_ones_do(Net, check):
    net = Net(
        "in:x e0 e1 mid cat:j1 d.1 cat:j0 d.0 head out:y",
        "x>e0 e0>e1 e1>mid mid>j1 e1>j1 j1>d.1 d.1>j0 e0>j0 j0>d.0 d.0>head head>y",
    )
    topology = net.topology(groups=(StageGroup(module="d", label="d", stage_ids=(4, 5)),))
    diagram = build_diagram(topology)
    check(diagram, topology.stages)
    assert len(diagram.frames[0].node_ids) == 4


def test_a_sum_in_front_of_a_container_is_not_its_own(Net, check):
    """Embeddings that add up before a stack are no part of it, and what another module runs never is."""
    line = "x>a x>b a>j b>j j>d.0 d.0>d.1 d.1>f f>y"
    for names, paths in (("in:x a b +j d.0 d.1 f out:y", {}), ("in:x a b cat:j d.0 d.1 f out:y", {"j": "emb"})):
        net = Net(names, line, paths=paths)
        topology = net.topology(groups=(StageGroup(module="d", label="d", stage_ids=(3, 4)),))
        diagram = build_diagram(topology)
        check(diagram, topology.stages)
        cards = {node.node_id for node in diagram.nodes if node.role == "card"}
        assert set(diagram.frames[0].node_ids) <= cards


@st.composite
def topologies(draw: st.DrawFn) -> Topology:
    """Stages and joins in call order; every item reads some earlier ones."""
    stages: list[Stage] = [Stage(stage_id=0, kind="input", name="x", label="x")]
    joins: list[Join] = []
    flows: list[Flow] = []
    earlier = [("stage", 0)]
    for number in range(1, draw(st.integers(2, 14))):
        sources = draw(st.lists(st.sampled_from(earlier), min_size=1, max_size=3, unique=True))
        if len(sources) > 1 and draw(st.booleans()):
            key = ("join", number)
            target = draw(st.sampled_from(["add", "cat"]))
            joins.append(Join(join_id=number, target=target, sources=tuple(sources)))  # type: ignore[arg-type]
        else:
            key = ("stage", len(stages))
            stages.append(Stage(stage_id=len(stages), kind="module", name=f"s{number}", label=f"s{number}"))
        flows += [Flow(source=source, target=key, plumbing=draw(st.integers(0, 9)) == 0) for source in sources]  # type: ignore[arg-type]
        earlier.append(key)
    return Topology(
        model=ModelInfo(name="", class_name=""),
        stages=tuple(stages),
        edges=(),
        joins=tuple(joins),
        flows=tuple(flows),
        request=Request(detail="op"),
    )


def pairs_through(
    links: list[tuple[object, object]], starts: list[object], is_join: object
) -> set[tuple[object, object]]:
    """Return which starts reach which others through joins alone."""
    found: set[tuple[object, object]] = set()
    for start in starts:
        queue = [target for source, target in links if source == start]
        seen: set[object] = set()
        while queue:
            at = queue.pop()
            if at in seen:
                continue
            seen.add(at)
            if is_join(at):  # type: ignore[operator]
                queue += [target for source, target in links if source == at]
            else:
                found.add((start, at))
    return found


@given(topologies())
def test_without_folds_cards_reach_each_other_as_their_stages_do(topology: Topology):
    diagram = build_diagram(topology)
    expected = pairs_through(
        [(flow.source, flow.target) for flow in topology.flows],
        [("stage", stage.stage_id) for stage in topology.stages],
        lambda key: key[0] == "join",
    )
    stage_of = {node.node_id: ("stage", node.stage_id) for node in diagram.nodes if node.role == "card"}
    found = pairs_through(
        [(arrow.source, arrow.target) for arrow in diagram.arrows], list(stage_of), lambda node: node not in stage_of
    )
    assert {(stage_of[a], stage_of[b]) for a, b in found} == expected  # type: ignore[index]
    assert all(arrow.source < arrow.target for arrow in diagram.arrows)


@given(topologies())
def test_a_diagram_is_the_same_every_time(topology: Topology):
    assert build_diagram(topology) == build_diagram(dataclasses.replace(topology))


def stored(topology: Topology) -> Topology:
    """Return what a graph file keeps: direct edges, no joins."""
    links = [(flow.source, flow.target) for flow in topology.flows]
    stages = [("stage", stage.stage_id) for stage in topology.stages]
    direct = pairs_through(links, stages, lambda key: key[0] == "join")
    joins = {("join", join.join_id): join.target for join in topology.joins}
    edges = []
    for a, b in sorted(direct):  # type: ignore[type-var]
        via = [name for key, name in joins.items() if (a, key) in links and _leads(links, key, b)]
        edges.append(Edge(source=a[1], target=b[1], via=tuple(via)))  # type: ignore[index]
    return dataclasses.replace(topology, edges=tuple(edges), flows=(), joins=())


def _leads(links: list[tuple[object, object]], join: object, stage: object) -> bool:
    return (join, stage) in pairs_through(links, [join], lambda key: key[0] == "join")


def test_a_stored_graph_gives_the_same_rings(Net, arrows, check):
    net = Net(
        "in:x d0 d1 cat:c0 u0 +r0 l0 +r1 l1 +r2 out:y",
        "x>d0 d0>d1 d1>c0 d0>c0 c0>u0 u0>r0 d0>r0 r0>l0 r0>r1 l0>r1 r1>l1 r1>r2 l1>r2 r2>y",
    )
    topology = net.topology()
    again = stored(topology)
    diagram = build_diagram(again)
    check(diagram, again.stages)
    assert arrows(diagram) == arrows(build_diagram(topology))


def test_a_stored_graph_keeps_joins_inside_a_card_inside(Net, arrows, meta):
    stages = [
        Stage(stage_id=0, kind="input", name="x", label="x"),
        Stage(stage_id=1, kind="module", name="enc", label="enc"),
        Stage(stage_id=2, kind="module", name="mid", label="mid"),
        Stage(stage_id=3, kind="module", name="up", label="up", inputs=meta(1, 4) + meta(1, 4)),
    ]
    edges = (
        Edge(source=0, target=1),
        Edge(source=1, target=2),
        Edge(source=1, target=3, via=("cat",)),
        Edge(source=2, target=3, via=("cat",)),
    )
    topology = Topology(model=ModelInfo(name="", class_name=""), stages=tuple(stages), edges=edges)
    assert arrows(build_diagram(topology)) == {"x>enc", "enc>mid", "mid>up", "enc>up"}


def test_a_stored_graph_tells_the_factors_from_what_stages_read(Net, arrows, meta):
    topology = unet(Net, meta).topology()
    inputs = {"d1": meta(1, 4, 32, 32), "u0": meta(1, 12, 64, 64)}
    topology = dataclasses.replace(
        topology,
        stages=tuple(dataclasses.replace(stage, inputs=inputs.get(stage.name, ())) for stage in topology.stages),
        flows=tuple(dataclasses.replace(flow, arrived=()) for flow in topology.flows),
    )
    assert {("d0>d1", "pool ÷2"), ("d1>concat0", "up ×2")} <= arrows(build_diagram(topology), "text")
