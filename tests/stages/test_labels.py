"""Labels: the shortest part of a path that speaks, unique where it must be."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from neural_flow.stages.labels import Named, make_labels, ordinal, short_label


def labels(*paths: str, **more: object) -> list[str]:
    return make_labels([Named(path, "Conv", **more) for path in paths])


def test_a_number_or_a_container_word_never_stands_alone():
    assert short_label("encoder.layers.3", "Layer") == "encoder.3"
    assert short_label("down.0", "Block") == "down.0"
    assert short_label("model.net.0", "Conv2d") == "Conv2d"
    assert short_label("encoder.layer", "Layer") == "encoder"
    assert short_label("", "Net") == "Net"


def test_siblings_that_collide_grow_by_their_parents():
    assert labels("a.attn.o", "b.attn.o", "c") == ["a.attn.o", "b.attn.o", "c"]
    assert labels("0", "2") == ["Conv 0", "Conv 2"]


def test_one_name_at_each_level_of_a_nest_says_the_level():
    assert labels("u.down", "u.in.down", "u.in.in.down") == ["down (level 1)", "down (level 2)", "down (level 3)"]
    assert labels("a.down", "b.down", "c.down") == ["a.down", "b.down", "c.down"]


def test_boxes_say_the_rest():
    named = [Named("t.norm", "N", scope="t"), Named("v.norm", "N", scope="v")]
    assert make_labels(named) == ["norm", "norm"]
    assert make_labels([Named("enc.block.1.layer.0", "Attn", num_known=3)]) == ["Attn"]


def test_later_calls_say_which():
    named = [Named("enc", "E"), Named("enc", "E", call_index=1), Named("enc", "E", call_index=2)]
    assert make_labels(named) == ["enc", "enc (2nd call)", "enc (3rd call)"]


def test_ops_are_told_apart_by_what_they_read():
    named = [Named("fc1.weight", "linear", is_op=True), Named("fc2.weight", "linear", is_op=True)]
    assert make_labels(named) == ["linear fc1", "linear fc2"]
    deep = [Named(f"h.0.{part}.proj.weight", "linear", is_op=True, num_known=2) for part in ("attn", "mlp")]
    assert make_labels(deep) == ["linear attn.proj", "linear mlp.proj"]
    assert make_labels([Named("", "add", is_op=True)] * 2) == ["add", "add (2nd)"]
    run = [Named(path, "relu", is_op=True, has_param=False) for path in ("a.act", "b.act", "b.act")]
    assert make_labels(run) == ["relu a.act", "relu b.act", "relu b.act (2nd)"]
    boxed = [Named(path, "relu", is_op=True, has_param=False, scope=path) for path in ("a", "b", "b")]
    assert make_labels(boxed) == ["relu", "relu", "relu (2nd)"]


def test_ordinals():
    assert [ordinal(n) for n in (1, 2, 3, 4, 11, 12, 13, 21, 112)] == [
        "1st", "2nd", "3rd", "4th", "11th", "12th", "13th", "21st", "112th",
    ]  # fmt: skip


paths = st.lists(
    st.lists(st.sampled_from(("enc", "dec", "layers", "0", "1", "attn")), min_size=1, max_size=4).map(".".join),
    min_size=1, max_size=8, unique=True,
)  # fmt: skip


@given(paths)
def test_labels_of_different_paths_differ(found):
    made = labels(*found)
    assert len(set(made)) == len(made)
