"""A user's own routing: named, written down, and checked whenever it finds next hops."""

from collections.abc import Collection, Mapping

from topologies.errors import ScenarioError
from topologies.fabric import Fabric, Nic, Port
from topologies.light import Circuit
from topologies.own import own_code
from topologies.own_value import Kind, class_name
from topologies.routing import Routing, Table

ROUTING: Kind[Routing] = Kind(
    "routing",
    "docs/howto/own_routing.md",
    methods=("table",),
    values=(),
    parts="table",
    error=ScenarioError,
    word="routing",
)


def _is_port_of(fabric: Fabric, switch: str, out: object) -> bool:
    """Return whether something is a port with a link of a packet switch."""
    number = fabric.switch_index.get(switch)
    is_switch = number is not None and fabric.switches[number].kind == "packet"
    return is_switch and isinstance(out, Port) and out.node == switch and out in fabric.link_at


class CheckedRouting:
    """A routing whose next hops are checked.

    Parameters
    ----------
    routing
        A user's own.
    """

    def __init__(self, routing: Routing) -> None:
        self._name, self._routing = class_name(type(routing)), routing
        self._known: dict[object, Table] = {}

    def __eq__(self, other: object) -> bool:
        """Whether it is of an equal routing."""
        return isinstance(other, CheckedRouting) and self._routing == other._routing

    def __hash__(self) -> int:
        """The routing's."""
        return hash(self._routing)

    @property
    def document(self) -> dict[str, object]:
        """The routing as JSON has it."""
        return ROUTING.document(self._routing)

    def table(
        self, *, fabric: Fabric, lit: Mapping[str, tuple[Circuit, ...]], failed: Collection[Port]
    ) -> Table:
        """Return the next hops; ScenarioError if they are not those of this fabric, or its code raises."""
        about = tuple(sorted(lit.items())), frozenset(failed)
        if about not in self._known:
            with own_code(ROUTING.name, self._name):
                table = self._routing.table(fabric=fabric, lit=dict(lit), failed=frozenset(failed))
                self._check(table, fabric)
            self._known = {about: table}
        return self._known[about]

    def _check(self, table: object, fabric: Fabric) -> None:
        if not isinstance(table, Mapping):
            raise self._not_valid(f"table returned an object of type {type(table).__name__}")
        nics = set(fabric.nics)
        for key, out in table.items():
            if not (isinstance(key, tuple) and len(key) == 2 and isinstance(key[0], int | str)):
                raise self._not_valid(f"{key!r} is not a server or a switch, and a NIC or a flow")
            at, what = key
            ends = (what,) if isinstance(what, Nic) else what
            if not (isinstance(ends, tuple) and len(ends) in (1, 2) and nics.issuperset(ends)):
                raise self._not_valid(f"{what!r} is not a NIC of the fabric, or a pair of two")
            if isinstance(at, int) and (out not in nics or out.server != at):
                raise self._not_valid(f"{out!r} is not a NIC of server {at}")
            if isinstance(at, str) and not _is_port_of(fabric, at, out):
                raise self._not_valid(f"{out!r} is not a port with a link of a packet switch {at!r}")

    def _not_valid(self, said: str) -> ScenarioError:
        return ScenarioError(f"the routing {self._name!r}: {said}", f"see {ROUTING.page}")
