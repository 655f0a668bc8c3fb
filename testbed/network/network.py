"""A booted network: a fabric as namespaces, shaped links, Open vSwitch bridges and a controller.

Order matters for the boot's time: the controller's process starts first and imports while the
links are made; the bridges are made when its listener is up, because Open vSwitch backs off
for a second after a refused connection.
"""

import json
import os
import select
import shutil
import socket
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict
from functools import cache, partial

from mininet.net import Mininet

from controller.app.client import ControllerClient
from controller.circuits.status import OcsRecord
from controller.packet.flow_table import Hashing
from controller.packet.routing import check_shares, forwarding_rules
from testbed.machine.commands import Child
from testbed.machine.congestion import check_marks
from testbed.machine.datapath import Datapath, bridges, check_datapath, default_datapath, hashing_of
from testbed.machine.kernel import inside_namespace
from testbed.machine.sandbox import RUN_DIRECTORY, inside_sandbox, raise_descriptor_limit
from testbed.network.bridges import (
    check_names,
    claim,
    delete_bridges,
    make_bridges,
    release,
    remove_dead_runs,
)
from testbed.network.forwarding import KernelRoutes
from testbed.network.host_namespaces import HostNamespaces
from testbed.network.host_news import NewsSocket
from testbed.network.host_routes import HostRoutes
from testbed.network.mark import Mark
from testbed.network.netem import Netem, check_delays, check_netem, link_netems
from testbed.network.nodes import LiveIntf, LiveLink, LiveMininet, LiveRouter, LiveServer, LiveSwitch
from testbed.network.open_files import check_open_files
from testbed.network.openvswitch import MachineOpenVSwitch, PrivateOpenVSwitch, machine_directory
from testbed.network.switch_routes import SwitchRoutes
from testbed.network.wiring import (
    Wiring,
    adopt_taps,
    ports_down,
    put_netems,
    reshape,
    set_netems,
    shape_switch_ports,
    turn_ports,
    wire,
    with_hosts,
)
from topologies.addresses import (
    DATAGRAM_PORT,
    datapath_id,
    in_network,
    interface,
    nic_ip,
    nic_network,
    openflow_port,
)
from topologies.errors import NetworkError, ScenarioError
from topologies.fabric import Fabric, Link, Nic, Port
from topologies.own_routing import CheckedRouting
from traffic.effects import Daemon
from traffic.packets import DEFAULT_MTU
from traffic.transports.connections import Endpoints
from traffic.transports.datagram_sockets import DatagramEndpoints
from traffic.transports.host_settings import OF_DATAGRAMS, HostSettings

OPENFLOW, NORTHBOUND, NEWS = "openflow.sock", "northbound.sock", "news.sock"
READY_S = 120.0
LEAST_SEND_BUFFER_BYTES, MOST_SEND_BUFFER_BYTES = 4 << 20, 1 << 30
"""The daemon sends 32 packets of a port at once: where queues are short, they decide what is dropped."""
AS_IT_BEGAN = (1.0, 0.0)
"""All of a link's rate, and no loss but its own."""
LOG_LINES = 40


class Network:
    """A fabric that carries packets; a context manager, entered once.

    Links have neither delay nor loss until `impair` gives them theirs.

    Parameters
    ----------
    fabric
        What to boot, at real rates.
    rate_factor
        Emulated rate over real rate: a link of 100 Gbit/s and 4e-4 is shaped to 40 Mbit/s.
    datapath
        What forwards; None for `testbed.machine.datapath.default_datapath`.
    host
        What the servers' TCP is set to, and what it needs of switches; None where bytes go as datagrams.
    mtu
        Of every interface [bytes].
    routing
        By which ports packet switches send on before the shortest path; by default nothing else.
    hosts
        Whether servers are hosts, on which applications run.
    """

    def __init__(
        self,
        fabric: Fabric,
        rate_factor: float,
        datapath: Datapath | None = None,
        host: HostSettings | None = None,
        *,
        mtu: int = DEFAULT_MTU,
        routing: CheckedRouting | None = None,
        hosts: bool = False,
    ) -> None:
        self.fabric, self.routing = fabric, routing
        self.has_hosts = hosts
        self.mtu = mtu
        self.rate_factor = rate_factor
        self.host = host or OF_DATAGRAMS
        self.datapath = datapath or default_datapath()
        self.wiring: Wiring
        self.hosts: HostRoutes
        """The routes of hosts, where servers are hosts."""
        self.switches: SwitchRoutes
        """The routes of packet switches, of those that route."""
        self._stack = ExitStack()
        self._entered = self._without_controller = self._without_switches = False
        self._news: NewsSocket | None = None
        """The controller's news of light and of links, where servers are hosts."""
        self._is_new = True
        """Whether the controller has yet to say that it listens."""
        self._records: list[OcsRecord] = []
        """The state of OCSes when their controller was killed."""
        self._followed: frozenset[Link] = frozenset()
        """The failed links that switches have rules around."""
        self._shaped: dict[Link, tuple[float, float]] = {}
        """What links pass of the rate that they began with, and lose on top of their own loss."""
        self._impaired: float | None = None
        """By what links' delays are multiplied now; None while they have neither delay nor loss."""
        self._loses = True
        """Whether links have their own loss when they have delay."""
        self.netems: dict[Port, Netem] = {}
        """The netem of each port that has one, as it is now."""
        self.netems = self._netems(self.host, None)

    def __enter__(self) -> "Network":
        """Boot, or leave nothing behind and raise NetworkError, MachineError or FabricError."""
        if self._entered:
            raise NetworkError("a network was booted twice", "make a new one")
        self._entered = True
        check_shares(self.fabric, hosts=self.has_hosts)
        check_datapath(self.datapath)
        check_netem(self.netems)
        check_marks(self.host.marked_for, self.datapath, self.mtu)
        check_open_files(self.fabric, raise_descriptor_limit(), self.datapath, hosts=self.has_hosts)
        with self._stack as stack:
            mark = Mark.own()
            # In a sandbox the tools of Open vSwitch look for its sockets here (OVS_RUNDIR).
            self.directory = RUN_DIRECTORY if inside_sandbox() else machine_directory(mark)
            """Where its sockets and logs are, this user's alone; it ends with the network. Of a network with
            hosts, all users may reach the controller in it."""
            self.directory.mkdir(mode=0o700, exist_ok=True)
            stack.callback(shutil.rmtree, self.directory)
            try:
                self._boot(stack, mark)
            except BaseException as failure:
                self._note_logs(failure)
                raise
            self._stack = stack.pop_all()
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        """Stop everything in the reverse order; an error takes the daemons' words along."""
        if error:
            self._note_logs(error)
        self._stack.close()

    def check_alive(self) -> None:
        """Raise NetworkError if a daemon or the controller has ended that is to be there."""
        if not self._without_switches:
            self.openvswitch.check_alive()
        if not self._without_controller and self._controller.poll() is not None:
            raise NetworkError(
                f"the controller ended during the run (exit code {self._controller.returncode})",
                "run it again",
            )

    def kill(self, daemon: Daemon, *, for_good: bool) -> None:
        """Kill the controller, without which switches forward on, or the daemon that forwards in them.

        The daemon's end is an error to `check_alive` if it is for good.
        """
        if daemon == "controller":
            if not self._is_new:  # else it has ordered nothing, and what it took over holds
                self._records = list(self._ocs_records())
            self._without_controller = True
            self._controller.kill()
        else:
            self._without_switches = not for_good
            self.openvswitch.kill()
            self.switches.stop()

    def _ocs_records(self) -> Iterator[OcsRecord]:
        """Yield the record of each OCS, but of one whose switch is away: that shows nothing."""
        for switch in self.fabric.switches:
            if switch.kind == "ocs":
                with suppress(NetworkError):
                    yield self.northbound.ocs_record(switch.name)

    def revive(self, daemon: Daemon) -> None:
        """Start again what was killed.

        Switches forward when this returns, and their OCSes are dark. A controller has yet to connect
        (`await_controller`); it takes over from the one before, and OCSes keep their circuits meanwhile.
        """
        if daemon == "controller":
            self._controller = self._stack.enter_context(self._new_controller(self._records))
            self._without_controller, self._is_new = False, True
            return
        self.openvswitch.revive()
        self.switches.go_on()
        self._without_switches = False
        self._wait_ready(None)
        self._grow_send_buffer()
        self._put_first()

    def await_controller(self) -> None:
        """Wait until a controller that was started again can be asked for circuits."""
        if self._is_new:
            self._wait_ready(None)
            self.go_around()

    def foresee(self, failed: Collection[Port]) -> None:
        """Have what `follow` needs of failed ports computed beforehand."""
        self.switches.foresee({self.fabric.link_at[port] for port in failed})

    def follow(self, failed: Collection[Port]) -> None:
        """Have packet switches have rules around failed ports; without a controller they get none.

        Hosts avoid what has failed from the beginning, and what works again once switches send over it.
        """
        links = frozenset(self.fabric.link_at[port] for port in failed)
        if self.has_hosts:
            self.hosts.follow(links | self._followed)
        if not self._without_controller:
            self.switches.follow(links)
            if links != self._followed:
                self._wait_ready(links)
        if self.has_hosts:
            self.hosts.follow(links)

    def go_around(self) -> None:
        """Have packet switches that route go around what is down, as a controller has others do by itself."""
        if not self._without_controller:
            self.switches.follow({self.fabric.link_at[port] for port in self.switches.down})

    def turn_links(self, links: Iterable[Link], *, works: bool) -> None:
        """Take links down at all their ends at switches, or up again."""
        self._turn([end for link in links for end in (link.a, link.b)], works=works)

    def turn_link(self, port: Port, *, works: bool) -> None:
        """Take the link at a port down, or up again, from the switch's side."""
        self._turn([port if port.node in self.fabric.switch_index else self.fabric.peer(port)], works=works)

    def _turn(self, ends: Iterable[Port], *, works: bool) -> None:
        ports = [port for port in ends if port.node in self.fabric.switch_index]
        turn_ports(self.wiring, ports, works=works)
        self.switches.turned(ports, works=works)

    def links_down(self) -> list[Link]:
        """Return the links of which an end at a switch is down; a server's own ends stay up."""
        down = ports_down(self.wiring)
        self.switches.found_down(down)
        return [link for link in self.fabric.links if {link.a, link.b} & down]

    def shape_link(self, port: Port, rate: float, loss: float) -> None:
        """Have the link at a port pass a share of its rate, both ways, and lose more packets than its own.

        Light does not queue: of a link to an OCS only the NIC's end is shaped. Packets that wait stay; they
        are lost where a link loses packets for the first time.

        Parameters
        ----------
        port
            Of the link, at either end.
        rate
            The share of the rate that it began with, above 0; 1 for all.
        loss
            The probability that a packet is lost in a direction; 0 for none.

        Raises
        ------
        ScenarioError
            If the rate or the loss is not a share.
        MachineError
            If packets are to be lost and the kernel has no netem; then nothing is changed.
        """
        if not 0 < rate <= 1:
            raise ScenarioError(f"a link cannot pass {rate:g} of its rate", "take above 0, and at most 1")
        if not 0 <= loss <= 1:
            raise ScenarioError(f"a link cannot lose {loss:g} of its packets", "take 0 to 1")
        link = self.fabric.link_at[port]
        if loss:
            check_netem({port: Netem(loss=loss)})
        self._shaped[link] = (rate, loss)
        self._set(self._netems(self.host, self._impaired, loss=self._loses))
        reshape(self.wiring, dict.fromkeys((link.a, link.b), rate), self.netems)

    def mend(self) -> None:
        """Start again what was killed, and wait until all is as it was at first."""
        if self._without_controller:
            self.revive("controller")
        if self._without_switches:
            self.revive("switches")
        for link, shaped in list(self._shaped.items()):
            if shaped != AS_IT_BEGAN:
                self.shape_link(link.a, *AS_IT_BEGAN)
        self._wait_ready(frozenset())
        self.follow(())

    def set_hosts(self, host: HostSettings) -> None:
        """Have the servers' TCP begin as another transport needs it, and links delay packets only for TCP.

        Raises
        ------
        ScenarioError
            If that takes a boot, or a delay is too short or too long to be emulated.
        MachineError
            If links are to delay packets and the kernel has no netem. In both cases nothing is changed.
        """
        if host == self.host:
            return
        if self._impaired is not None:
            check_delays(self.fabric, self._impaired, by_links=host.delays)
        netems = self._netems(host, self._impaired, loss=self._loses)
        check_netem({port: netem for port, netem in netems.items() if port not in self.netems})
        self.wiring, self.host = with_hosts(self.wiring, host), host
        if self.has_hosts:
            self.hosts.begin_as(host)
        self._set(netems)

    def _wait_ready(self, failed: frozenset[Link] | None) -> None:
        if self._is_new:
            self._await_listener()
        known = failed  # the controller hears of ports of switches that connect
        if failed is not None:
            known = frozenset(link for link in failed if self._connects(link.a) or self._connects(link.b))
        self.northbound.wait_ready(READY_S, known, check=self.check_alive)
        if failed is not None:
            self._followed = failed

    def _connects(self, port: Port) -> bool:
        """Return whether a port is of a switch that connects to the controller."""
        return port.node in self.fabric.switch_index and port.node not in self.wiring.routers

    def socket_of(self, server: int, *, kind: socket.SocketKind = socket.SOCK_DGRAM) -> socket.socket:
        """Return a new socket of a server."""
        with inside_namespace(self.wiring.namespaces[server]):
            return socket.socket(socket.AF_INET, kind)

    @property
    def hashing(self) -> Hashing:
        """Whose hash chooses the paths of packets."""
        return hashing_of(self.datapath)

    @property
    def endpoints(self) -> Endpoints:
        """How sockets are made in its servers."""
        control = self.host.congestion_control
        streams = partial(self.socket_of, kind=socket.SOCK_STREAM)
        return Endpoints(streams, lambda nic: nic_ip(self.fabric, nic), control)

    @property
    def datagram_endpoints(self) -> DatagramEndpoints:
        """How sockets of datagrams are made in its servers."""
        return self.datagrams_at(DATAGRAM_PORT)

    def datagrams_at(self, port: int) -> DatagramEndpoints:
        """Return how sockets of datagrams are made that go to a port, from the two after it."""

        def bound(server: int, address: str, port: int) -> socket.socket:
            endpoint = self.socket_of(server)
            endpoint.bind((address, port))
            return endpoint

        def of_nic(nic: Nic, port: int) -> socket.socket:
            return bound(nic.server, str(nic_ip(self.fabric, nic)), port)

        network_of = cache(partial(nic_network, self.fabric))  # of 64 addresses, each asked for
        return DatagramEndpoints(
            open_sender=partial(of_nic, port=port + 1),
            open_receiver=lambda server: bound(server, "", port),
            address=lambda nic, entropy: (str(in_network(network_of(nic), entropy)), port),
            open_control=partial(of_nic, port=port + 2),
        )

    def impair(self, time_factor: float, *, loss: bool = True) -> None:
        """Give links their delay, which is dilated, and their loss, which is not.

        Parameters
        ----------
        time_factor
            Emulated time over real time (`testbed.experiment.dilation.Dilation.time`); it may differ from one
            experiment to the next.
        loss
            Whether links lose packets: not while connections are made.

        Raises
        ------
        ScenarioError
            If a delay is too short or too long to be emulated.
        """
        check_delays(self.fabric, time_factor, by_links=self.host.delays)
        self._impaired, self._loses = time_factor, loss
        self._set(self._netems(self.host, time_factor, loss=loss))

    @contextmanager
    def unimpaired(self) -> Iterator[None]:
        """Have links neither delay nor lose packets inside the block."""
        before = self.netems
        self._set(self._netems(self.host, None))
        try:
            yield
        finally:
            self._set(before)

    def _set(self, netems: dict[Port, Netem]) -> None:
        """Have ports delay and lose packets so; what waits at one that has no netem yet is lost."""
        new = {port: netem for port, netem in netems.items() if port not in self.netems}
        shares = {end: rate for link, (rate, _) in self._shaped.items() for end in (link.a, link.b)}
        put_netems(self.wiring, new, shares)
        changed = {port: netem for port, netem in self.netems.items() if netem != netems[port]}
        set_netems(self.wiring, {port: netems[port] for port in changed})
        self.netems = netems

    def _netems(
        self, host: HostSettings, time_factor: float | None, *, loss: bool = True
    ) -> dict[Port, Netem]:
        """Return the netem of each port that has one already, or needs one."""
        # Through a veth pair and the kernel's datapath a packet stays charged to its sender's socket.
        orphan = self.datapath == "kernel"
        needed = link_netems(self.fabric, time_factor, loss=loss, delays=host.delays, orphan=orphan)
        netems = dict.fromkeys(self.netems, Netem()) | needed
        for link, (_, lost) in self._shaped.items():
            for end in (link.a, link.b) if lost else ():
                netems[end] = netems.get(end, Netem()).losing(lost)
        return netems

    def _boot(self, stack: ExitStack, mark: Mark) -> None:
        private, directory, routed = inside_sandbox(), self.directory, self.datapath == "route"
        bridged = bridges(self.fabric, self.datapath)
        if self.has_hosts:
            self._news = stack.enter_context(NewsSocket(directory / NEWS))
        self._controller = stack.enter_context(self._new_controller())
        self.openvswitch: PrivateOpenVSwitch | MachineOpenVSwitch
        self.openvswitch = (
            PrivateOpenVSwitch(directory, self.datapath) if private else MachineOpenVSwitch(self.datapath)
        )
        stack.enter_context(self.openvswitch)
        if not private:  # a private Open vSwitch ends with all its bridges and records
            remove_dead_runs()
            check_names(self.fabric, bridged)
            stack.callback(release, mark)
        queues = claim(mark)
        self.wiring = wire(
            self.fabric,
            self.rate_factor,
            private,
            self.netems,
            self.host,
            mark,
            self.mtu,
            hosts=self.has_hosts,
            routed=routed,
        )
        stack.callback(self.wiring.close)
        rules_around = partial(forwarding_rules, self.fabric, routing=self.routing, hosts=self.has_hosts)
        self.switches = SwitchRoutes(self.wiring, rules_around)
        if self.has_hosts:
            self.host_namespaces = stack.enter_context(HostNamespaces(self.wiring))
        self.routes = KernelRoutes(self.wiring) if self.fabric.servers_forward else None
        self._await_listener()
        if not private:
            stack.callback(delete_bridges, mark)
        make_bridges(
            self.fabric, bridged, directory / OPENFLOW, mark, queues, self.datapath, self.check_alive
        )
        if private and self.datapath != "kernel":
            adopt_taps(self.wiring)
        shape_switch_ports(self.wiring)
        self._grow_send_buffer()
        self._put_first()
        self.mininet = _mininet(self.wiring, self._entry, self._turn_by_hand)
        stack.callback(_end_shells, self.mininet)
        self.northbound = ControllerClient(directory / NORTHBOUND)
        if self.has_hosts:
            self.hosts = HostRoutes(self.wiring, self.northbound)
            if self._news:
                stack.enter_context(self._news.handed_to(self.hosts.heard))
        self.northbound.wait_ready(READY_S, check=self.check_alive)

    def _await_listener(self) -> None:
        """Wait until the controller listens; applications may ask it too, as whatever user they run."""
        _wait_for_listener(self._controller)
        self._is_new = False
        if self.has_hosts:
            self.directory.chmod(0o711)
            (self.directory / NORTHBOUND).chmod(0o666)

    def _new_controller(self, records: Sequence[OcsRecord] = ()) -> Child:
        """Return a controller's process; with ``records`` it takes over from one that was killed."""
        directory, routing = self.directory, self.routing
        (directory / "fabric.json").write_text(self.fabric.to_json())
        command = [sys.executable, "-m", "controller", "--fabric", str(directory / "fabric.json")]
        if routing:
            (directory / "routing.json").write_text(json.dumps(routing.document))
            command += ["--routing", str(directory / "routing.json")]
        if self.has_hosts:
            command.append("--hosts")
        if self.datapath == "route":
            command.append("--routed")
        if self._news:
            command += ["--news", str(self._news.path)]
        if records:
            (directory / "ocses.json").write_text(json.dumps([asdict(record) for record in records]))
            command += ["--ocses", str(directory / "ocses.json")]
        command += ["--openflow", str(directory / OPENFLOW), "--northbound", str(directory / NORTHBOUND)]
        # A user's routing is found where it was found here.
        searched = {"PYTHONPATH": os.pathsep.join([*sys.path, os.getcwd()])} if routing else {}
        return Child(command, directory / "controller.log", searched, heard=True)

    def _grow_send_buffer(self) -> None:
        ports = [port for port in self.fabric.link_at if self._connects(port)]
        self.send_buffer_bytes = 0
        if ports:
            want_bytes, port = _send_buffer_bytes(self.fabric, len(ports)), _probed_port(self.fabric, ports)
            self.send_buffer_bytes = self.openvswitch.set_send_buffer(want_bytes, port)

    def _entry(self, node: str) -> list[str]:
        """Return the words before a command's own by which it runs as root on a node with a namespace."""
        if self.has_hosts and node in self.fabric.server_index:
            return self.host_namespaces.entry(self.fabric.server_index[node], as_root=True)
        return ["nsenter", f"--net=/proc/{os.getpid()}/fd/{self.wiring.namespace_of(node)}", "--"]

    def _turn_by_hand(self, name: str, works: bool) -> None:
        """Take an interface of a switch that routes down, or up again, as Mininet's ``link`` does."""
        (port,) = (port for port in self.fabric.link_at if interface(self.fabric, port) == name)
        self.links_down()
        self.turn_link(port, works=works)
        self.go_around()

    def _put_first(self) -> None:
        """Have applications never keep Open vSwitch from a CPU."""
        if self.has_hosts:
            self.host_namespaces.precedence.put_first(self.openvswitch.pid)

    def _note_logs(self, error: BaseException) -> None:
        """Attach what the daemons and the controller wrote to an error; a traceback shows it."""
        for log in sorted(self.directory.glob("*.log")):
            if said := log.read_text(errors="replace").splitlines()[-LOG_LINES:]:
                error.add_note("\n".join([f"{log.name}:", *said]))


def _wait_for_listener(controller: Child) -> None:
    assert controller.stdout is not None
    poll = select.poll()
    poll.register(controller.stdout, select.POLLIN)
    if not poll.poll(READY_S * 1000):
        raise NetworkError(f"the controller does not listen after {READY_S:g} s")
    if not controller.stdout.readline():
        controller.wait()
        said = controller.log.read_text(errors="replace").strip().splitlines()
        raise NetworkError(f"the controller did not start: {said[-1] if said else 'it said nothing'}")


def _send_buffer_bytes(fabric: Fabric, ports: int) -> int:
    """Return what Open vSwitch's one sending socket must hold: all queues, a packet charged up to twice."""
    return min(max(2 * ports * fabric.buffer_bytes, LEAST_SEND_BUFFER_BYTES), MOST_SEND_BUFFER_BYTES)


def _probed_port(fabric: Fabric, ports: Iterable[Port]) -> Port:
    """Return a port of switches, a packet switch's if any: what leaves an OCS is held against its log."""
    return min(ports, key=lambda port: fabric.switches[fabric.switch_index[port.node]].kind == "ocs")


def _mininet(
    wiring: Wiring, entry: Callable[[str], Sequence[str]], turn: Callable[[str, bool], None]
) -> LiveMininet:
    fabric = wiring.fabric
    # Mininet's own start-up raises limits of the whole machine (fs.file-max, net.core.*): not here.
    Mininet.inited = True
    network = LiveMininet(topo=None, build=False, controller=None, waitConnected=False)
    for server in fabric.servers:
        network.addHost(server.name, cls=LiveServer, inNamespace=False, entry=entry(server.name))
    for name in (switch.name for switch in fabric.switches):
        dpid = f"{datapath_id(fabric, name):016x}"
        if name in wiring.routers:
            network.addSwitch(name, cls=LiveRouter, dpid=dpid, entry=entry(name), turn=turn)
        else:
            network.addSwitch(name, cls=LiveSwitch, dpid=dpid, protocols="OpenFlow13")
    for link in fabric.links:
        ends = [_mininet_end(fabric, port) for port in (link.a, link.b)]
        network.addLink(
            *(port.node for port in (link.a, link.b)),
            *(number for number, _ in ends),
            cls=LiveLink,
            intf=LiveIntf,
            intfName1=interface(fabric, link.a),
            intfName2=interface(fabric, link.b),
            params1=ends[0][1],
            params2=ends[1][1],
        )
    network.built = True
    return network


def _mininet_end(fabric: Fabric, port: Port) -> tuple[int, dict[str, str]]:
    """Return a port's number in Mininet, and the parameters of its interface."""
    if port.node in fabric.switch_index:
        return openflow_port(port.number), {}
    return port.number, {"ip": str(nic_ip(fabric, Nic(fabric.server_index[port.node], port.number)))}


def _end_shells(network: LiveMininet) -> None:
    for node in (*network.hosts, *network.switches):
        node.terminate()
