"""Time added to the CCT by faults, emulated over predicted: over packets (several schemes) and over OCSes."""

import statistics
from dataclasses import replace
from itertools import groupby

from controller.circuits.devices import ReconfigurationDelay
from scenarios._bench.figure import figure
from testbed.experiment.dilation import UNSCALED, Dilation
from testbed.experiment.experiment import Experiment
from testbed.experiment.ocs_plan import Scheduled, dilation_for, over_ocses
from testbed.model.predict import predict
from testbed.network.network import Network
from testbed.trust.calibrate import volume_factor
from testbed.trust.outcome import bound_s
from testbed.trust.trial import tried
from topologies.parallel_ocs import parallel_ocs_fabric
from topologies.rail import rail_fabric
from traffic.fault_text import WrittenFault
from traffic.scheme_setup import WHILE_LIT
from traffic.steps import single
from traffic.transports.host_settings import TransportSetup
from traffic.workloads.ocs_workloads import ocs_demand
from traffic.workloads.synthetic import uniform

CASES = (
    ("rails", "nic:3:1@40%"),
    ("rails", "nic:3:1@40%-70%"),
    ("rails", "switches@40%-70%"),
    ("reps", "nic:3:1@40%"),
    ("ecmp", "link:leaf0-spine1@40%"),
    ("spectra", "port:ocs0:3@40%"),
)
FABRIC = rail_fabric(4, 4)
RATE = 2e-4
"""100 Gbit/s is 20 Mbit/s: little for the machine, so that faults are all there is to see."""
RUNS = 3
DETECT = 0.02
"""After so much of the prediction a fault is known."""
SERVERS, LINE_BYTES, DELAY_S, SLOT_S = 6, 1e9, 1e-3, 0.1


@figure("ratio", "0.85 .. 1.20")
def fault_added() -> tuple[float, str]:
    """Time that a fault adds, emulated over predicted: medians of 3, the one furthest from 1."""
    added = {}
    for scheme, cases in groupby(CASES, key=lambda case: case[0]):
        healthy = _over_circuits() if scheme == "spectra" else _over_packets(scheme)
        with Network(healthy.fabric, healthy.dilation.rate, host=healthy.host) as network:
            for _, text in cases:
                added[f"{scheme} {text}"] = statistics.median(
                    _added(healthy, text, network) for _ in range(RUNS)
                )
    worst = max(added.values(), key=lambda ratio: abs(ratio - 1))
    return worst, ", ".join(f"{name} {ratio:.2f}" for name, ratio in added.items())


def _added(healthy: Experiment, text: str, network: Network) -> float:
    took_s = predict(healthy).iteration_s
    fault = WrittenFault(text).over(healthy.fabric, took_s, DETECT * took_s)
    before, after = (tried(each, network) for each in (healthy, replace(healthy, faults=(fault,))))
    return (after.cct_s - before.cct_s) / (after.predicted_s - before.predicted_s)


def _over_packets(scheme: str) -> Experiment:
    """Return a uniform all-to-all under credits."""
    job = single(uniform(FABRIC.gpus))
    level = Experiment(FABRIC, job, scheme, UNSCALED, transport=TransportSetup("credit"))
    return replace(level, dilation=Dilation(RATE, volume_factor(RATE, [bound_s(level)])))


def _over_circuits() -> Experiment:
    """Return Spectra's schedule for the benchmark's demand over two OCSes."""
    fabric = parallel_ocs_fabric(SERVERS, 2)
    demand = ocs_demand("benchmark", 0, SERVERS, LINE_BYTES)
    line_s = demand.matrix * 8 / fabric.nic_rate_bps(fabric.nics[0])
    dilation = dilation_for(line_s, 2, DELAY_S, rate=RATE, slot_s=SLOT_S)
    circuits = Scheduled("spectra", ReconfigurationDelay("delay", DELAY_S))
    return Experiment(fabric, over_ocses(demand, 2), WHILE_LIT, dilation, circuits=circuits)
