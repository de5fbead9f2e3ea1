"""What an experiment leaves behind can be read again, repeated, and shown without its keys."""

from pathlib import Path

import pytest
from tests.bench.made import result, sample, step

from stoker.base.errors import Invalid
from stoker.bench import result as results
from stoker.bench.advice import advice
from stoker.decide.measure.classes import Class


def test_what_was_written_is_what_is_read(tmp_path: Path) -> None:
    rows = [[sample(i) for i in range(3)], [sample(i, kind=Class.REJECTED) for i in range(2)]]
    made = result([step(1.0, rows[0]), step(2.0, rows[1])])
    results.write(tmp_path / "new", made, rows, "<html>")
    assert results.read(tmp_path / "new") == made
    assert results.read(tmp_path / "new" / "result.json") == made
    assert results.samples(tmp_path / "new", made) == rows


def test_what_is_no_result_is_told_with_file_and_line(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match=r"result\.json: No such file"):
        results.read(tmp_path)
    (tmp_path / "result.json").write_text('{"kind": 3}')
    with pytest.raises(Invalid, match="it is no result of `stoker bench`"):
        results.read(tmp_path)
    (tmp_path / "requests.jsonl").write_text('{"step":7}\n')
    with pytest.raises(Invalid, match=r"requests\.jsonl:1: it is no request of this result"):
        results.samples(tmp_path, result([]))


@pytest.mark.parametrize(
    ("words", "want"),
    [
        (["bench", "run", "U", "--key", "sk-1", "-c", "2"], "stoker bench run U -c 2"),
        (["bench", "run", "U", "--key=sk-1"], "stoker bench run U"),
        (["bench", "run", "U", "--extra", '{"n":1}'], "stoker bench run U --extra '{\"n\":1}'"),
        (["bench", "run", "U", "--out", "a b"], "stoker bench run U --out 'a b'"),
    ],
)
def test_the_command_can_be_pasted_and_tells_no_key(words: list[str], want: str) -> None:
    assert results.command(words) == want


def test_what_went_wrong_comes_with_what_the_server_said() -> None:
    rows = [sample(i, kind=Class.REJECTED, message=f"full {i}") for i in range(3)]
    one = step(1.0, rows)
    assert one.details == {"error/429": 3}
    assert one.said == {"error/429": "full 0"}


def test_advice_is_given_where_the_answers_show_what_to_do() -> None:
    long = "This model's maximum context length is 4096 tokens; the prompt has 4983. Shorten it."
    rows = [sample(0), sample(1, kind=Class.ERROR, status=400, message=long)]
    assert advice(rows) == (
        "prompts longer than the model takes: 1; --context 4096 cuts them, --scale N divides all lengths",
    )
    assert "did it end while we measured?" in advice([sample(0, kind=Class.ERROR, status=401, message="expired")])[0]
    assert advice([sample(0), sample(1, kind=Class.ERROR, status=500, message="oh")]) == ()
