"""A cluster in two shards whose third job takes over the servers of the first, with real packets.

Eight servers face one of two patch panels. Two AllReduces start at once, each on circuits of its own. The
third needs other circuits between the first one's servers: they are set on the idle panel while both run, and
its servers turn to them when the first ends (the look-ahead). Seconds stand for hours, as the panel's half
second does for minutes.

References
----------
TopoOpt, section 3 and appendix C.
"""

import math
from collections.abc import Sequence

from controller.circuits.shard_order import Shard
from controller.circuits.shards import Shards
from controller.schedulers.topoopt import Group, panel_circuits, topology_finder
from testbed.core.run import Run
from testbed.experiment.experiment import Experiment
from testbed.report.claims import Claim, Range, farthest_from_1, worst_claim
from testbed.report.page import Block, Findings, Line, Sheet
from testbed.report.table import number
from testbed.trust.outcome import LEFT_OUT, Outcome
from topologies.light import Circuit
from topologies.patch_panel import patch_panel_fabric, sharded_panel_fabric
from traffic.collectives.ring import Ring
from traffic.job import Collective, Job
from traffic.scheme_setup import ROUTED

SERVERS, NICS, RATE_BPS = 8, 2, 10e9
PANEL_S, FLIP_S = 0.5, 0.01
"""How long a panel takes to set circuits, and the 1x2 switches to turn [real s]."""
FIRST, OTHER, THIRD = "first", "other", "third"
LASTS_S = {FIRST: 1.2, OTHER: 2.4, THIRD: 0.6}
"""How long each AllReduce takes on its circuits [real s]."""
MEMBERS = {FIRST: (0, 1, 2, 3), OTHER: (4, 5, 6, 7), THIRD: (0, 2, 1, 3)}
"""The servers of each, in the order of its ring."""
AGREES: Range = (0.90, 1.15)
FLIP_ONLY: Range = (0.9 * FLIP_S / PANEL_S, 0.5)
"""Expected wait of the third job over that for a panel, if it waits for the flip alone."""
MS = 1e3


def shards_experiment() -> Experiment:
    """Return three AllReduces, each a shard, the third after the first."""
    nodes = tuple(
        Collective(name, _ring(name), (FIRST,) if name == THIRD else ()) for name in (FIRST, OTHER, THIRD)
    )
    shards = tuple(Shard(node.name, (node.name,), circuits_of(node.name)) for node in nodes)
    fabric = sharded_panel_fabric(SERVERS, nics=NICS, gpus=1, rate_bps=RATE_BPS)
    job = Job("three jobs in two shards", SERVERS, nodes, "AllReduces; the third has the first one's servers")
    return Experiment(fabric, job, ROUTED, label="shards", circuits=Shards(shards, PANEL_S, FLIP_S))


def circuits_of(name: str) -> tuple[Circuit, ...]:
    """Return the circuits of a shard: TopologyFinder's for its AllReduce, between ports of a panel."""
    members = MEMBERS[name]
    alone = range(len(members))
    plan = topology_finder(
        [Group(tuple(alone), _ring(name).bytes)],
        [[0] * len(members) for _ in alone],
        servers=len(members),
        degree=NICS,
    )
    # The panels of a cluster in shards number their ports as one panel does.
    ((_, circuits),) = panel_circuits(patch_panel_fabric(SERVERS, nics=NICS), plan, among=members)
    return circuits


def waited_s(run: Run, name: str) -> float:
    """Return how long a node was held for light [s]; 0 if it was not."""
    own = run.events[run.events["which"] == name]
    at_s = {what: own.loc[own["what"] == what, "at_s"].sum() for what in ("held", "released")}
    return float(at_s["released"] - at_s["held"])


def shards_findings(outcomes: Sequence[Outcome]) -> Findings:
    """Return the table of how long each job took, and how long it waited for its circuits."""
    blocks = [
        Block([_line(outcome, name) for name in MEMBERS], outcome.experiment.transport_name)
        for outcome in outcomes
    ]
    caption = (
        f"Milliseconds at real scale. A panel takes {MS * PANEL_S:g} ms to set circuits, 1x2 switches "
        f"{MS * FLIP_S:g} ms to turn. Waited: from when a job could begin until its circuits were lit. The "
        "third waits for the flip only: the panel was set while the first and the other ran."
    )
    headers = ("servers", "emulated", "model", "/ model", "waited", "model")
    return Findings([Sheet(("job", "verdict"), headers, blocks, caption)], claims=_claims(outcomes))


def _line(outcome: Outcome, name: str) -> Line:
    word = outcome.verdict.word
    servers = " ".join(map(str, MEMBERS[name]))
    if not outcome.is_sound:
        return Line([name, word, servers, *["-"] * 5], word)
    took_s, waits_s = (
        [of(run, name) if run else math.nan for run in (outcome.emulated, outcome.predicted)]
        for of in (_took_s, waited_s)
    )
    cells = [
        number(MS * took_s[0], "{:.1f}"),
        f"{MS * took_s[1]:.1f}",
        number(took_s[0] / took_s[1], "{:.3f}"),
        number(MS * waits_s[0], "{:.1f}"),
        f"{MS * waits_s[1]:.1f}",
    ]
    return Line([name, word, servers, *cells], word)


def _claims(outcomes: Sequence[Outcome]) -> list[Claim]:
    """Return that a job does not wait for the panel, and that others do not suffer from its flip."""
    claims = []
    for outcome in outcomes:
        run = outcome.emulated
        if run is None or outcome.verdict.word in LEFT_OUT:
            continue
        by = outcome.experiment.transport_name
        ratios = [_took_s(run, name) / _took_s(outcome.predicted, name) for name in MEMBERS]
        waits = [waited_s(run, THIRD) / PANEL_S]
        flip = "what the third job waited over what a panel takes", "TopoOpt, appendix C", FLIP_ONLY
        agree = "jobs as emulated over the model", "lightrail's model", AGREES
        claims += [
            worst_claim(*flip, waits, max, transport=by),
            worst_claim(*agree, ratios, farthest_from_1, transport=by),
        ]
    return claims


def _took_s(run: Run, name: str) -> float:
    span = run.tasks[run.tasks["node"] == name].iloc[0]
    return float(span["end_s"] - span["start_s"])


def _ring(name: str) -> Ring:
    members = MEMBERS[name]
    count = len(members)
    size = round(LASTS_S[name] * RATE_BPS / 8 * count / (count - 1))
    return Ring((members, members[::-1]), size)
