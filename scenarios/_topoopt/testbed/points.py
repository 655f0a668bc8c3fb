"""TopoOpt's testbed of 12 servers: what is run on it, as experiments (section 6).

Three fabrics: d interfaces of rate B on a patch panel, one link of d B a server to a switch, and one of B. On
each a model trains for an iteration. On the panel alone there are two more AllReduces, of circuits' own
rings and of rings whose every hop is relayed by one server.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from controller.schedulers.topoopt import Plan
from controller.schedulers.totient import ring_over
from scenarios._topoopt.experiments import Trained, data_parallel, over_panel, plan_for
from testbed.experiment.experiment import Experiment
from topologies.big_switch import big_switch_fabric
from traffic.collectives.ring import Ring
from traffic.job import Collective, Job
from traffic.models.topoopt import TESTBED, layered_model

SERVERS = 12
MODELS = ("resnet50", "vgg16", "bert", "candle", "dlrm", "ncf")
SUMMED = ("resnet50", "vgg16", "bert", "candle")
"""Those whose bytes are AllReduces alone."""
DIRECT, RELAYED = "ring, direct", "rings, one relay"
RING_BYTES = 400_000_000


@dataclass(frozen=True)
class Prototype:
    """The prototype of 12 servers, as far as a run chooses it."""

    degree: int = 4
    """d."""
    rate_bps: float = 25e9
    """B."""
    buckets: int = 1
    """Parts in which gradients are summed, at most: more overlap the backward, and take longer to emulate."""
    seed: int = 0

    @property
    def full_name(self) -> str:
        """The switch that has all of a server's bandwidth, as tables name it."""
        return f"switch {self.degree * self.rate_bps / 1e9:g}G"

    @property
    def single_name(self) -> str:
        """The switch to which a server has one interface."""
        return f"switch {self.rate_bps / 1e9:g}G"


def trained_on(prototype: Prototype, model: str, batch: int | None = None) -> Trained:
    """Return a model of section 6 as the testbed trains it."""
    layered = layered_model(model, section=TESTBED, batch=batch)
    named = replace(layered, name=f"{model}, batch {layered.batch}")
    return data_parallel(named, bucket_bytes=-(-layered.gradient_bytes // prototype.buckets))


def iteration_experiments(prototype: Prototype, trained: Trained) -> Sequence[Experiment]:
    """Return an iteration over both switches and the panel."""
    switches = {
        name: big_switch_fabric(SERVERS, gpus=1, rate_bps=nics * prototype.rate_bps)
        for name, nics in ((prototype.full_name, prototype.degree), (prototype.single_name, 1))
    }
    plan = plan_for(trained, prototype.degree)
    return [
        *(
            Experiment(switch, trained.job(), "ecmp", seed=prototype.seed, label=name)
            for name, switch in switches.items()
        ),
        over_panel(trained, plan, prototype.rate_bps, seed=prototype.seed),
    ]


def ring_experiments(prototype: Prototype, like: Experiment, plan: Plan) -> Sequence[Experiment]:
    """Return AllReduces over a plan's own rings, and over two groups' rings that skip every second server."""
    every, halves = range(SERVERS), [range(first, SERVERS, 2) for first in (0, 1)]
    rings = {
        DIRECT: [plan.rings_of(every)],
        RELAYED: [tuple(ring_over(half, step) for step in (1, len(half) - 1)) for half in halves],
    }
    return [
        replace(
            like,
            job=Job(
                name,
                SERVERS,
                tuple(
                    Collective(f"all-reduce {number}", Ring(group, RING_BYTES))
                    for number, group in enumerate(groups)
                ),
                "a ring of each direction, of each coin" if name == DIRECT else "of two groups of 6 servers",
            ),
        )
        for name, groups in rings.items()
    ]
