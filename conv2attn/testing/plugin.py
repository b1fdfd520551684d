"""A pytest plugin: the fixture `certified` asserts that two networks are equal and keeps the certificate.

`pytest --certify FOLDER` writes the JSON document of each certificate there, named after its test. A `conftest.py`
enables it by `pytest_plugins = ["conv2attn.testing.plugin"]`. It is not an entry point, since pytest would then load it
at every start, and rewrite the assertions of the whole package.
"""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds `--certify FOLDER`."""
    group = parser.getgroup("conv2attn", "certificates of networks")
    group.addoption(
        "--certify",
        metavar="FOLDER",
        help="write each certificate of the fixture `certified` to FOLDER, as JSON; files of earlier runs are replaced",
    )


@pytest.fixture
def certified(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """`certified(first, second, *inputs, **options)` is `conv2attn.assert_same`, and keeps its certificate.

    The failure begins with the verdict and names each layer and part that does not hold, and the place where both
    differ.
    """
    from conv2attn.testing.equivalence import NetworksDifferError, assert_same

    folder, calls = request.config.getoption("--certify"), 0

    def call(first: Any, second: Any, *inputs: Any, **options: Any) -> Any:
        nonlocal calls
        calls, failure = calls + 1, ""
        try:
            certificate = assert_same(first, second, *inputs, **options)
        except NetworksDifferError as error:
            certificate, failure = error.certificate, str(error)
        if folder is not None:
            name = re.sub(r"[^\w.-]+", "-", request.node.nodeid).strip("-")
            file = Path(folder) / f"{name}{'' if calls == 1 else f'-{calls}'}.json"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(certificate.to_json())
        if failure:
            pytest.fail(failure, pytrace=False)
        return certificate

    return call
