from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from neural_flow.errors import UsageError
from neural_flow.models.arguments import parse_arguments, parse_value

JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


@given(JSON_VALUES)
def test_every_json_value_is_read_as_itself(value: object) -> None:
    assert parse_arguments([f"name={json.dumps(value)}"]) == {"name": value}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("none", None), ("None", None), ("TRUE", True), ("False", False), ("50", 50), ("1e-3", 1e-3), ("b", "b"),
        ("[16,32]", [16, 32]), ("a=b", "a=b"), ("", ""), ("__import__('os').getcwd()", "__import__('os').getcwd()"),
    ],
)  # fmt: skip
def test_words_are_read_and_never_evaluated(text: str, value: object) -> None:
    assert parse_value(text) == value


def test_the_later_of_two_wins() -> None:
    assert parse_arguments(["depth=1", "depth=2"]) == {"depth": 2}


@pytest.mark.parametrize("text", ["depth", "=3", "a b=3", "1a=3"])
def test_an_argument_without_a_name_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="name=value"):
        parse_arguments([text])
