"""Memory of a prediction in which all-to-alls are gathered and scattered inside servers."""

from scenarios._bench.memory import WITHIN, estimated_over_measured


def test_what_was_estimated_of_a_delegated_all_to_all_is_what_it_takes() -> None:
    assert 1 / WITHIN < estimated_over_measured("mfabric all to all") < WITHIN
