"""An experiment: all that decides a result, as one frozen value."""

import hashlib
from dataclasses import dataclass, replace
from functools import cached_property

from controller.circuits.devices import ReconfigurationDelay
from controller.circuits.foreseen import Foreseen
from controller.circuits.planned import Planned
from controller.circuits.regional import Regional
from testbed.run.agreement import LIMIT
from testbed.run.dilation import UNSCALED, Dilation
from testbed.run.experiment_json import ExperimentRecord, experiment_record, record_json
from testbed.run.ocs_plan import OcsPlan, OcsSetup
from testbed.run.region_plan import DelegatedSetup, RegionalSetup, RegionPlan
from topologies.errors import ScenarioError
from topologies.fabric import Fabric, Port
from traffic.collectives.pattern import bytes_between
from traffic.communicators import Communicators
from traffic.delegated import Delegated
from traffic.delegation import Lanes
from traffic.effect_json import own_effects
from traffic.faults import AS_IT_WAS, Fault, Revisions, check_faults, moved
from traffic.job import Job
from traffic.job_file import check_own_patterns, own_patterns
from traffic.messages import CHUNK_BYTES
from traffic.packets import DEFAULT_MTU, check_mtu
from traffic.scheme import OnceLit, OverCircuits, Scheme, Sprayed
from traffic.spraying.policy import ReactivePolicy
from traffic.spraying.registry import is_own, policy_named
from traffic.transports.host_settings import CREDIT, HostSettings, TransportSetup, host_settings
from traffic.transports.registry import DATAGRAMS, congestion_control, transport_named


@dataclass(frozen=True)
class Experiment:
    """A job over a fabric under a policy, at a scale.

    Raises
    ------
    ScenarioError
        If the job is for more GPUs than the fabric has, or does not fit its OCSes, or there is no such MTU
        or transport, or circuits or revisions are foreseen for what is not there.
    """

    fabric: Fabric
    job: Job
    policy: str
    """A scheme's name (`traffic.spraying.registry`); over OCSes a scheduler's
    (`controller.schedulers.registry`), and what foreseen circuits are called."""
    dilation: Dilation = UNSCALED
    """Its scale; by default it is emulated at one that the machine carries."""
    seed: int = 0
    """Decides all that is random in the policy and in varying delays; the job has its own."""
    chunk_bytes: int = CHUNK_BYTES
    """A message's atomic piece at real scale [bytes]."""
    ocs: OcsSetup | None = None
    """How the OCSes are reconfigured by a schedule; None over packet switches."""
    label: str = ""
    """What tables call it instead of its policy."""
    transport: TransportSetup = CREDIT
    """What moves bytes over packet switches; over circuits datagrams do."""
    mtu: int = DEFAULT_MTU
    """Of the emulation's links, at no scale [bytes]: packets are not dilated."""
    faults: tuple[Fault, ...] = ()
    """What fails."""
    foreseen: Foreseen | None = None
    """Circuits that are lit from the start, over which messages go directly unless all-to-alls are delegated,
    and what faults change of them; None where a schedule lights them, and over packet switches."""
    revisions: Revisions = AS_IT_WAS
    """What becomes of the job once a fault is known."""
    delegated: DelegatedSetup | None = None
    """How all-to-alls go over the lanes of server pairs; None as any message goes."""
    regional: RegionalSetup | None = None
    """When the circuits of regions change; None if they have none, or a schedule has them."""
    shared_queue_pairs: bool = False
    """Whether all communicators share queue pairs, instead of having their own."""

    def __post_init__(self) -> None:
        """Check that the parts fit."""
        check_faults(self.faults, self.fabric)
        transport_named(self.transport.name)
        check_mtu(self.mtu)
        if not any(node.gpus for node in self.job.nodes):
            raise ScenarioError(f"no node of job {self.job.name!r} has a GPU", "give one of them some")
        check_own_patterns((*self.job.nodes, *self.revisions.nodes))
        self._check_foreseen()
        if (self.ocs and self.delegated) or (self.regional and (self.ocs or self.foreseen)):
            raise ScenarioError(
                "a schedule of circuits, and all-to-alls over lanes or circuits that follow the job",
                "give one of the two",
            )
        self._check_moves()
        if self.ocs:
            self.plan  # noqa: B018  # checks what it is made of
            return
        if self.job.gpus > self.fabric.gpus:
            raise ScenarioError(
                f"the job is for {self.job.gpus} GPUs, the fabric has {self.fabric.gpus}",
                "take a larger fabric, or a smaller job",
            )
        if self.regional:
            self.regions  # noqa: B018  # checks what it is made of

    @cached_property
    def regions(self) -> RegionPlan:
        """When the circuits of regions change; ScenarioError if nothing says so."""
        if self.regional is None:
            raise ScenarioError(f"{self.scheme_name} has no circuits that follow the job")
        moves = self.revisions.moves
        return RegionPlan(self.fabric, self.job, self.regional, self.dilation, self.seed, moves)

    @property
    def over_circuits(self) -> bool:
        """Whether circuits that were decided before carry it, so that there are no links to sample."""
        return bool(self.ocs or self.foreseen)

    @property
    def ocs_delays(self) -> dict[str, ReconfigurationDelay]:
        """How long each OCS that is reconfigured is dark."""
        if self.ocs:
            return dict.fromkeys(self.plan.ocses, self.ocs.delay)
        if self.foreseen:
            names = [switch.name for switch in self.fabric.switches if switch.kind == "ocs"]
            return dict.fromkeys(names, self.foreseen.delay)
        return dict.fromkeys(self.regions.turns, self.regional.delay) if self.regional else {}

    def _check_foreseen(self) -> None:
        names = {fault.name for fault in self.faults}
        if unknown := [each.fault for each in self.revisions.known if each.fault not in names]:
            raise ScenarioError(f"the job is revised by fault {unknown[0]!r}, which is not there")
        if self.foreseen is None:
            return
        if self.ocs:
            raise ScenarioError("circuits are planned by a schedule, and foreseen", "leave out the one")
        self.foreseen.check(self.fabric)
        if self.dilation != UNSCALED and not self.foreseen.stays:
            self.foreseen.check_scale(self.dilation.time)

    def _check_moves(self) -> None:
        """Check that who takes the place of GPUs is idle, and that all-to-alls over lanes lack no GPU."""
        moves = self.revisions.moves
        if not moves and not (self.delegated and self.gone):
            return
        job = replace(self.job, gpus=max(self.job.gpus, self.fabric.gpus))
        for fault in self.faults:
            own = moves.get(fault.name, ())
            if stays := [gpu for gpu, _ in own if gpu not in fault.gpus]:
                raise ScenarioError(f"GPU {stays[0]} is moved by fault {fault.name!r}, which leaves it alone")
            job = moved(job, own)
        lacking = {gpu for node in job.nodes for gpu in node.gpus} & self.gone
        if self.delegated and lacking:
            raise ScenarioError(
                f"GPU {min(lacking)} is gone for good, and all-to-alls over lanes go on with all of theirs",
                "let another GPU take its place (`Revisions`), or a circuit NIC fail",
            )

    @cached_property
    def plan(self) -> OcsPlan:
        """What the scheduler makes of the demand; ScenarioError without OCSes."""
        if self.ocs is None:
            raise ScenarioError(f"{self.policy} over packet switches has no schedule")
        if len(self.job.collectives) != 1:
            raise ScenarioError(
                f"job {self.job.name!r} has {len(self.job.collectives)} collectives, a schedule is of one",
                "give a job of one collective",
            )
        demand = bytes_between(self.job.collectives[0].pattern, self.job.gpus)
        return OcsPlan(self.fabric, demand, self.policy, self.ocs, self.dilation)

    @property
    def scheme(self) -> Scheme:
        """What places messages on queue pairs, the same for both backends; made anew for each run."""
        if self.foreseen and not self.delegated:
            return OnceLit()
        if self.ocs and not self.ocs.rest:
            return OverCircuits()
        sprayed = Sprayed(lambda: policy_named(self.spraying), self.seed, self.chunk_bytes)
        if setup := self.delegated:
            return Delegated(
                sprayed if setup.rest else Lanes() if self.foreseen else None,
                pipelined=setup.pipelined,
                spill=setup.spill,
                two_hops=setup.two_hops,
            )
        return OverCircuits(sprayed) if self.ocs else sprayed

    @property
    def communicators(self) -> Communicators:
        """The numbers of the job's communicators; new for each run."""
        return Communicators(self.whole_job, shared=self.shared_queue_pairs)

    @property
    def spraying(self) -> str:
        """The name of what sprays over packet switches; empty if nothing does."""
        setup = self.ocs or self.delegated
        if self.foreseen and not setup:
            return ""
        return setup.rest if setup else self.policy

    @property
    def predicted_as(self) -> str:
        """What is predicted: what is placed, or the fluid limit of a scheme that chooses as it goes."""
        spraying = self.spraying
        is_limit = bool(spraying) and isinstance(policy_named(spraying), ReactivePolicy)
        return LIMIT if is_limit else "placed"

    @property
    def transport_name(self) -> str:
        """The transport as tables name it."""
        if not self.ocs:
            return self.transport.name
        return f"{DATAGRAMS}, {self.transport.name}" if self.ocs.rest else DATAGRAMS

    @property
    def host(self) -> HostSettings:
        """What the hosts' TCP is set to."""
        scale = self.dilation
        return host_settings(self.transport, self.fabric, scale.rate, scale.time, self.mtu)

    @property
    def circuits(self) -> Planned | Foreseen | Regional | None:
        """What decides which circuits are lit, if there are any."""
        if self.ocs:
            return self.plan.circuits
        return self.regions.circuits if self.regional else self.foreseen

    @cached_property
    def whole_job(self) -> Job:
        """The job with all nodes that revisions may add."""
        return replace(self.job, nodes=self.job.nodes + self.revisions.nodes)

    @property
    def own(self) -> list[str]:
        """The names (``module:function`` or ``module:Class``) of what of it is a user's own code."""
        transport = self.transport.name
        named = [
            self.spraying if is_own(self.spraying) else "",
            self.policy if self.ocs else "",
            "" if congestion_control(transport) else transport,
        ]
        patterns = own_patterns((*self.job.nodes, *self.revisions.nodes))
        effects = own_effects(effect for fault in self.faults for effect in fault.effects)
        return [*(name for name in named if ":" in name), *patterns, *effects]

    @cached_property  # a user's own scheme is imported to be asked for its name
    def scheme_name(self) -> str:
        """The policy as tables name it, with what is not as usual: what senders do before the dark, say.

        Or its label, with faults.
        """
        meets = [self.ocs.meeting] if self.ocs and self.ocs.meeting != "drain" else []
        follows = [self.regional.first] if self.regional else []
        legs = self.delegated.words if self.delegated else []
        policy = (
            policy_named(self.policy).name
            if ":" in self.policy and self.policy == self.spraying
            else self.policy
        )
        shared = ["shared queue pairs"] if self.shared_queue_pairs else []
        words = [self.label] if self.label else [policy, *meets, *legs, *follows, *shared]
        return ", ".join([*words, *(fault.name for fault in self.faults)])

    @property
    def failing(self) -> frozenset[Port]:
        """The ports at both ends of the links that faults change: what is lost there is theirs."""
        return self.fabric.both_ends(port for fault in self.faults for port in fault.links)

    @property
    def gone(self) -> frozenset[int]:
        """The GPUs that faults take along."""
        return frozenset(gpu for fault in self.faults for gpu in fault.gpus)

    @property
    def key(self) -> str:
        """A short name that equal experiments share."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()[:12]

    def to_json(self) -> str:
        """Return the experiment as JSON that `from_json` reads back.

        Raises
        ------
        DemandError
            If a pattern of the user's own cannot be written down.
        ScenarioError
            If an effect of theirs cannot.
        """
        return self._json

    @cached_property  # a run writes it after each of its points
    def _json(self) -> str:
        record = ExperimentRecord(
            fabric=self.fabric,
            job=self.job,
            policy=self.policy,
            dilation=self.dilation,
            seed=self.seed,
            chunk_bytes=self.chunk_bytes,
            ocs=self.ocs,
            label=self.label,
            transport=self.transport,
            mtu=self.mtu,
            faults=self.faults,
            foreseen=self.foreseen,
            revisions=self.revisions,
            delegated=self.delegated,
            regional=self.regional,
            shared_queue_pairs=self.shared_queue_pairs,
        )
        return record_json(record)

    @classmethod
    def from_json(cls, text: str) -> "Experiment":
        """Return the experiment that `to_json` wrote; ScenarioError if the text is something else."""
        record = experiment_record(text)
        return cls(
            record.fabric,
            record.job,
            record.policy,
            record.dilation,
            record.seed,
            record.chunk_bytes,
            record.ocs,
            record.label,
            record.transport,
            record.mtu,
            record.faults,
            record.foreseen,
            record.revisions,
            record.delegated,
            record.regional,
            record.shared_queue_pairs,
        )
