"""Did you mean."""

from rims_rl.common.suggestions import did_you_mean


def test_close_names_are_suggested_and_far_ones_are_not():
    assert did_you_mean("Enocder", ["encoder", "core"], "none") == "did you mean encoder?"
    assert did_you_mean("pongg", ["Pong", "Pong2", "Boxing"], "none", count=3) == "did you mean Pong or Pong2?"
    assert did_you_mean("zebra", ["encoder", "core"], "write a part") == "write a part"
