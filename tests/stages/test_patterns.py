"""Path globs against a matcher that walks both texts."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from neural_flow.stages.patterns import compile_glob, matches_path, nearest


def walk(pattern: str, path: str) -> bool:
    """Match letter by letter, trying every length for a star."""
    if not pattern:
        return not path
    if pattern.startswith("**"):
        return any(walk(pattern[2:], path[k:]) for k in range(len(path) + 1))
    if pattern[0] == "*":
        return any(walk(pattern[1:], path[k:]) for k in range(len(path) + 1) if "." not in path[:k])
    if not path:
        return False
    return (pattern[0] == path[0] or (pattern[0] == "?" and path[0] != ".")) and walk(pattern[1:], path[1:])


@given(st.text("ab.*?", max_size=7), st.text("ab.", max_size=7))
def test_globs_mean_what_they_say(pattern, path):
    if "***" in pattern:
        return
    assert bool(compile_glob(pattern).match(path)) == walk(pattern, path)


def test_other_signs_are_plain_letters():
    assert matches_path("a+b(c)", "a+b(c)")
    assert not matches_path("a.b", "axb")
    assert matches_path("h.[0-3]", "h.2")
    assert not matches_path("h.[0-3]", "h.4")


def test_wrappers_are_seen_through_on_both_sides():
    assert matches_path("encoder.0", "_orig_mod.encoder.0")
    assert matches_path("module.encoder.0", "encoder.0")
    assert matches_path("encoder.*", "encoder._checkpoint_wrapped_module.0")
    assert not matches_path("module", "encoder")


def test_nearest_names_come_first():
    assert nearest("encodr.0", ["decoder.0", "encoder.0", "head"])[0] == "encoder.0"
    assert nearest("**.attn", ["h.0.attn", "h.0.mlp"]) == ["h.0.attn"]


def test_names_that_share_letters_by_chance_are_not_near():
    assert nearest("Nope", ["drop", "Conv2d", "head"]) == []
    assert nearest("7", ["h.7", "h.17"]) == []
