"""The bench of Spectra: what its figures make of the times of plans."""

import pytest

from scenarios._spectra import bench
from traffic.workloads.ocs_workloads import Matrix


def test_run_time_is_the_longest_mean_over_the_paper_s(monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan takes 0.1 ms a port: the benchmark has 100 of them, a GPT 32."""
    now_s = 0.0

    def planned(demand: Matrix, _switches: int, _delay: float) -> None:
        nonlocal now_s
        now_s += 1e-4 * len(demand)

    monkeypatch.setattr(bench, "spectra", planned)
    monkeypatch.setattr(bench, "process_time", lambda: now_s)
    monkeypatch.setattr(bench, "RUNS", 2)
    value, said = bench.planning_over_papers()
    assert value == pytest.approx(10 / 14)
    assert said.startswith("3.20 to 10.0 ms, 79 datapoints, the longest benchmark, ")
    assert said.endswith("the paper has under 1 to 14 ms, on a 3.7 GHz AMD Ryzen Threadripper 3970X")
