"""What passes without a question, what asks, and what nobody knows."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.decide.licence import Kind, read


@pytest.mark.parametrize(
    ("name", "kind", "words"),
    [
        ("apache-2.0", Kind.PERMISSIVE, ""),
        ("Apache License 2.0", Kind.PERMISSIVE, ""),
        ("MIT", Kind.PERMISSIVE, ""),
        ("cc-by-4.0", Kind.PERMISSIVE, ""),
        ("llama3.1", Kind.RESTRICTED, "700 million"),
        ("llama2", Kind.RESTRICTED, "700 million"),
        ("gemma", Kind.RESTRICTED, "forbidden uses"),
        ("cc-by-nc-4.0", Kind.RESTRICTED, "no commercial use"),
        ("qwen-research", Kind.RESTRICTED, "no commercial use"),
        ("qwen", Kind.RESTRICTED, "100 million"),
        ("mrl", Kind.RESTRICTED, "research only"),
        ("bigscience-bloom-rail-1.0", Kind.RESTRICTED, "forbidden uses"),
        ("creativeml-openrail-m", Kind.RESTRICTED, "forbidden uses"),
        ("agpl-3.0", Kind.RESTRICTED, "same licence"),
        ("nvidia-open-model-license", Kind.RESTRICTED, "guardrails"),
        ("other", Kind.UNKNOWN, "'other'"),
        ("", Kind.UNKNOWN, "name no licence"),
        ("   ", Kind.UNKNOWN, "name no licence"),
        ("apache-2.0-with-strings-attached", Kind.UNKNOWN, "no licence that Stoker knows"),
        ("commitment", Kind.UNKNOWN, "no licence that Stoker knows"),
    ],
)
def test_read(name: str, kind: Kind, words: str) -> None:
    found = read(name)

    assert found.kind is kind
    assert words in found.clause
    assert (found.clause == "") == (kind is Kind.PERMISSIVE)


def test_the_title_counts_where_the_id_says_nothing() -> None:
    assert read("other", title="gemma").kind is Kind.RESTRICTED
    assert read("", title="mit").kind is Kind.PERMISSIVE
    assert read("llama3", title="mit").kind is Kind.RESTRICTED
    assert read("other", title="gemma").standing == "restricted"


@given(st.text())
def test_what_is_not_known_never_passes(name: str) -> None:
    assert read(f"x{name}x").kind is not Kind.PERMISSIVE
