"""The comparison itself, on two embedded brokers: it is quiet when they are alike, and loud when they are not."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from kip848_client import EmbeddedBroker
from kip848_client.testing.broker.config import Profile
from kip848_client.testing.judge.broker.steps import Heartbeat, Step
from tests.interop.differential.conftest import SETTINGS, conversing
from tests.interop.differential.conversation import Disagreement, smallest
from tests.interop.differential.generator import Generator

SEEDS = range(900, 906)


@pytest.mark.parametrize("own_seed", SEEDS)
@pytest.mark.parametrize("profile", ["kafka", "default"])
def test_a_broker_agrees_with_its_like(own_seed: int, profile: Profile, embedded_broker: EmbeddedBroker) -> None:
    """Ids, times and the order of lists are no disagreement; and what is true of one profile is true of the other."""
    with (
        EmbeddedBroker(profile=profile, config=SETTINGS) as other,
        conversing(embedded_broker, other.bootstrap_servers) as conversation,
    ):
        conversation.tell(Generator(own_seed).steps(40))

    assert conversation.step_count > 30


def test_a_sequence_is_the_same_for_the_same_seed() -> None:
    """A seed in a failure is of no use if it leads elsewhere the next time."""
    assert Generator(7).steps(40) == Generator(7).steps(40)
    assert Generator(7).steps(40) != Generator(8).steps(40)


def test_a_disagreement_is_found_and_cut_down_to_what_shows_it(embedded_broker: EmbeddedBroker) -> None:
    """A broker that says another heartbeat interval is caught, and one join is enough to tell."""
    with EmbeddedBroker(profile="kafka", config={**SETTINGS, "group.consumer.heartbeat.interval.ms": 101}) as other:

        def disagreement(some: Sequence[Step]) -> Disagreement | None:
            with conversing(embedded_broker, other.bootstrap_servers) as conversation:
                try:
                    conversation.tell(some)
                except Disagreement as error:
                    return error
            return None

        found = smallest(Generator(1).steps(40), disagreement, budget_s=10.0)

    assert found is not None
    assert isinstance(found.step, Heartbeat)
    assert found.index == 0
    assert "heartbeat_interval_ms: ours 100, Kafka 101" in str(found)
