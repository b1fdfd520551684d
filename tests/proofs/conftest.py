"""The proved programs, built once for all tests."""

import pytest

from proofs.formal import extraction


@pytest.fixture(scope="session")
def programs(tmp_path_factory):
    """The checker of certificates, and the bound of rows."""
    return extraction.built(tmp_path_factory.mktemp("programs"))
