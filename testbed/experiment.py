"""An experiment: all that decides a result, as one frozen value."""

import hashlib
import json
from dataclasses import asdict, dataclass
from functools import cached_property

import numpy as np

from testbed.dilation import Dilation
from topologies.errors import ScenarioError
from topologies.fabric import Fabric
from traffic.collective import Collective, Step, job_of
from traffic.demand import Demand
from traffic.job import Job
from traffic.messages import CHUNK_BYTES
from traffic.scheme import Sprayed
from traffic.spraying.registry import policy_named

FORMAT_VERSION = 1


@dataclass(frozen=True)
class Experiment:
    """A collective over a fabric under a policy, at a scale.

    Raises
    ------
    ScenarioError
        If the collective is not between the fabric's GPUs.
    """

    fabric: Fabric
    collective: Collective
    policy: str
    """A scheme's name (`traffic.spraying.registry`)."""
    dilation: Dilation
    seed: int = 0
    """Decides all that is random in the policy; the collective has its own."""
    chunk_bytes: int = CHUNK_BYTES
    """A message's atomic piece at real scale [bytes]."""

    def __post_init__(self) -> None:
        """Check that the parts fit."""
        if self.collective.gpus != self.fabric.gpus:
            raise ScenarioError(
                f"the collective is between {self.collective.gpus} GPUs, the fabric has {self.fabric.gpus}",
                "place it on the fabric first (traffic.placement)",
            )

    @property
    def job(self) -> Job:
        """The collective's steps and the compute between them."""
        return job_of(self.collective)

    @property
    def scheme(self) -> Sprayed:
        """What places messages on queue pairs, the same for both backends."""
        return Sprayed(lambda: policy_named(self.policy), self.seed, self.chunk_bytes)

    @property
    def key(self) -> str:
        """A short name that equal experiments share."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()[:12]

    def to_json(self) -> str:
        """Return the experiment as JSON that `from_json` reads back."""
        return self._json

    @cached_property  # a run writes it after each of its points
    def _json(self) -> str:
        steps = [
            {
                "name": step.demand.name,
                "note": step.demand.note,
                "matrix": step.demand.matrix.tolist(),
                "compute_s": step.compute_s,
            }
            for step in self.collective.steps
        ]
        return json.dumps(
            {
                "format": FORMAT_VERSION,
                "fabric": json.loads(self.fabric.to_json()),
                "collective": {
                    "name": self.collective.name,
                    "note": self.collective.note,
                    "idle": self.collective.idle,
                    "steps": steps,
                },
                "policy": self.policy,
                "dilation": asdict(self.dilation),
                "seed": self.seed,
                "chunk_bytes": self.chunk_bytes,
            }
        )

    @classmethod
    def from_json(cls, text: str) -> "Experiment":
        """Return the experiment that `to_json` wrote; ScenarioError if the text is something else."""
        try:
            data = json.loads(text)
            steps = tuple(
                Step(Demand(step["name"], np.array(step["matrix"]), step["note"]), step["compute_s"])
                for step in data["collective"]["steps"]
            )
            collective = data["collective"]
            idle = collective.get("idle", 0)  # runs made before it was recorded can be repeated too
            return cls(
                fabric=Fabric.from_json(json.dumps(data["fabric"])),
                collective=Collective(collective["name"], steps, collective["note"], idle),
                policy=data["policy"],
                dilation=Dilation(**data["dilation"]),
                seed=data["seed"],
                chunk_bytes=data["chunk_bytes"],
            )
        except (ValueError, KeyError, TypeError) as error:
            raise ScenarioError(f"the text is no experiment: {error}", "take it from a run.json") from error
