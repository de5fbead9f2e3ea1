"""Every test of the gateway runs on both event loops: one forgave a doubled terminator that the other did not."""

import pytest


@pytest.fixture(params=[True, False], ids=["uvloop", "asyncio"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, bool]]:
    return "asyncio", {"use_uvloop": request.param}
