"""What waits in Kafka is told beside sources whose offsets are anything at all."""

from __future__ import annotations

import pytest

from ferryman._engine.kafka_lag import lag_by_source, rows_behind


@pytest.mark.parametrize("offset", ["{no JSON", "7", None, 7, {"t": 7}, {"t": {"0": "7"}}, ["t"]])
def test_a_source_with_strange_offsets_says_nothing_and_keeps_no_other_from_it(offset: object) -> None:
    strange = {"description": "Theirs[x]", "endOffset": offset, "latestOffset": offset}
    kafka = {"description": "KafkaV2[Subscribe[t]]", "endOffset": {"t": {"0": 5}}, "latestOffset": {"t": {"0": 9}}}
    progress = {"sources": [strange, kafka]}
    assert lag_by_source(progress, ["theirs", "orders"]) == {"orders": {"t-0": 4}}
    assert rows_behind(progress) is None
