from __future__ import annotations

import itertools

from neural_flow.diagram import build_diagram


def gpt(Net, num_layers: int, *, is_glue: bool):
    """Embeddings, layers of [norm, attention, norm, mlp] in a residual stream, a head."""
    names, lines, stream = "in:x wte wpe +a0", "x>wte wte>a0 wpe>a0", "a0"
    for k in range(num_layers):
        names += f" h.{k}.ln_1 h.{k}.attn +r{k} h.{k}.ln_2 h.{k}.mlp +s{k}"
        lines += f" {stream}>h.{k}.ln_1 h.{k}.ln_1>h.{k}.attn {stream}>r{k} h.{k}.attn>r{k}"
        lines += f" r{k}>h.{k}.ln_2 h.{k}.ln_2>h.{k}.mlp r{k}>s{k} h.{k}.mlp>s{k}"
        stream = f"s{k}"
    paths = {f"{join}{k}": f"h.{k}" for k in range(num_layers) for join in "rs"}
    lines += f" {stream}>ln_f ln_f>head head>y"
    net = Net(f"{names} ln_f head out:y", lines, paths={} if is_glue else paths)
    members = [f"h.{k}.ln_1 h.{k}.attn h.{k}.ln_2 h.{k}.mlp" for k in range(num_layers)]
    return net, members


def test_a_transformer_shows_one_layer_with_its_residuals(Net, arrows, check):
    for representative, is_glue in itertools.product((0, 5, 11), (False, True)):
        net, members = gpt(Net, 12, is_glue=is_glue)
        topology = net.topology(net.fold(*members, representative=representative))
        diagram = build_diagram(topology)
        check(diagram, topology.stages)
        k = representative
        assert arrows(diagram, "kind") == {
            ("x>wte", "primary"),
            ("wte>add0", "primary"),
            ("wpe>add0", "merge"),
            (f"add0>h.{k}.ln_1", "primary"),
            (f"h.{k}.ln_1>h.{k}.attn", "primary"),
            ("add0>add1", "skip"),
            (f"h.{k}.attn>add1", "primary"),
            (f"add1>h.{k}.ln_2", "primary"),
            (f"h.{k}.ln_2>h.{k}.mlp", "primary"),
            ("add1>add2", "skip"),
            (f"h.{k}.mlp>add2", "primary"),
            ("add2>ln_f", "primary"),
            ("ln_f>head", "primary"),
            ("head>y", "primary"),
        }
        (frame,) = diagram.frames
        assert (frame.kind, frame.badge, len(frame.node_ids)) == ("fold", "×12", 6)
        assert [len(node.stage_ids) for node in diagram.nodes if node.count == 1 and len(node.stage_ids) > 1] == [
            12
        ] * 4


def test_an_odd_first_block_leaves_the_residual_of_the_others_in_the_box(Net, arrows, check):
    """The first block of a ResNet stage has a projection; a later one is drawn."""
    net = Net(
        "in:x stem l.0.conv1 l.0.conv2 l.0.down +r0 l.1.conv1 l.1.conv2 +r1 l.2.conv1 l.2.conv2 +r2 fc out:y",
        "x>stem stem>l.0.conv1 l.0.conv1>l.0.conv2 stem>l.0.down l.0.down>r0 l.0.conv2>r0 "
        "r0>l.1.conv1 l.1.conv1>l.1.conv2 r0>r1 l.1.conv2>r1 "
        "r1>l.2.conv1 l.2.conv1>l.2.conv2 r1>r2 l.2.conv2>r2 r2>fc fc>y",
    )
    fold = net.fold("l.0.conv1 l.0.conv2 l.0.down", "l.1.conv1 l.1.conv2", "l.2.conv1 l.2.conv2", representative=1)
    topology = net.topology(fold)
    diagram = build_diagram(topology)
    check(diagram, topology.stages)
    assert arrows(diagram, "kind") == {
        ("x>stem", "primary"),
        ("stem>l.1.conv1", "primary"),
        ("l.1.conv1>l.1.conv2", "primary"),
        ("stem>add0", "skip"),
        ("l.1.conv2>add0", "primary"),
        ("add0>fc", "primary"),
        ("fc>y", "primary"),
    }


def test_memory_enters_every_repeat_at_the_card_that_reads_it(Net, arrows, check):
    net = Net(
        "in:src in:tgt enc d.0.self d.0.cross d.1.self d.1.cross head out:y",
        "src>enc tgt>d.0.self d.0.self>d.0.cross enc>d.0.cross d.0.cross>d.1.self d.1.self>d.1.cross enc>d.1.cross "
        "d.1.cross>head head>y",
    )
    topology = net.topology(net.fold("d.0.self d.0.cross", "d.1.self d.1.cross", representative=1))
    diagram = build_diagram(topology)
    check(diagram, topology.stages)
    assert arrows(diagram) == {
        "src>enc", "tgt>d.1.self", "d.1.self>d.1.cross", "enc>d.1.cross", "d.1.cross>head", "head>y",
    }  # fmt: skip


def test_a_fold_of_one_card_is_a_stack_and_keeps_its_residual_as_a_mark(Net, arrows, check):
    net = Net(
        "in:x l.0 +r0 l.1 +r1 l.2 +r2 out:y",
        "x>l.0 x>r0 l.0>r0 r0>l.1 r0>r1 l.1>r1 r1>l.2 r1>r2 l.2>r2 r2>y",
    )
    for representative in (0, 1, 2):
        topology = net.topology(net.fold("l.0", "l.1", "l.2", representative=representative))
        diagram = build_diagram(topology)
        check(diagram, topology.stages)
        assert arrows(diagram) == {"x>fold 0", "fold 0>y"}
        card = diagram.nodes[1]
        assert (card.count, card.fold_kind, card.has_residual, card.stage_ids) == (3, "serial", True, (1, 2, 3))
        assert diagram.frames == ()


def test_skips_into_a_folded_decoder_meet_before_its_members(Net, arrows, check):
    net = Net(
        "in:x d0 d1 d2 cat:c0 u.0 cat:c1 u.1 cat:c2 u.2 out:y",
        "x>d0 d0>d1 d1>d2 d2>c0 d1>c0 c0>u.0 u.0>c1 d0>c1 c1>u.1 u.1>c2 x>c2 c2>u.2 u.2>y",
    )
    topology = net.topology(net.fold("u.0", "u.1", "u.2"))
    diagram = build_diagram(topology)
    check(diagram, topology.stages)
    assert arrows(diagram) == {"x>d0", "d0>d1", "d1>d2", "d2>fold 0", "d1>fold 0", "d0>fold 0", "x>fold 0", "fold 0>y"}
    assert not diagram.nodes[-2].has_residual


def test_the_sum_after_the_last_member_is_no_part_of_the_repeat(Net, arrows, check):
    net = Net("in:x stem l.0 l.1 l.2 +r out:y", "x>stem stem>l.0 l.0>l.1 l.1>l.2 l.2>r stem>r r>y")
    topology = net.topology(net.fold("l.0", "l.1", "l.2", representative=2))
    diagram = build_diagram(topology)
    check(diagram, topology.stages)
    assert arrows(diagram) == {"x>stem", "stem>fold 0", "fold 0>add0", "stem>add0", "add0>y"}
    assert not any(node.has_residual for node in diagram.nodes)


def test_parallel_twins_are_one_stack_whose_outputs_still_meet(Net, arrows, check):
    net = Net(
        "in:x router e.0 +s0 e.1 +s1 e.2 out:y".replace("+s0 ", "")
        .replace("+s1", "")
        .replace("out:y", "+s0 +s1 out:y"),
        "x>router x>e.0 x>e.1 x>e.2 e.0>s0 e.1>s0 s0>s1 e.2>s1 s1>y",
    )
    topology = net.topology(net.fold("e.0", "e.1", "e.2", kind="parallel"))
    diagram = build_diagram(topology)
    check(diagram, topology.stages)
    assert arrows(diagram) == {"x>router", "x>fold 0", "fold 0>add0", "add0>y"}
    assert not any(node.has_residual for node in diagram.nodes)


def test_every_layer_feeding_one_sum_starts_at_the_card_that_shows_it(Net, arrows, check):
    net = Net(
        "in:x l.0.a l.0.skip l.1.a l.1.skip +t1 l.2.a l.2.skip +t2 head out:y",
        "x>l.0.a l.0.a>l.0.skip l.0.a>l.1.a l.1.a>l.1.skip l.0.skip>t1 l.1.skip>t1 l.1.a>l.2.a l.2.a>l.2.skip t1>t2 "
        "l.2.skip>t2 t2>head head>y",
    )
    topology = net.topology(net.fold("l.0.a l.0.skip", "l.1.a l.1.skip", "l.2.a l.2.skip", representative=1))
    diagram = build_diagram(topology)
    check(diagram, topology.stages)
    assert {"x>l.1.a", "l.1.a>l.1.skip"} <= arrows(diagram)
    assert any(arrow.startswith("l.1.skip>") for arrow in arrows(diagram))


def test_a_recurrent_loop_returns_to_its_entry(Net, arrows, returns, check):
    net = Net(
        "in:x embed cell out0 cell#1 out0#1 cell#2 out0#2 out:y",
        "x>embed embed>cell cell>out0 out0>cell#1 cell#1>out0#1 out0#1>cell#2 cell#2>out0#2 out0#2>y",
    )
    topology = net.topology(net.fold("cell out0", "cell#1 out0#1", "cell#2 out0#2", kind="loop"))
    diagram = build_diagram(topology)
    check(diagram, topology.stages)
    assert arrows(diagram) == {"x>embed", "embed>cell", "cell>out0", "out0>y"}
    assert returns(diagram) == ["out0>cell"]
    assert diagram.frames[0].badge == "×3"


def test_a_closed_loop_returns_to_itself_and_a_shared_head_does_not(Net, arrows, returns, check):
    net = Net("in:x c c#1 c#2 out:y", "x>c c>c#1 c#1>c#2 c#2>y")
    diagram = build_diagram(net.topology(net.fold("c", "c#1", "c#2", kind="loop")))
    assert returns(diagram) == ["fold 0>fold 0"]
    net = Net("in:x a b h h#1 cat:j out:y", "x>a x>b a>h b>h#1 h>j h#1>j j>y")
    topology = net.topology(net.fold("h", "h#1", kind="loop"))
    diagram = build_diagram(topology)
    check(diagram, topology.stages)
    assert returns(diagram) == []
    assert arrows(diagram) == {"x>a", "x>b", "a>fold 0", "b>fold 0", "fold 0>concat0", "concat0>y"}


def test_calls_between_the_turns_of_a_loop_are_reached_forward_and_lead_back(Net, arrows, returns, check):
    net = Net("in:x a norm b norm#1 c norm#2 out:y", "x>a a>norm norm>b b>norm#1 norm#1>c c>norm#2 norm#2>y")
    topology = net.topology(net.fold("norm", "norm#1", "norm#2", kind="loop"))
    diagram = build_diagram(topology)
    check(diagram, topology.stages)
    assert arrows(diagram) == {"x>a", "a>fold 0", "fold 0>b", "fold 0>c", "fold 0>y"}
    assert sorted(returns(diagram)) == ["b>fold 0", "c>fold 0"]


def test_folds_inside_folds_show_one_member_of_each(Net, arrows, check):
    names, lines, last = "in:x", "", "x"
    for k in range(3):
        names += f" h.{k}.norm " + " ".join(f"h.{k}.e.{i}" for i in range(4)) + f" cat:c{k}"
        lines += f" {last}>h.{k}.norm " + " ".join(f"h.{k}.norm>h.{k}.e.{i} h.{k}.e.{i}>c{k}" for i in range(4))
        last = f"c{k}"
    net = Net(names + " out:y", lines + f" {last}>y")
    outer = net.fold(*(f"h.{k}.norm " + " ".join(f"h.{k}.e.{i}" for i in range(4)) for k in range(3)), representative=1)
    inner = [
        net.fold(*(f"h.{k}.e.{i}" for i in range(4)), kind="parallel", fold_id=k + 1, parent_id=0) for k in range(3)
    ]
    topology = net.topology(outer, *inner)
    diagram = build_diagram(topology)
    check(diagram, topology.stages)
    assert arrows(diagram) == {"x>h.1.norm", "h.1.norm>fold 2", "fold 2>concat0", "concat0>y"}
    stack = next(node for node in diagram.nodes if node.label == "fold 2")
    assert (stack.count, len(stack.stage_ids)) == (4, 12)
    assert diagram.frames[0].badge == "×3"


def test_an_interval_is_one_card_with_the_glue_between_its_stages(Net, arrows, check):
    net = Net("in:x a b +r c out:y", "x>a a>b a>r b>r r>c c>y x>c")
    topology = net.topology(net.fold("a b", kind="interval"))
    diagram = build_diagram(topology)
    check(diagram, topology.stages)
    assert arrows(diagram) == {"x>fold 0", "fold 0>c", "x>c", "c>y"}
    card = diagram.nodes[1]
    assert (card.fold_kind, card.count, card.stage_ids, card.stage_id) == ("interval", 1, (1, 2), 2)


def test_a_dense_fold_stays_one_card(Net, arrows, check):
    net = Net(
        "in:x l.0.n l.0.c cat:j1 l.1.n l.1.c cat:j2 l.2.n l.2.c cat:j3 out:y",
        "x>l.0.n l.0.n>l.0.c x>j1 l.0.c>j1 j1>l.1.n l.1.n>l.1.c j1>j2 l.1.c>j2 "
        "j2>l.2.n l.2.n>l.2.c j2>j3 l.2.c>j3 j3>y",
    )
    topology = net.topology(net.fold("l.0.n l.0.c", "l.1.n l.1.c", "l.2.n l.2.c", is_dense=True))
    diagram = build_diagram(topology)
    check(diagram, topology.stages)
    assert arrows(diagram) == {"x>fold 0", "fold 0>y"}
    assert diagram.nodes[1].is_dense


def test_a_fold_whose_stages_are_not_drawn_is_left_out(Net, check):
    net = Net("in:x a b out:y", "x>a a>b b>y")
    topology = net.topology(net.fold("a", "b"), net.fold("b", "a", fold_id=1, parent_id=0, representative=0))
    diagram = build_diagram(topology)
    check(diagram, topology.stages)
    assert [node.label for node in diagram.nodes] == ["x", "fold 0", "y"]


def test_a_sum_over_all_results_does_not_start_with_the_input(Net, arrows, check):
    """Its second turn reads what the first member handed on, as the second member does; its third turn does not."""
    names, lines = "in:x l.0.a l.0.b", "x>l.0.a l.0.a>l.0.b"
    total = "l.0.b"
    for k in range(1, 4):
        names += f" l.{k}.a l.{k}.b +s{k}"
        lines += f" l.{k - 1}.b>l.{k}.a l.{k}.a>l.{k}.b {total}>s{k} l.{k}.b>s{k}"
        total = f"s{k}"
    net = Net(f"{names} head out:y", f"{lines} s3>head head>y")
    for representative in (1, 3):
        topology = net.topology(net.fold(*(f"l.{k}.a l.{k}.b" for k in range(4)), representative=representative))
        diagram = build_diagram(topology)
        check(diagram, topology.stages)
        found = {pair for pair, _ in arrows(diagram, "kind")}
        assert {pair for pair in found if pair.startswith("x>")} == {f"x>l.{representative}.a"}
        assert any(pair.startswith(f"l.{representative}.b>") for pair in found)


def test_sums_that_the_code_of_a_block_ran_belong_to_the_box_of_several_blocks(Net, arrows, check):
    names, lines, stream = "in:x", "", "x"
    for k in range(4):
        names += f" l.{k}.norm l.{k}.mix +r{k}"
        lines += f" {stream}>l.{k}.norm l.{k}.norm>l.{k}.mix {stream}>r{k} l.{k}.mix>r{k}"
        stream = f"r{k}"
    net = Net(f"{names} head out:y", f"{lines} r3>head head>y", paths={f"r{k}": f"l.{k}" for k in range(4)})
    members = [" ".join(f"l.{k}.norm l.{k}.mix" for k in pair) for pair in ((0, 1), (2, 3))]
    for representative in (0, 1):
        topology = net.topology(net.fold(*members, representative=representative))
        diagram = build_diagram(topology)
        check(diagram, topology.stages)
        a, b = 2 * representative, 2 * representative + 1
        assert arrows(diagram) == {
            f"x>l.{a}.norm", f"l.{a}.norm>l.{a}.mix", "x>add0", f"l.{a}.mix>add0",
            f"add0>l.{b}.norm", f"l.{b}.norm>l.{b}.mix", "add0>add1", f"l.{b}.mix>add1", "add1>head", "head>y",
        }  # fmt: skip
        assert len(diagram.frames[0].node_ids) == 6


def test_a_card_that_outer_code_calls_later_does_not_take_the_code_of_its_block_away(Net, arrows, check):
    """The last norm of a diffusion transformer is a part of its first block, called again."""
    names, lines, stream = "in:x", "", "x"
    for k in range(2):
        names += f" l.{k}.norm l.{k}.mix mul:m{k} +r{k}"
        lines += f" {stream}>l.{k}.norm l.{k}.norm>l.{k}.mix l.{k}.norm>m{k} l.{k}.mix>m{k} {stream}>r{k} m{k}>r{k}"
        stream = f"r{k}"
    paths = {f"{join}{k}": f"l.{k}" for k in range(2) for join in "mr"}
    net = Net(f"{names} l.0.norm.emb +f out:y", f"{lines} x>l.0.norm.emb l.0.norm.emb>f r1>f f>y", paths=paths)
    topology = net.topology(net.fold("l.0.norm l.0.mix", "l.1.norm l.1.mix"))
    diagram = build_diagram(topology)
    check(diagram, topology.stages)
    assert {"l.0.mix>mul0", "mul0>add1", "x>add1", "add1>add2"} <= arrows(diagram)
    assert len(next(frame for frame in diagram.frames if frame.kind == "fold").node_ids) == 4


def test_a_block_with_an_odd_card_adds_where_the_others_do(Net, arrows, check):
    """Of two blocks, the second has experts in place of a feed-forward net."""
    net = Net(
        "in:x l.0.norm l.0.ff +r0 l.1.norm l.1.experts +r1 head out:y",
        "x>l.0.norm l.0.norm>l.0.ff x>r0 l.0.ff>r0 r0>l.1.norm l.1.norm>l.1.experts r0>r1 l.1.experts>r1 r1>head "
        "head>y",
        paths={"r0": "l.0", "r1": "l.1"},
    )
    topology = net.topology(net.fold("l.0.norm l.0.ff", "l.1.norm l.1.experts"))
    diagram = build_diagram(topology)
    check(diagram, topology.stages)
    assert arrows(diagram) == {
        "x>l.0.norm", "l.0.norm>l.0.ff", "x>add0", "l.0.ff>add0", "add0>head", "head>y",
    }  # fmt: skip
