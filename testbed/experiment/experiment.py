"""An experiment: all that decides a result, as one frozen value."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial

from controller.circuits.devices import ReconfigurationDelay
from controller.circuits.rule import Rule
from controller.packet.flow_table import Hashing
from testbed.experiment.circuits_registry import CircuitsRule, OwnCircuits, check_value, own_names, words_of
from testbed.experiment.circuits_rule import bound
from testbed.experiment.dilation import UNSCALED, Dilation
from testbed.experiment.experiment_json import fields_of, parts_of, text_of
from topologies.errors import ScenarioError
from topologies.fabric import Fabric, Port
from topologies.own_routing import CheckedRouting
from topologies.own_value import check_hash, class_name, words_of_own
from topologies.routing import Routing
from traffic.communicators import Communicators
from traffic.effect_json import own_effects
from traffic.faults import AS_IT_WAS, Fault, Revisions, check_faults, moved
from traffic.job import Job
from traffic.job_file import check_own_patterns, own_patterns
from traffic.messages import CHUNK_BYTES
from traffic.packets import DEFAULT_MTU, check_mtu
from traffic.scheme import Scheme, Sprayed
from traffic.scheme_setup import (
    BY_LIGHT,
    SCHEME,
    WHILE_LIT,
    SchemeSetup,
    WhileLitSetup,
    check_over_circuits,
    needs_all_gpus,
)
from traffic.spraying.policy import ReactivePolicy
from traffic.spraying.registry import is_own, policy_named
from traffic.transports.host_settings import CREDIT, HostSettings, TransportSetup, host_settings
from traffic.transports.registry import DATAGRAMS, check_transport, congestion_control
from traffic.transports.slots import LEAST_MARGINS

MOST_SEED = 1 << 63
"""Tables have room for those below."""


LIMIT = "fluid limit"
"""What a prediction is of a scheme that chooses as it goes: what it tends to with tiny chunks."""


@dataclass(frozen=True)
class Experiment:
    """A job over a fabric under a scheme, with circuits or without, at a scale.

    Raises
    ------
    ScenarioError
        If the job is for more GPUs than the fabric has, or does not fit its OCSes, or there is no such MTU,
        seed or transport, or circuits or revisions are for what is not there.
    """

    fabric: Fabric
    job: Job
    scheme: str | SchemeSetup
    """The name of a spraying policy over packets (`traffic.spraying.registry`), or of what goes over circuits
    alone (`traffic.scheme_setup.BY_LIGHT`); or a scheme with settings."""
    dilation: Dilation = UNSCALED
    """Its scale; by default it is emulated at one that the machine carries."""
    seed: int = 0
    """Decides all that is random in the scheme and in varying delays; the job has its own."""
    chunk_bytes: int = CHUNK_BYTES
    """A message's atomic piece at real scale [bytes]."""
    label: str = ""
    """What tables call it instead of its scheme."""
    transport: TransportSetup = CREDIT
    """What moves bytes over packet switches; over circuits datagrams do."""
    mtu: int = DEFAULT_MTU
    """Of the emulation's links, at no scale [bytes]: packets are not dilated."""
    faults: tuple[Fault, ...] = ()
    """What fails."""
    circuits: CircuitsRule | OwnCircuits | None = None
    """Which circuits are lit when; None over packet switches."""
    revisions: Revisions = AS_IT_WAS
    """What becomes of the job once a fault is known."""
    routing: Routing | None = None
    """By which NIC servers send on that forward between circuits, and by which port packet switches; None by
    the shortest path."""
    shared_queue_pairs: bool = False
    """Whether all communicators share queue pairs, instead of having their own."""
    hashing: Hashing = "openvswitch"
    """Whose hash chooses among links that lead the same way; a study takes that of its datapath."""

    def __post_init__(self) -> None:
        """Check that the parts fit."""
        check_faults(self.faults, self.fabric)
        check_transport(self.transport.name)
        check_mtu(self.mtu)
        if not 0 <= self.seed < MOST_SEED:
            raise ScenarioError(f"a seed of {self.seed}", f"give one from 0 to below {MOST_SEED}")
        if self.chunk_bytes < 1:
            raise ScenarioError(f"chunks of {self.chunk_bytes} bytes", "give 1 or more")
        if not any(node.gpus for node in self.job.nodes):
            raise ScenarioError(f"no node of job {self.job.name!r} has a GPU", "give one of them some")
        check_own_patterns((*self.job.nodes, *self.revisions.nodes))
        self._check_revisions()
        self._check_moves()
        if self.job.gpus > self.fabric.gpus:
            raise ScenarioError(
                f"the job is for {self.job.gpus} GPUs, the fabric has {self.fabric.gpus}",
                "take a larger fabric, or a smaller job",
            )
        if self.routing:
            check_hash("routing", self.routing)
            has_switches = any(switch.kind == "packet" for switch in self.fabric.switches)
            if not (self.fabric.servers_forward or has_switches):
                raise ScenarioError(
                    f"a routing, and neither servers nor switches of {self.fabric.name} forward packets",
                    "take a fabric with packet switches, or one whose servers do (servers_forward=True)",
                )
        if self.circuits:
            check_value(self.circuits)
        if not isinstance(self.scheme, str | SchemeSetup):
            raise ScenarioError(f"{self.scheme!r} is not a scheme", "give a name, or one with settings")
        check_over_circuits(self.scheme, self.rule.carries if self.rule else "")
        if self.rule and self.rule.leaves and not self.spraying:
            raise ScenarioError(
                f"{self.circuits_name} leaves bytes to the packet NICs, and {self.scheme_name} has no rest",
                "give one, as in WhileLitSetup(rest='ecmp'), or take a fabric without packet NICs",
            )

    def __getstate__(self) -> dict[str, object]:
        """Return what is sent of it: its parts, and nothing that is made of them."""
        return fields_of(self)

    @cached_property
    def rule(self) -> Rule | None:
        """Which circuits are lit when, bound to the fabric and the job; None over packet switches."""
        if self.circuits is None:
            return None
        return bound(self.circuits, self.fabric, self.job, self.dilation, self.seed, self.revisions.moves)

    @cached_property
    def bound_routing(self) -> CheckedRouting | None:
        """The routing, whose next hops are checked; None by the shortest path."""
        return CheckedRouting(self.routing) if self.routing else None

    @property
    def over_circuits(self) -> bool:
        """Whether circuits alone carry it, beside a scheme's rest, so that there are no links to sample."""
        return bool(self.rule and self.rule.is_alone)

    @property
    def is_once_lit(self) -> bool:
        """Whether circuits alone carry it, over connections."""
        return bool(self.rule and self.rule.carries == "once lit")

    @property
    def has_slots(self) -> bool:
        """Whether datagrams go over whichever circuit is lit, in slots."""
        return bool(self.rule and self.rule.carries == "while lit")

    @property
    def ocs_delays(self) -> Mapping[str, ReconfigurationDelay]:
        """How long each OCS that is reconfigured is dark."""
        return self.rule.delays if self.rule else {}

    def _check_revisions(self) -> None:
        names = {fault.name for fault in self.faults}
        if unknown := [each.fault for each in self.revisions.known if each.fault not in names]:
            raise ScenarioError(f"the job is revised by fault {unknown[0]!r}, which is not there")

    def _check_moves(self) -> None:
        """Check that who takes the place of GPUs is idle, and that a scheme lacks no GPU that it needs."""
        moves = self.revisions.moves
        needs_all = needs_all_gpus(self.scheme)
        if not moves and not (needs_all and self.gone):
            return
        job = replace(self.job, gpus=max(self.job.gpus, self.fabric.gpus))
        for fault in self.faults:
            own = moves.get(fault.name, ())
            if stays := [gpu for gpu, _ in own if gpu not in fault.gpus]:
                raise ScenarioError(f"GPU {stays[0]} is moved by fault {fault.name!r}, which leaves it alone")
            job = moved(job, own)
        lacking = {gpu for node in job.nodes for gpu in node.gpus} & self.gone
        if needs_all and lacking:
            raise ScenarioError(
                f"GPU {min(lacking)} is gone for good, and its scheme needs all GPUs of a collective",
                "let another GPU take its place (`Revisions`), or a circuit NIC fail",
            )

    @property
    def setup(self) -> SchemeSetup | None:
        """The scheme's settings, if it has any."""
        return None if isinstance(self.scheme, str) else self.scheme

    @property
    def sending(self) -> WhileLitSetup:
        """How datagrams over circuits are sent."""
        return self.scheme if isinstance(self.scheme, WhileLitSetup) else WHILE_LIT

    def new_scheme(self) -> Scheme:
        """Return what places messages on queue pairs in one run, the same for both backends."""
        if isinstance(self.scheme, str) and self.scheme in BY_LIGHT:
            return BY_LIGHT[self.scheme]()
        policy = partial(policy_named, self.spraying, self.transport.sprays)
        sprayed = Sprayed(policy, self.seed, self.chunk_bytes)
        if self.setup is None:
            return sprayed
        return self.setup.scheme(sprayed if self.setup.rest else None, over_circuits=self.over_circuits)

    @property
    def communicators(self) -> Communicators:
        """The numbers of the job's communicators; new for each run."""
        return Communicators(self.whole_job, shared=self.shared_queue_pairs)

    @property
    def spraying(self) -> str:
        """The name of what sprays over packet switches; empty if nothing does."""
        if isinstance(self.scheme, str):
            return "" if self.scheme in BY_LIGHT else self.scheme
        return self.scheme.rest

    @property
    def over_packets(self) -> bool:
        """Whether packet switches carry some of it, or may."""
        return bool(self.spraying or (self.setup and self.setup.by_bytes))

    @property
    def predicted_as(self) -> str:
        """What is predicted: what is placed, or the fluid limit of a scheme that chooses as it goes."""
        spraying = self.spraying
        is_limit = bool(spraying) and isinstance(policy_named(spraying), ReactivePolicy)
        return LIMIT if is_limit else "placed"

    @property
    def transport_name(self) -> str:
        """The transport as tables name it."""
        if not self.has_slots:
            return self.transport.name
        return f"{DATAGRAMS}, {self.transport.name}" if self.spraying else DATAGRAMS

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
        transport = self.transport.name
        named = [
            self.spraying if is_own(self.spraying) else "",
            *(own_names(self.circuits) if self.circuits else ()),
            "" if congestion_control(transport) else transport,
            class_name(type(self.routing)) if self.routing else "",
            class_name(type(self.setup)) if self.setup and SCHEME.is_own(self.setup) else "",
        ]
        patterns = own_patterns((*self.job.nodes, *self.revisions.nodes))
        effects = own_effects(effect for fault in self.faults for effect in fault.effects)
        return [*(name for name in named if ":" in name), *patterns, *effects]

    @property
    def name(self) -> str:
        """What tables know it by, beside workload and transport: scheme and circuits, or its label."""
        return ", ".join([self.name_without_faults, *(fault.name for fault in self.faults)])

    @property
    def name_without_faults(self) -> str:
        """The same whatever fails."""
        return ", ".join([*self._scheme_words, *([] if self.label else self._circuits_words)])

    @property
    def scheme_name(self) -> str:
        """The scheme as tables name it, with what is not as usual, or its label; and with faults."""
        return ", ".join([*self._scheme_words, *(fault.name for fault in self.faults)])

    @property
    def circuits_name(self) -> str:
        """The circuits as tables name them, with the routing; empty over packet switches."""
        return ", ".join(self._circuits_words)

    @cached_property  # a user's own scheme is imported to be asked for its name
    def _scheme_words(self) -> list[str]:
        if self.label:
            return [self.label]
        shared = ["shared queue pairs"] if self.shared_queue_pairs else []
        if self.setup:
            return [self.setup.name, *self.setup.words, *shared]
        return [policy_named(self.spraying).name if is_own(self.spraying) else str(self.scheme), *shared]

    @cached_property
    def _circuits_words(self) -> list[str]:
        words = words_of(self.circuits) if self.circuits else []
        return [*words, *(words_of_own(self.routing) if self.routing else [])]

    @property
    def unscaled(self) -> "Experiment":
        """The same at real scale, without what a machine decides: its dilation, and margins of slots."""
        own = self.scheme
        scheme = replace(own, margins=LEAST_MARGINS) if isinstance(own, WhileLitSetup) else own
        return replace(self, dilation=UNSCALED, scheme=scheme)

    @property
    def failing(self) -> frozenset[Port]:
        """The ports at both ends of the links that faults change: what is lost there is theirs."""
        return self.fabric.both_ends(port for fault in self.faults for port in fault.links)

    @property
    def gone(self) -> frozenset[int]:
        """The GPUs that faults take along."""
        return frozenset(gpu for fault in self.faults for gpu in fault.gpus)

    @cached_property
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
        return text_of(fields_of(self))

    @classmethod
    def from_json(cls, written: str | Mapping[str, object]) -> "Experiment":
        """Return the experiment that `to_json` wrote; ScenarioError if it is something else.

        It may be read already: then its fabric and its job may be values.
        """
        return cls(**parts_of(written))
