"""An experiment: all that decides a result, as one frozen value."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property

from controller.circuits.devices import ReconfigurationDelay
from controller.circuits.rule import Rule
from testbed.run.agreement import LIMIT
from testbed.run.circuits_registry import CircuitsRule, OwnCircuits, check_value, words_of
from testbed.run.circuits_registry import is_own as is_own_rule
from testbed.run.circuits_rule import bound
from testbed.run.dilation import UNSCALED, Dilation
from testbed.run.experiment_json import ExperimentRecord, experiment_record, record_json
from testbed.run.ocs_plan import OcsPlan, OcsSetup
from testbed.run.own_routing import CheckedRouting
from topologies.errors import ScenarioError
from topologies.fabric import Fabric, Port
from topologies.routing import Routing
from traffic.collectives.pattern import bytes_between
from traffic.communicators import Communicators
from traffic.delegated import Delegated, DelegatedSetup
from traffic.delegation import Lanes
from traffic.effect_json import own_effects
from traffic.faults import AS_IT_WAS, Fault, Revisions, check_faults, moved
from traffic.job import Job
from traffic.job_file import check_own_patterns, own_patterns
from traffic.messages import CHUNK_BYTES
from traffic.own_value import check_hash, class_name, words_of_own
from traffic.packets import DEFAULT_MTU, check_mtu
from traffic.scheme import OnceLit, OverCircuits, Routed, Scheme, Sprayed
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
        or transport, or circuits or revisions are for what is not there.
    """

    fabric: Fabric
    job: Job
    policy: str
    """A scheme's name (`traffic.spraying.registry`); under a schedule a scheduler's
    (`controller.schedulers.registry`), and what tables call messages that circuits alone carry."""
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
    circuits: CircuitsRule | OwnCircuits | None = None
    """Which circuits are lit when; None where a schedule lights them, and over packet switches."""
    revisions: Revisions = AS_IT_WAS
    """What becomes of the job once a fault is known."""
    delegated: DelegatedSetup | None = None
    """How all-to-alls go over the lanes of server pairs; None as any message goes."""
    routing: Routing | None = None
    """By which NIC servers send on that forward between circuits; None by the shortest path."""
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
        self._check_revisions()
        if self.ocs and (self.delegated or self.circuits):
            raise ScenarioError(
                "a schedule of circuits, and all-to-alls over lanes or a rule for circuits",
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
        if self.routing:
            check_hash("routing", self.routing)
            if not self.fabric.servers_forward:
                raise ScenarioError(
                    f"a routing, and servers of {self.fabric.name} do not forward",
                    "take a fabric whose servers do (Fabric(servers_forward=True))",
                )
        if self.circuits:
            check_value(self.circuits)
            self.rule  # noqa: B018  # checks what it is made of

    @cached_property
    def rule(self) -> Rule | None:
        """Which circuits are lit when, bound to the fabric and the job; None over packet switches."""
        if self.ocs:
            return Rule(self.plan.circuits, dict.fromkeys(self.plan.ocses, self.ocs.delay))
        if self.circuits is None:
            return None
        return bound(self.circuits, self.fabric, self.job, self.dilation, self.seed, self.revisions.moves)

    @cached_property
    def bound_routing(self) -> Routing | None:
        """The routing, whose next hops are checked; None by the shortest path."""
        return CheckedRouting(self.routing) if self.routing else None

    @property
    def over_circuits(self) -> bool:
        """Whether circuits alone carry it, beside a schedule's rest, so that there are no links to sample."""
        return bool(self.rule and self.rule.alone)

    @property
    def is_lit_alone(self) -> bool:
        """Whether the circuits of a rule alone carry it, which is no schedule."""
        return bool(self.circuits) and self.over_circuits

    @property
    def ocs_delays(self) -> Mapping[str, ReconfigurationDelay]:
        """How long each OCS that is reconfigured is dark."""
        return self.rule.delays if self.rule else {}

    def _check_revisions(self) -> None:
        names = {fault.name for fault in self.faults}
        if unknown := [each.fault for each in self.revisions.known if each.fault not in names]:
            raise ScenarioError(f"the job is revised by fault {unknown[0]!r}, which is not there")

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
        if self.is_lit_alone and not self.delegated:
            return Routed() if self.fabric.servers_forward else OnceLit()
        if self.ocs and not self.ocs.rest:
            return OverCircuits()
        sprayed = Sprayed(lambda: policy_named(self.spraying), self.seed, self.chunk_bytes)
        if setup := self.delegated:
            return Delegated(
                sprayed if setup.rest else Lanes() if self.over_circuits else None,
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
        if self.is_lit_alone and not setup:
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

    @cached_property
    def whole_job(self) -> Job:
        """The job with all nodes that revisions may add."""
        return replace(self.job, nodes=self.job.nodes + self.revisions.nodes)

    @property
    def own(self) -> list[str]:
        """The names (``module:function`` or ``module:Class``) of what of it is a user's own code."""
        transport, own = self.transport.name, list[object]([self.routing] if self.routing else [])
        if self.circuits and is_own_rule(self.circuits):
            own.append(self.circuits)
        named = [
            self.spraying if is_own(self.spraying) else "",
            self.policy if self.ocs else "",
            "" if congestion_control(transport) else transport,
            *(class_name(type(each)) for each in own),
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
        follows = words_of(self.circuits) if self.circuits else []
        follows += words_of_own(self.routing) if self.routing else []
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
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        record = ExperimentRecord.model_construct(**values)
        return record_json(record)

    @classmethod
    def from_json(cls, text: str) -> "Experiment":
        """Return the experiment that `to_json` wrote; ScenarioError if the text is something else."""
        record = experiment_record(text)
        return cls(**{field.name: getattr(record, field.name) for field in fields(cls)})
