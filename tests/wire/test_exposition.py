"""Metrics pages: every sample of a real page, labels with escapes, and lines that are none."""

import math
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from stoker.wire.exposition import Sample, scan

PAGE = Path("tests/data/engine-samples/vllm-0.32.0-metrics-after-load.txt").read_text()


def test_a_real_page_is_read_as_the_reference_parser_reads_it() -> None:
    reference = [
        (sample.name, dict(sample.labels), sample.value)
        for family in text_string_to_metric_families(PAGE)
        for sample in family.samples
    ]
    ours = [(sample.name, dict(sample.labels), sample.value) for sample in scan(PAGE)]

    assert sorted(ours, key=str) == sorted(reference, key=str)
    assert len(ours) > 400


def test_only_what_is_wanted_comes_back() -> None:
    assert {s.name for s in scan(PAGE, {"vllm:num_requests_running"})} == {"vllm:num_requests_running"}


def test_odd_lines() -> None:
    page = 'a{x="1\\"}\\n",y=""} 2 1700000000\n# HELP a 1\nb NaN\nc +Inf\nd\ne{x="1"} word\n\nf{} 3\n'

    found = list(scan(page))

    assert found[0] == Sample("a", 2.0, {"x": '1"}\n', "y": ""})
    assert math.isnan(found[1].value)
    assert [s.name for s in found] == ["a", "b", "c", "f"]


@given(page=st.text())
def test_no_page_breaks_it(page: str) -> None:
    assert all(sample.name for sample in scan(page))
