"""Hosts send over the circuits that are ordered from Python, by the names of hosts."""

import pytest

from scenarios.api.network import network
from topologies.errors import LightrailError
from topologies.parallel_ocs import parallel_ocs_fabric

pytestmark = [pytest.mark.emulation, pytest.mark.early]

BY_A_HOST = "import lightrail_host as here; here.light('ocs0', '0>2 2>0'); print(here.lit('ocs0'))"


@pytest.mark.usefixtures("sandbox")
def test_light_joins_hosts() -> None:
    with network(parallel_ocs_fabric(3, 1)) as net:

        def reached() -> list[bool]:
            codes = [
                net.host(0).run(["ping", "-c", "1", "-W", "1", name]).returncode for name in ("h1", "h2")
            ]
            return [code == 0 for code in codes]

        assert reached() == [False, False]
        net.light("ocs0", "0>1 1>0")
        assert reached() == [True, False]
        done = net.host(0).run(["python3", "-c", BY_A_HOST], check=True)
        assert done.stdout.split("\n")[0] in ("[(0, 2), (2, 0)]", "[(2, 0), (0, 2)]")
        assert reached() == [False, True]
        with pytest.raises(LightrailError, match="port 7 of an OCS"):
            net.light("ocs0", "0>7")
