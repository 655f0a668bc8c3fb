"""Sources at real scale: what each congestion control over datagrams sent, was allowed, and met."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import ceil, inf, isnan, nan

import numpy as np
import pandas as pd

from testbed.experiment.dilation import Dilation
from traffic.clock import ps
from traffic.tables import FLOWS, SOURCES
from traffic.transports.ack_packets import FRAME_BYTES
from traffic.transports.datagram_engine import DatagramEngine
from traffic.transports.datagram_lane import Source
from traffic.transports.flow_log import Sample
from traffic.transports.marking import Marking
from traffic.transports.transport import HEADER_BYTES


@dataclass(frozen=True)
class AckTraffic:
    """The packets of a run that were acknowledgements, announcements and grants."""

    packets: int
    """How many were sent, those that were sent again included."""
    wire_share: float
    """Their share of the bytes that NICs sent of datagrams, headers included."""
    before_data: bool
    """Whether ports sent them before data; else they waited behind it."""
    p50_s: float
    """How long they took without the links' delay, the median; NaN if none came first [real s]."""
    p99_s: float


@dataclass(frozen=True)
class Queueing:
    """The queues that packets met, and the unloaded paths that sources compare them with."""

    p50_s: float
    """Median queue delay of the packets that were acknowledged; NaN if there were none [real s]."""
    p99_s: float
    max_s: float
    marked: int
    """How many packets were marked."""
    round_trip_s: tuple[float, float]
    """R: the least and the most of all sources [real s]."""
    bdp_packets: tuple[float, float]
    """BDP: the least and the most of all sources."""
    acks: AckTraffic | None = None
    """None where acknowledgements are no packets."""


def source_table(
    sources: Iterable[Source],
    granted_bytes: Callable[[Source], int | None],
    lanes: Sequence[object],
    dilation: Dilation,
    now_ps: int,
) -> pd.DataFrame:
    """Return the table of sources (`traffic.tables`).

    Parameters
    ----------
    sources
        In the order of their numbers.
    granted_bytes
        Returns all that a source was granted [emulated bytes]; None where no receiver grants.
    lanes
        The queue pairs of the run, those of the sources among them.
    dilation
        The scale of bytes and time.
    now_ps
        Until when the sources count.
    """
    places = {lane: place for place, lane in enumerate(lanes)}

    def real(size: float) -> int:
        return round(size / dilation.volume)

    rows = [
        (
            places[source.lane.queue_pair],
            now_ps,
            -1 if granted is None else real(granted),
            real(source.sent),
            real(source.delivered),
            source.acknowledged,
            source.marked,
            source.resent,
            -1 if source.over_window == -inf else ceil(max(source.over_window, 0) / dilation.volume),
            ps(dilation.real_s(source.pipe.round_trip_s)) if source.pipe else -1,
            real(source.pipe.bdp_bytes) if source.pipe else -1,
        )
        for source in sources
        for granted in [granted_bytes(source)]
    ]
    return pd.DataFrame(rows, columns=list(SOURCES)).astype(SOURCES)


def flow_table(samples: Iterable[Sample], at_ps: Callable[[float], int], dilation: Dilation) -> pd.DataFrame:
    """Return the table of flows (`traffic.tables`).

    Parameters
    ----------
    samples
        Of the engine.
    at_ps
        Returns the real time of a time of its clock.
    dilation
        The scale of bytes and time.
    """
    rows = [
        (
            each.source,
            at_ps(each.at_s),
            round(each.sent_bytes / dilation.volume),
            round(each.delivered_bytes / dilation.volume),
            nan if each.window_bytes == inf else each.window_bytes / dilation.volume,
            -1.0 if isnan(each.queue_s) else float(ps(dilation.real_s(each.queue_s))),
        )
        for each in samples
    ]
    return pd.DataFrame(rows, columns=list(FLOWS)).astype(FLOWS)


def ack_traffic(engine: DatagramEngine, dilation: Dilation, *, before_data: bool) -> AckTraffic | None:
    """Return the acknowledgements that were packets; None where they are none.

    ``before_data`` says whether ports send them before data.
    """
    if not engine.acks:
        return None
    own = engine.acks.packets * FRAME_BYTES
    data = sum(source.sent for source in engine.sources) + engine.packets.sent * HEADER_BYTES
    took_s = np.asarray(engine.acks.took_s, dtype=float)
    percentiles = np.percentile(took_s, [50, 99]) if len(took_s) else [nan] * 2
    p50_s, p99_s = (dilation.real_s(float(each)) for each in percentiles)
    return AckTraffic(engine.acks.packets, own / (own + data) if own else 0.0, before_data, p50_s, p99_s)


def queueing(
    sources: Iterable[Source], marking: Marking, dilation: Dilation, acks: AckTraffic | None = None
) -> Queueing | None:
    """Return the queues that the packets of sources met; None if no source had something to send."""
    known = [(source.pipe, source.marked) for source in sources if source.pipe]
    pipes = [pipe for pipe, _ in known]
    if not pipes:
        return None
    known_s = np.asarray(marking.queues_s, dtype=float)
    percentiles = np.percentile(known_s, [50, 99, 100]) if len(known_s) else [nan] * 3
    p50_s, p99_s, max_s = (dilation.real_s(float(each)) for each in percentiles)
    trips_s = [dilation.real_s(pipe.round_trip_s) for pipe in pipes]
    packets = [pipe.bdp_bytes / pipe.packet_bytes for pipe in pipes]
    return Queueing(
        p50_s,
        p99_s,
        max_s,
        sum(marked for _, marked in known),
        (min(trips_s), max(trips_s)),
        (min(packets), max(packets)),
        acks,
    )
