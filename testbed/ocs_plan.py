"""What is executed on parallel OCSes: a demand, a scheduler's plan for it, and the emulation's scale."""

import hashlib
import json
from dataclasses import asdict, dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from controller.devices import LEAST_DELAY_S, Darkness
from controller.schedulers.bounds import makespan_lower_bound
from controller.schedulers.registry import scheduler_named
from controller.schedulers.schedule import Schedule
from controller.schedulers.spectra import spectra
from testbed.dilation import Dilation
from testbed.experiment import Experiment
from topologies.errors import ScenarioError
from topologies.fabric import Fabric
from traffic.circuit_engine import Meeting
from traffic.collective import single
from traffic.demand import Demand

FORMAT_VERSION = 1
LONGEST_S = 5.0
"""How long the lower bound of a demand takes at most at emulated scale, however short its shortest slot."""


@dataclass(frozen=True)
class CircuitExperiment:
    """A demand over parallel OCSes under a scheduler, at a scale; times and rates are real.

    Raises
    ------
    ScenarioError
        If the parts do not fit, or the delay is too short to be emulated.
    """

    fabric: Fabric
    """Servers of one GPU, NIC k of each on OCS k."""
    demand: Demand
    """Bytes between the servers."""
    scheduler: str
    """A name as of `scheduler_named`."""
    darkness: Darkness
    """The OCSes' reconfiguration delay; plans take its mean."""
    dilation: Dilation
    meeting: Meeting = "drain"
    """What senders do before a reconfiguration."""
    seed: int = 0
    """Of the delays that vary, and of the demand, for the tables; the schedulers draw nothing."""
    partial: bool = False
    """Whether circuits that two slots share stay lit between them; in Spectra's model all go dark."""

    def __post_init__(self) -> None:
        """Check that the parts fit."""
        scheduler_named(self.scheduler)
        if self.fabric.impaired:
            raise ScenarioError(
                "the fabric's links have delay or loss, which schedules over OCSes do not reckon with",
                "leave them out (Fabric.with_links(delay_s=0, loss=0))",
            )
        if self.demand.gpus != len(self.fabric.servers) or not self.ocses:
            raise ScenarioError(
                f"a demand between {self.demand.gpus} over {len(self.fabric.servers)} servers and "
                f"{len(self.ocses)} OCSes",
                "give a row and a column per server, and at least one OCS",
            )
        delay_s = self.emulated_darkness.mean_s
        if delay_s < LEAST_DELAY_S:
            volume = LEAST_DELAY_S * self.dilation.rate / self.delay_s if self.delay_s else float("inf")
            raise ScenarioError(
                f"a delay of {self.delay_s:g} s would be {delay_s:.2g} s in the emulation, "
                f"which honours {LEAST_DELAY_S:g} s and more",
                f"a volume dilation of V = {volume * 1.01:.3g} at this rate would do",
            )

    @property
    def ocses(self) -> tuple[str, ...]:
        """The names of the OCSes."""
        return tuple(switch.name for switch in self.fabric.switches if switch.kind == "ocs")

    @property
    def scheme(self) -> str:
        """The scheduler as tables name it, and what senders do before a reconfiguration unless they drain."""
        return self.scheduler if self.meeting == "drain" else f"{self.scheduler}, {self.meeting}"

    @property
    def workload(self) -> str:
        """The demand as tables name it, with the number of OCSes."""
        return workload_on(self.demand, len(self.ocses))

    @cached_property
    def plain(self) -> Experiment:
        """The same as an all-to-all under a scheme: that is what all metrics are written for."""
        demand = Demand(self.workload, off_diagonal(self.demand.matrix), self.demand.note)
        return Experiment(self.fabric, single(demand), self.scheme, self.dilation, self.seed)

    @property
    def rate_bps(self) -> float:
        """The rate of a NIC [bit/s]."""
        return self.fabric.nic_rate_bps(self.fabric.nics[0])

    @property
    def delay_s(self) -> float:
        """The OCSes' reconfiguration delay, its mean where it varies [s]."""
        return self.darkness.mean_s

    @property
    def emulated_darkness(self) -> Darkness:
        """The reconfiguration delay at emulated scale."""
        return self.darkness.scaled(self.dilation.time)

    @property
    def line_s(self) -> NDArray[np.float64]:
        """The demand in seconds at a NIC's rate."""
        line: NDArray[np.float64] = off_diagonal(self.demand.matrix) * 8 / self.rate_bps
        return line

    @cached_property
    def schedule(self) -> Schedule:
        """What the scheduler makes of the demand [real seconds]."""
        return scheduler_named(self.scheduler)(self.line_s, len(self.ocses), self.delay_s)

    @property
    def lower_bound_s(self) -> float:
        """What no schedule beats [real seconds]."""
        return makespan_lower_bound(self.line_s, len(self.ocses), self.delay_s)

    @property
    def key(self) -> str:
        """A short name that equal experiments share."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()[:12]

    def to_json(self) -> str:
        """Return the experiment as JSON that `from_json` reads back."""
        return self._json

    @cached_property  # a run writes it after each of its points
    def _json(self) -> str:
        return json.dumps(
            {
                "format": FORMAT_VERSION,
                "fabric": json.loads(self.fabric.to_json()),
                "demand": {
                    "name": self.demand.name,
                    "note": self.demand.note,
                    "matrix": self.demand.matrix.tolist(),
                },
                "scheduler": self.scheduler,
                "darkness": asdict(self.darkness),
                "dilation": asdict(self.dilation),
                "meeting": self.meeting,
                "seed": self.seed,
                "partial": self.partial,
            }
        )

    @classmethod
    def from_json(cls, text: str) -> "CircuitExperiment":
        """Return the experiment that `to_json` wrote; ScenarioError if the text is something else."""
        try:
            data = json.loads(text)
            demand = data["demand"]
            return cls(
                fabric=Fabric.from_json(json.dumps(data["fabric"])),
                demand=Demand(demand["name"], np.array(demand["matrix"]), demand["note"]),
                scheduler=data["scheduler"],
                darkness=Darkness(**data["darkness"]),
                dilation=Dilation(**data["dilation"]),
                meeting=data["meeting"],
                seed=data["seed"],
                partial=data.get("partial", True),  # before it was recorded, circuits were kept
            )
        except (ValueError, KeyError, TypeError) as error:
            raise ScenarioError(f"the text is no experiment: {error}", "take it from a run.json") from error

    @property
    def emulated_rate_bps(self) -> float:
        """The rate of a NIC at emulated scale [bit/s]."""
        return self.rate_bps * self.dilation.rate


def off_diagonal(matrix: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return a matrix without what servers owe themselves."""
    return np.where(np.eye(len(matrix), dtype=bool), 0, matrix)


def workload_on(demand: Demand, ocses: int) -> str:
    """Return what a demand over parallel OCSes is called: ``benchmark, 2 OCSes``."""
    return f"{demand.name}, {ocses} OCS{'es' if ocses > 1 else ''}"


def dilation_for(
    line_s: NDArray[np.float64], ocses: int, delay_s: float, *, rate: float, slot_s: float
) -> Dilation:
    """Return the dilation at which Spectra's shortest slot lasts ``slot_s``, and the delay can be honoured.

    It is less where the demand's lower bound would take longer than `LONGEST_S`.

    Parameters
    ----------
    line_s
        The demand [real seconds].
    ocses, delay_s
        What it is scheduled on [real seconds].
    rate
        Emulated rate over real rate.
    slot_s
        How long the shortest slot is to be lit [emulated seconds].
    """
    plan = spectra(line_s, ocses, delay_s)
    shortest = min((slot.weight for slots in plan.switches for slot in slots), default=0.0)
    if not shortest > 0:
        raise ScenarioError(f"schedules without a slot for a demand of {line_s.sum():g} s", "send something")
    longest = LONGEST_S / makespan_lower_bound(line_s, ocses, delay_s)
    honoured = 1.001 * LEAST_DELAY_S / delay_s if delay_s else longest  # not at the edge, where it rounds
    return Dilation(rate, min(max(slot_s / shortest, honoured), longest) * rate)
