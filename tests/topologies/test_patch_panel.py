"""Two patch panels: light goes over the one that both servers face, and over no other."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topologies.errors import FabricError
from topologies.fabric import Nic, Port
from topologies.light import Circuit, duplex, light_path
from topologies.patch_panel import PANELS, facing, flip_name, patch_panel_fabric, sharded_panel_fabric


@given(st.integers(2, 5), st.integers(1, 3), st.data())
def test_light_needs_two_servers_that_face_one_panel(servers: int, nics: int, data: st.DataObject) -> None:
    fabric = sharded_panel_fabric(servers, nics=nics)
    faces = data.draw(st.lists(st.integers(0, 1), min_size=servers, max_size=servers))
    panel = data.draw(st.integers(0, 1))
    ports = data.draw(st.permutations(range(servers * nics)))
    pairs = list(zip(ports[::2], ports[1::2], strict=False))
    lit: dict[str, tuple[Circuit, ...]] = dict.fromkeys(PANELS, ())
    lit |= {PANELS[panel]: duplex(pairs)}
    lit |= {flip_name(server): facing(nics, face) for server, face in enumerate(faces)}
    ends = dict(duplex(pairs))
    for nic in fabric.nics:
        own = nic.server * nics + nic.nic
        far = Nic(*divmod(ends.get(own, own), nics))
        reaches = far != nic and faces[nic.server] == faces[far.server] == panel
        found = light_path(fabric, lit, nic)
        if reaches:
            nodes = [node for node, _ in found.circuits]
            assert nodes == [flip_name(nic.server), PANELS[panel], flip_name(far.server)]
        assert (found.end == fabric.nic_port(far)) == reaches


def test_the_switches_of_a_server_turn_together() -> None:
    fabric = sharded_panel_fabric(2, nics=2)
    flip = fabric.switches[fabric.switch_index["flip1"]]
    assert all(flip.permits(facing(2, panel)) for panel in range(2))
    assert not flip.permits(((0, 2), (1, 5)))
    for (panel, name), nic in product(enumerate(PANELS), range(2)):
        assert fabric.peer(Port("flip1", (1 + panel) * 2 + nic)) == Port(name, 2 + nic)


def test_panels_have_a_port_for_each_nic_of_the_flat_one() -> None:
    flat = patch_panel_fabric(3, nics=2, gpus=1)
    fabric = sharded_panel_fabric(3, nics=2, gpus=1)
    assert fabric.servers == flat.servers
    sizes = {switch.name: switch.ports for switch in fabric.switches}
    assert {sizes[panel] for panel in PANELS} == {flat.switches[0].ports}
    assert fabric == sharded_panel_fabric(3, nics=2, gpus=1)


def test_servers_without_nics_are_refused() -> None:
    with pytest.raises(FabricError, match="0 NICs"):
        sharded_panel_fabric(2, nics=0)
