"""The embedded broker against Apache Kafka: the same requests to both, and answers that agree field by field.

The sequences come from seeds (see conftest.py). A failure prints the seed and the smallest conversation that shows the
disagreement; what may differ is written down in docs/differences.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pytest

from kip848_client.testing.judge.broker.steps import Step
from tests.interop.differential.conftest import Converse
from tests.interop.differential.conversation import Disagreement, smallest
from tests.interop.differential.generator import Generator

STEP_COUNT: Final = 40
SHRINK_BUDGET_S: Final = 20.0


@pytest.mark.interop
@pytest.mark.kafka
def test_both_brokers_answer_alike(seed: int, converse: Converse) -> None:
    """A user's test that passes against the embedded broker must be true of Kafka in production."""
    steps = Generator(seed).steps(STEP_COUNT)

    def disagreement(some: Sequence[Step]) -> Disagreement | None:
        with converse() as conversation:
            try:
                conversation.tell(some)
            except Disagreement as error:
                return error
        return None

    found = disagreement(steps)
    if found is not None:
        smaller = smallest(steps, disagreement, budget_s=SHRINK_BUDGET_S)
        pytest.fail(
            f"again: KIP848_DIFFERENTIAL_SEEDS={seed}; disagreement at step {found.index + 1}"
            f"{' (the smallest part that shows it:)' if smaller else ' (not seen when told again)'}\n"
            f"{smaller or found}",
            pytrace=False,
        )
