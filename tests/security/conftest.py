"""What security tests share: an authority and the certificates that it signed."""

from __future__ import annotations

import pytest

from tests.security.certificates import Authority, Identity


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """The authority that clients trust."""
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="session")
def server_identity(authority: Authority) -> Identity:
    """For a broker on this machine."""
    return authority.issue("server", "localhost", "127.0.0.1")


@pytest.fixture(scope="session")
def client_identity(authority: Authority) -> Identity:
    """For a client that proves who it is by TLS."""
    return authority.issue("client", "client.example")
