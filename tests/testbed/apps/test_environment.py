"""The environment of commands on hosts, and the /etc/hosts that they read."""

import os
from pathlib import Path
from types import SimpleNamespace
from typing import cast

from testbed.apps.environment import MODULES, PROGRAMS, host_environment, of_asker, of_user, with_places
from testbed.apps.host_server import hosts_by_name
from testbed.network.host_namespaces import ROOT, HostUser, hosts_file
from testbed.network.network import Network
from topologies.rail import rail_fabric

FABRIC = rail_fabric(2, 2)
NETWORK = cast(Network, SimpleNamespace(fabric=FABRIC, directory=Path("/run/lightrail")))


def test_a_host_knows_itself_and_all_others() -> None:
    known = host_environment(NETWORK, 1, scale=2.5)
    assert (known["LIGHTRAIL_HOST"], known["LIGHTRAIL_HOSTS"]) == ("h1", "h0,h1")
    assert (known["LIGHTRAIL_NICS"], known["LIGHTRAIL_SCALE"]) == ("nic0,nic1", "2.5")
    assert known["OMPI_MCA_btl_tcp_if_include"] == "nic0,nic1"
    assert known["OMPI_MCA_oob_tcp_if_include"] == "172.16.0.0/12"


def test_places_of_hosts_come_first_and_once() -> None:
    once = with_places({"PATH": "/a:/b", "PYTHONPATH": ""})
    assert once == {"PATH": f"{PROGRAMS}:/a:/b", "PYTHONPATH": str(MODULES)}
    assert with_places(once) == once
    assert with_places({})["PATH"].startswith(f"{PROGRAMS}:/usr")


def test_openmpi_runs_for_root_if_it_is_root() -> None:
    ordinary = HostUser(os.getuid() or 65533, 65533, is_mapped=True)
    for user, as_root in ((HostUser(ROOT, ROOT, is_mapped=False), False), (ordinary, True)):
        assert of_user(user, as_root=as_root)["OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"] == "1"
    assert "OMPI_ALLOW_RUN_AS_ROOT" not in of_user(ordinary, as_root=False)


def test_names_of_hosts_and_nics_have_addresses() -> None:
    lines = [line.split() for line in hosts_file(FABRIC).splitlines()]
    assert lines[0] == ["127.0.0.1", "localhost"]
    assert [name for _, name in lines[1:]] == ["h0", "h1", "h0-nic0", "h0-nic1", "h1-nic0", "h1-nic1"]
    numbers = hosts_by_name(FABRIC)
    for address, name in lines[1:]:
        assert numbers[address] == numbers[name] == int(name[1])


OUTSIDE = {"PATH": "/usr/bin", "HOME": "/root", "USER": "root", "HOSTNAME": "machine", "TMPDIR": "/tmp/a"}


def test_a_host_decides_on_its_name_and_its_temporary_files() -> None:
    assert of_asker(OUTSIDE) == {"PATH": "/usr/bin", "HOME": "/root", "USER": "root"}


def test_under_sudo_an_application_has_the_home_of_the_user_behind_it() -> None:
    found = of_asker({**OUTSIDE, "SUDO_UID": "1000"})
    assert found == {"PATH": "/usr/bin", "SUDO_UID": "1000"}
