"""What epochs need of a session is set beside what the session has."""

from __future__ import annotations

from ferryman._spark.plan.epoch_settings import EpochSettings

EXCLUDED = "spark.sql.optimizer.excludedRules"


def test_rules_that_the_session_leaves_out_by_itself_stay_left_out(spark):
    session = spark.newSession()
    own = "org.apache.spark.sql.catalyst.optimizer.ConvertToLocalRelation"
    session.conf.set(EXCLUDED, own)
    for _ in range(2):
        EpochSettings().give(session, {})
    rules = session.conf.get(EXCLUDED).split(",")
    assert own in rules
    assert len(set(rules)) == len(rules) == 3
