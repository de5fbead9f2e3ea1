"""What `stoker up` says about certificates before it starts anything."""

from pathlib import Path

import pytest
from tests.gateway.door.certificates import make

from stoker.base.errors import Invalid
from stoker.cli import preflight


def test_a_pair_that_fits_becomes_words_for_the_supervisor(tmp_path: Path) -> None:
    cert, key = make(tmp_path, 1)
    assert preflight.certificate(cert, key) == ["--tls-cert", str(cert), "--tls-key", str(key)]
    assert preflight.certificate(None, None) == []


@pytest.mark.parametrize(
    ("cert", "key", "told"),
    [
        ("cert.pem", None, "--tls-key: certificate and key go together"),
        (None, "key.pem", "--tls-cert: certificate and key go together"),
        ("cert.pem", "cert.pem", "--tls-cert: .*cert.pem"),
        ("nothing.pem", "key.pem", "No such file"),
    ],
)
def test_a_pair_that_serves_nobody_is_refused(tmp_path: Path, cert: str | None, key: str | None, told: str) -> None:
    make(tmp_path, 1)
    with pytest.raises(Invalid, match=told):
        preflight.certificate(tmp_path / cert if cert else None, tmp_path / key if key else None)
