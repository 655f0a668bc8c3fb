"""Light paths: over one OCS, over two in series, into the dark, and round in a circle."""

from topologies.fabric import Fabric, Link, Nic, Port, Switch, equal_servers
from topologies.light import light_path, light_peers, light_rings

SERIES = Fabric(
    "series",
    equal_servers(3, 1, 1, 1e12),
    (Switch("a", 4, "ocs"), Switch("b", 4, "ocs"), Switch("c", 1, "ocs")),
    (
        Link(Port("h0", 0), Port("a", 0), 1e9),
        Link(Port("h1", 0), Port("b", 0), 1e9),
        Link(Port("h2", 0), Port("c", 0), 1e9),
        Link(Port("a", 1), Port("b", 1), 1e9),
        Link(Port("a", 2), Port("b", 2), 1e9),
    ),
)


def test_light_crosses_ocses_in_series() -> None:
    path = light_path(SERIES, {"a": ((0, 2),), "b": ((2, 0),), "c": ()}, Nic(0, 0))
    assert path.ports == (Port("h0", 0), Port("a", 2), Port("b", 0))
    assert path.circuits == (("a", (0, 2)), ("b", (2, 0)))
    assert path.end == Port("h1", 0)


def test_light_without_a_circuit_or_a_fibre_ends_in_the_dark() -> None:
    assert light_path(SERIES, {"a": (), "b": (), "c": ()}, Nic(0, 0)).end is None
    assert light_path(SERIES, {"a": ((0, 1),), "b": ((2, 0),), "c": ()}, Nic(0, 0)).end is None
    assert light_path(SERIES, {"a": ((0, 3),), "b": (), "c": ()}, Nic(0, 0)).end is None


def test_light_that_goes_round_ends_in_the_dark() -> None:
    ring = {
        "a": ((0, 1), (2, 1)),
        "b": ((1, 2),),
        "c": (),
    }  # what an OCS could not show, but a caller might pass
    assert light_path(SERIES, ring, Nic(0, 0)).end is None


def test_peers_are_those_that_some_circuits_reach() -> None:
    assert light_peers(SERIES, Nic(0, 0)) == [Nic(1, 0)]
    assert light_peers(SERIES, Nic(2, 0)) == []


def test_rings_of_light_go_in_by_one_nic_and_out_by_the_other() -> None:
    links = tuple(
        Link(Port(f"h{server}", nic), Port("o", 2 * server + nic), 1e9)
        for server in range(3)
        for nic in range(2)
    )
    fabric = Fabric("six", equal_servers(3, 2, 1, 1e12), (Switch("o", 6, "ocs"),), links)

    def rings(*pairs: tuple[int, int]) -> list[tuple[int, ...]]:
        return light_rings(fabric, {"o": tuple(c for a, b in pairs for c in ((a, b), (b, a)))})

    assert rings((0, 5), (4, 2), (3, 1)) == [(0, 2, 1)]
    assert rings((0, 3), (2, 1), (4, 5)) == [(0, 1), (2,)]
    assert rings((0, 3), (2, 5)) == []
    assert light_rings(fabric, {"o": ((0, 3), (2, 1))}) == [(0, 1)], "one direction is a ring"
    assert light_rings(SERIES, {"a": ((0, 1), (1, 0)), "b": ((0, 1), (1, 0)), "c": ()}) == []
