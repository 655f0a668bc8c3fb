"""What a report says of the transports of its run: what each is, and how the model has queue pairs share."""

import math
from collections.abc import Iterable, Mapping, Sequence

import pandas as pd

from testbed.report.page import Block, Line, Sheet
from testbed.report.run_json import congestion_of
from testbed.report.table import significant
from testbed.trust.marks import marking_rule
from testbed.trust.outcome import SHARES, Outcome
from traffic.transports.registry import DATAGRAMS, by_bytes, congestion_control, is_clairvoyant

SENT_WITHIN = 1.02
"""What is sent over what was granted is said where it is more."""

WHAT = {
    "credit": "each NIC grants what it can take, a packet at a time, round robin over the queue pairs that "
    "announced bytes to it; it knows no more than that, and datagrams carry what was granted",
    "nscc": "Ultra Ethernet's window of a sender, which the delay and the marks of its datagrams move",
    "dctcp": "a window of a sender, which shrinks by the share of its datagrams that are marked",
    "swift": "a window of a sender, which the round trips of its datagrams move, and a pace below a packet",
    "ideal": "clairvoyant, so what a better transport could reach; what senders may send follows what all "
    "still owe each destination, which no NIC knows, and datagrams carry it",
    DATAGRAMS: "numbered packets over UDP along circuits, since light goes one way",
}
"""What each transport is; the kernel's TCP has its congestion control besides."""
HEADERS = ("R [µs]", "BDP [packets]")
CAPTION = (
    "Transports as they were emulated. Marks: from which queue on packets are marked, and by whom; the "
    "engine marks by the queue delay of each packet, and no queue as short as what a token bucket lends. R: "
    "the round trip over an empty path that sources reckon with, propagation there and back and a packet's "
    "time. BDP: what they send in R, in packets of the emulation. Both are ranges over all sources; a dash "
    "is unknown."
)


def each_transport(names: Iterable[str]) -> list[str]:
    """Return the parts of transports as tables name them, each once: ``datagrams, tcp`` are two."""
    return list(dict.fromkeys(part for name in names for part in name.split(", ")))


def transports_text(names: Iterable[str]) -> str:
    """Return what each of some transports is, a sentence each.

    Examples
    --------
    >>> transports_text(["tcp:reno"])
    "Transport tcp:reno: the kernel's TCP with reno, a connection per queue pair, which nothing else limits."
    """
    return " ".join(f"Transport {name}: {_what(name)}." for name in each_transport(names))


def transport_sheets(outcomes: Sequence[Outcome]) -> list[Sheet]:
    """Return the table of the transports that were emulated; none where nothing was."""
    of: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        if outcome.emulated:
            of.setdefault(outcome.experiment.transport_name, []).append(outcome)
    lines = [Line([labelled(name), *_cells(mine)]) for name, mine in of.items()]
    said = " ".join(filter(None, [CAPTION, acks_text(outcomes)]))
    return [Sheet(("transport", "marks"), HEADERS, [Block(lines)], said)] if lines else []


def acks_text(outcomes: Iterable[Outcome]) -> str:
    """Return how acknowledgements went that were packets; nothing where they are none."""
    found = [each.queueing.acks for each in outcomes if each.queueing and each.queueing.acks]
    if not found:
        return ""
    first = all(each.before_data for each in found)
    how = "leave ports before data" if first else "wait behind data, as this kernel has no HTB or u32 filter"
    return f"Acknowledgements, announcements and grants are packets of 64 bytes, which {how}."


def labelled(transport: str) -> str:
    """Return a transport as tables name it, with whether it sees what no NIC can."""
    parts = each_transport([transport])
    return ", ".join(f"{name} (clairvoyant)" if is_clairvoyant(name) else name for name in parts)


def _cells(outcomes: Sequence[Outcome]) -> list[str]:
    """Return the marks, R and BDP of a transport's outcomes."""
    rules = dict.fromkeys(marking_rule(outcome.experiment).text for outcome in outcomes)
    found = list(filter(None, map(congestion_of, outcomes)))
    trips_us = [end for point in found for end in point.round_trip_us]
    packets = [end for point in found for end in point.bdp_packets]
    return ["; ".join(rules), span_text(trips_us), span_text(packets)]


def span_text(values: Sequence[float]) -> str:
    """Return the range of some values, a dash where there are none.

    Examples
    --------
    >>> span_text([12.04, 12.041]), span_text([16.7, 9]), span_text([])
    ('12', '9 .. 16.7', '-')
    """
    ends = dict.fromkeys(significant(end) for end in (min(values), max(values))) if values else ["-"]
    return " .. ".join(ends)


def clairvoyant_text(names: Iterable[str]) -> str:
    """Return which of some transports see what no NIC can; nothing where none does."""
    found = [name for name in each_transport(names) if is_clairvoyant(name)]
    return f"Clairvoyant, by what no NIC knows: {', '.join(found)}." if found else ""


def alike_text(alike: Mapping[str, Sequence[str]]) -> str:
    """Return which transports a run leaves out, by the one that each is predicted as.

    Examples
    --------
    >>> alike_text({"credit": ["tcp", "tcp:bbr"]})
    'Left out: tcp, tcp:bbr, predicted as credit is.'
    """
    return " ".join(f"Left out: {', '.join(names)}, predicted as {name} is." for name, names in alike.items())


def choices_text(table: pd.DataFrame) -> str:
    """Return what reactive schemes did in the emulations of a summary, and what of them could not act.

    Parameters
    ----------
    table
        From `testbed.trust.outcome.summary`.
    """
    said = []
    for (scheme, transport), rows in table.groupby(["name", "transport"], sort=False):
        shares = {name: rows[name].mean() for name in SHARES}
        seen = [f"{name} {share:.0%}" for name, share in shares.items() if not math.isnan(share)]
        over = rows["sent_over_granted"].mean()
        sent = [f"sent {over:.2f} times what was granted"] if over > SENT_WITHIN else []
        if seen or sent:
            said.append(f"{scheme} over {transport}: {', '.join([*seen, *sent])}.")
        inert = dict.fromkeys(clause for cell in rows["inert"] for clause in cell.split("; ") if clause)
        said += [f"Inert: {clause}." for clause in inert]
    return " ".join(dict.fromkeys(said))


def shares_text(names: Iterable[str]) -> str:
    """Return how the model has queue pairs that meet share a link under some transports."""
    packets = [name for name in each_transport(names) if name != DATAGRAMS]
    evenly = [name for name in packets if not by_bytes(name)]
    clairvoyant = [name for name in packets if by_bytes(name)]
    said = [f"evenly under {' and '.join(evenly)}"] if evenly else []
    if clairvoyant:
        said.append(
            f"under {' and '.join(clairvoyant)} by their bytes, if the scheme decides before the start, else "
            "evenly"
        )
    return f"Queue pairs that meet share {', '.join(said)}." if said else ""


def _what(name: str) -> str:
    control = congestion_control(name)
    if control:
        return f"the kernel's TCP with {control}, a connection per queue pair, which nothing else limits"
    if name in WHAT:
        return WHAT[name]
    own = "the user's own congestion control over datagrams"
    return f"clairvoyant, {own}" if is_clairvoyant(name) else own
