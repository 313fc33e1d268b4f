"""Every version of every API that is advertised is played once: clients choose the newest that both know."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kip848_client import EmbeddedBroker
from kip848_client.testing.judge.broker.connection import RawConnection
from kip848_client.wire.api_keys import ApiKey
from tests.support.well_formed_requests import ADVERTISED, REFUSED, ROWS, Scene, error_codes


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as running:
        yield running


@pytest.fixture(scope="module")
def scene(broker: EmbeddedBroker) -> Iterator[Scene]:
    arranged = Scene.arrange(broker.bootstrap_servers)
    yield arranged
    arranged.connection.close()


@pytest.fixture
def stranger(broker: EmbeddedBroker) -> Iterator[Scene]:
    arranged = Scene.of_nothing(broker.bootstrap_servers)
    yield arranged
    arranged.connection.close()


def title(case: tuple[int, int]) -> str:
    return f"{ApiKey(case[0]).name}-v{case[1]}"


@pytest.mark.parametrize("case", ADVERTISED, ids=title)
def test_an_advertised_version_answers_a_well_formed_request(
    connection: RawConnection, scene: Scene, case: tuple[int, int]
) -> None:
    """An answer that its version cannot carry closes the connection: such clients connect for ever and read nothing."""
    api_key, version = case
    request = ROWS[api_key](scene, version)
    found = error_codes(connection.ask(request, version=version))
    assert found == REFUSED.get(api_key, set())


@pytest.mark.parametrize("case", ADVERTISED, ids=title)
def test_an_advertised_version_answers_a_request_for_what_does_not_exist(
    stranger: Scene, case: tuple[int, int]
) -> None:
    """An error that its version cannot carry closes the connection, and the client never hears what is wrong."""
    api_key, version = case
    request = ROWS[api_key](stranger, version)
    assert type(stranger.connection.ask(request, version=version)).WIRE.api_key == api_key
