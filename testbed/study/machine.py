"""What this machine carries, for the scale of an emulation; measured in a worker where nothing is kept."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from testbed.machine.datapath import Datapath, bridges
from testbed.study.output import say
from testbed.study.study import Options, Study
from testbed.study.worker import EmulationWorker
from testbed.trust.calibrate import CALIBRATIONS, Calibration
from testbed.trust.dark_excess import DARK_EXCESSES, DarkExcess
from topologies.fabric import Fabric
from traffic.compiled import advice


@dataclass(frozen=True)
class Machine:
    """What was measured of this machine."""

    calibration: Calibration
    excess: DarkExcess | None
    """How much longer than their devices its OCSes are dark; None where nobody asked."""

    def told(self) -> "Machine":
        """Say how old it is, and what would have it carry more; return it."""
        now = datetime.now(UTC)
        say(self.calibration.sentence(now))
        if self.excess:
            say(self.excess.sentence(now))
        if mended := advice():
            say(mended)
        return self


def weakest(machines: Sequence[Machine]) -> Machine:
    """Return what each of some machines carries."""
    calibrations = [each.calibration for each in machines]
    late = [each.excess for each in machines if each.excess]
    return Machine(
        min(calibrations, key=lambda each: each.safe_packets_s),
        max(late, key=lambda each: each.p99_s(1), default=None),
    )


def worker_for(fabrics: Iterable[Fabric], options: Options, *, terminal: bool = False) -> EmulationWorker:
    """Return a worker, to be entered, that is to boot some fabrics."""
    bridged = any(bridges(fabric, options.datapath) for fabric in fabrics)
    return EmulationWorker(
        sandbox=not options.no_sandbox, waits=not options.no_wait, terminal=terminal, bridged=bridged
    )


def machine_for(study: Study, options: Options) -> Machine:
    """Return what this machine carries; how long its OCSes are dark only where a study needs it."""
    datapath = options.datapath
    known = CALIBRATIONS.has(datapath) and (DARK_EXCESSES.has(datapath) or not study.waits_for_light)
    if known and not options.calibrate:
        (machine,) = measured(datapath, study.waits_for_light, anew=False)
        return machine
    with worker_for(study.fabrics, options) as worker:
        return machine_by(worker, study, options)


def machine_by(worker: EmulationWorker, study: Study, options: Options) -> Machine:
    """Return what this machine carries, as of `machine_for`, by a worker that is there."""
    (machine,) = worker.call(measured, options.datapath, study.waits_for_light, options.calibrate)
    return machine


def measured(datapath: Datapath, relights: bool, anew: bool) -> Iterator[Machine]:
    """Yield what this machine carries, measured now where that is not kept, or in any case."""
    taken = CALIBRATIONS.of(datapath, anew=anew)
    yield Machine(taken, DARK_EXCESSES.of(datapath, anew=anew) if relights else None)
