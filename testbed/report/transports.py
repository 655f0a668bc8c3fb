"""What a report says of the transports of its run: what each is, and how the model has queue pairs share."""

import math
from collections.abc import Iterable, Mapping, Sequence

import pandas as pd

from testbed.trust.outcome import SHARES
from traffic.transports.registry import DATAGRAMS, by_bytes, congestion_control

SENT_WITHIN = 1.02
"""What is sent over what was granted is said where it is more."""

WHAT = {
    "credit": "each NIC grants what it can take, a packet at a time, round robin over the queue pairs that "
    "announced bytes to it; it knows no more than that, and datagrams carry what was granted",
    "ideal": "clairvoyant, so what a better transport could reach; windows and paces follow what all senders "
    "still owe each destination, which no NIC knows, and TCP carries the bytes",
    DATAGRAMS: "numbered packets over UDP along circuits, since light goes one way",
}
"""What each transport is; the kernel's TCP has its congestion control besides."""


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
    return WHAT.get(name, "the user's own")
