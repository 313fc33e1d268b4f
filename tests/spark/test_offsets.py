"""What is in a checkpoint: it comes back as it was, equal values give equal text, and foreign ones are refused."""

from __future__ import annotations

import json
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kip848_client.common.model import NamedPartition, OffsetRange
from kip848_client.spark.values.offsets import OffsetFormatError, StreamOffset

partitions = st.builds(NamedPartition, st.sampled_from(["orders", "zahlungen", "a.b"]), st.integers(0, 300))
positions = st.dictionaries(partitions, st.integers(0, 2**62), max_size=6)
offsets = st.builds(
    lambda ends, counts: StreamOffset(
        tuple(OffsetRange(p, end // 2, end) for p, end in sorted(ends.items())),
        ends,
        {p.topic: UUID(int=end) for p, end in ends.items()},
        counts,
    ),
    positions,
    st.dictionaries(st.sampled_from(["orders", "zahlungen"]), st.integers(0, 99)),
)


@given(offsets)
def test_an_offset_survives_a_checkpoint(offset: StreamOffset) -> None:
    """A restart replays exactly the ranges that were planned."""
    assert StreamOffset.from_json(json.loads(json.dumps(offset.to_json()))) == offset


@given(positions)
def test_equal_offsets_have_equal_text(read: dict[NamedPartition, int]) -> None:
    """Spark compares texts to find out whether there is something new."""
    backwards = dict(sorted(read.items(), reverse=True))
    assert json.dumps(StreamOffset(positions=read).to_json()) == json.dumps(StreamOffset(positions=backwards).to_json())


@pytest.mark.parametrize("text", ['{"orders":{"0":23}}', '{"version":2}', '{"version":1,"ranges":5,"positions":{}}'])
def test_an_offset_of_another_source_is_refused(text: str) -> None:
    """The checkpoint of Spark's own Kafka source, of a newer version, or a damaged one."""
    with pytest.raises(OffsetFormatError, match="checkpoint"):
        StreamOffset.from_json(json.loads(text))
