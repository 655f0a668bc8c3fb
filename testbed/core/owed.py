"""What has to be lit for: the bytes that servers owe each other and may send now.

What waits for something else of its collective is left out: a rule that lit circuits for that would keep
those from light which it waits for.
"""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from testbed.core.carriers import Carriers
from testbed.core.ledger import Ledger
from topologies.fabric import Fabric
from traffic.messages import Messages
from traffic.ops import INSIDE, PACKETS


def owed_bytes(
    fabric: Fabric,
    ledger: Ledger,
    carriers: Carriers,
    numbers: Iterable[int],
    unsent: Iterable[Messages],
) -> NDArray[np.int64]:
    """Return the bytes that servers owe each other but for what packets carry, shape (servers, servers).

    What goes together counts whole until it has arrived.

    Parameters
    ----------
    fabric, ledger, carriers
        Of the run.
    numbers
        The operations of collectives that have not ended, without those that bring others further.
    unsent
        What collectives will send at once that have begun and have no operations yet.
    """
    owed = np.zeros((len(fabric.servers),) * 2, dtype=np.int64)
    moved = list(unsent)
    rows = list[tuple[int, int, int]]()
    under_way = carriers.over_light
    for number in _with_hops(ledger, numbers):
        op = ledger.ops[number]
        if op.medium in (INSIDE, PACKETS) or op.is_over or op.waits:
            continue
        if op.moves:
            moved.append(op.moves.moves)
        elif number in carriers.choosing:
            rows.append((op.source, op.destination, under_way.get(number, 0)))
        else:
            by_hops = sum(
                ledger.ops[hop].size
                for hop in ledger.hops.get(number, ())
                if ledger.ops[hop].medium != INSIDE and not ledger.ops[hop].hop
            )
            left = op.size - op.carried - by_hops + under_way.get(number, 0)
            rows.append((op.source, op.destination, left))
    moved.append(Messages(*np.array(rows, dtype=np.int64).reshape(-1, 3).T))
    for each in moved:
        ends = fabric.server_of_gpu[each.source], fabric.server_of_gpu[each.destination]
        np.add.at(owed, ends, each.bytes)
    np.fill_diagonal(owed, 0)
    return owed


def _with_hops(ledger: Ledger, numbers: Iterable[int]) -> Iterable[int]:
    """Yield operations, and after each those that bring it further."""
    for number in numbers:
        yield number
        yield from _with_hops(ledger, ledger.hops.get(number, ()))
