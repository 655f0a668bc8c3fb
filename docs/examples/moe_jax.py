r"""A mixture-of-experts layer in JAX: each process holds some experts, and tokens cross the network to them.

    sudo python scenarios/app.py rail --set servers=4 --set rails=2 --launch jax -- \
        .venv/bin/python docs/examples/moe_jax.py

A dense layer, a router (top-k), experts of two layers each, and a residual connection learn a fixed function
by gradient descent. A step has four all-to-alls (tokens to their experts and back, gradients likewise), and
AllReduces of the gradients of what all processes hold. Without a launcher, four processes (`--size`) train
over loopback.
"""

import argparse
import os
import socket
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

Parameters = dict[str, Array]
ALL_TO_ALLS_A_STEP = 4
"""Tokens to their experts, results back, and the gradients of both."""
HEARTBEAT_S = 10
SHARED = ("dense", "router")
"""Parameters that every process holds; the experts' weights belong to one each."""


def options() -> argparse.Namespace:
    """Return the sizes of the layer: real bytes follow from them."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=10, help="steps of gradient descent")
    parser.add_argument("--tokens", type=int, default=512, help="tokens of each process in a step")
    parser.add_argument("--width", type=int, default=256, help="numbers in a token")
    parser.add_argument("--hidden", type=int, default=256, help="width of an expert's inner layer")
    parser.add_argument("--experts", type=int, default=2, help="experts of each process")
    parser.add_argument("--top-k", type=int, default=2, help="experts of a token")
    parser.add_argument("--capacity", type=float, default=1.25, help="room of an expert over its even share")
    parser.add_argument("--rate", type=float, default=0.05, help="learning rate")
    parser.add_argument("--demand", help="a file for the bytes that the shapes say, which app.py reads")
    parser.add_argument(
        "--size", type=int, default=4, help="processes on loopback, where no launcher starts them"
    )
    return parser.parse_args()


def main() -> None:
    """Train; or start the processes that do, on loopback."""
    chosen = options()
    if "LIGHTRAIL_RANK" not in os.environ:
        sys.exit(on_loopback(chosen.size))
    rank, size = int(os.environ["LIGHTRAIL_RANK"]), int(os.environ["LIGHTRAIL_SIZE"])
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    # A lost process is noticed after its heartbeat: after 100 s by default.
    coordinator = os.environ["JAX_COORDINATOR_ADDRESS"]
    jax.distributed.initialize(coordinator, size, rank, heartbeat_timeout_seconds=HEARTBEAT_S)
    train(chosen, rank, size)


def train(chosen: argparse.Namespace, rank: int, size: int) -> None:
    """Print the loss of each step, and the bytes that the shapes say were sent."""
    mesh = Mesh(np.array(jax.devices()), ("process",))
    tokens, wanted = examples(chosen, mesh, size)
    parameters = initial(chosen, mesh, size)
    room = int(np.ceil(chosen.top_k * chosen.tokens / (chosen.experts * size) * chosen.capacity))
    step = jax.jit(one_step(mesh, chosen.top_k, room, chosen.rate))
    for number in range(chosen.steps):
        loss, parameters = step(parameters, tokens, wanted)
        if rank == 0:
            print(f"step {number} loss {float(loss):.9f}", flush=True)
    if rank == 0:
        show_bytes(chosen, size, chosen.experts * room * chosen.width, parameters)


def examples(chosen: argparse.Namespace, mesh: Mesh, size: int) -> tuple[Array, Array]:
    """Return tokens of all processes and what the layer should make of them: [process * tokens, width]."""
    draw = np.random.default_rng(0)
    tokens = draw.standard_normal((size * chosen.tokens, chosen.width), np.float32)
    teacher = draw.standard_normal((chosen.width, chosen.width), np.float32) / np.sqrt(chosen.width)
    return sharded(tokens, mesh), sharded(np.tanh(tokens @ teacher), mesh)


def initial(chosen: argparse.Namespace, mesh: Mesh, size: int) -> Parameters:
    """Return weights: `dense` and `router` of all processes, `up` and `down` by expert, sharded."""
    draw, experts = np.random.default_rng(1), chosen.experts * size
    shapes = {
        "dense": (chosen.width, chosen.width),
        "router": (chosen.width, experts),
        "up": (experts, chosen.width, chosen.hidden),
        "down": (experts, chosen.hidden, chosen.width),
    }
    weights = {name: draw.standard_normal(shape, np.float32) for name, shape in shapes.items()}
    scaled = {name: each / np.float32(np.sqrt(each.shape[-2])) for name, each in weights.items()}
    return {name: sharded(each, mesh, name in SHARED) for name, each in scaled.items()}


def sharded(whole: np.ndarray, mesh: Mesh, is_shared: bool = False) -> Array:
    """Return an array of which each process holds its part of the first axis, or all of it."""
    how = NamedSharding(mesh, PartitionSpec() if is_shared else PartitionSpec("process"))
    return jax.make_array_from_callback(whole.shape, how, lambda part: whole[part])


def one_step(mesh: Mesh, top_k: int, room: int, rate: float):  # noqa: ANN201  # a function of the arrays above
    """Return a function: parameters, tokens and wanted results to the loss and better parameters."""
    each, all_of_it = PartitionSpec("process"), PartitionSpec()
    places = {"dense": all_of_it, "router": all_of_it, "up": each, "down": each}

    def loss_here(parameters: Parameters, tokens: Array, wanted: Array) -> Array:
        error = layer(parameters, tokens, top_k, room) - wanted
        return lax.pmean(jnp.mean(jnp.sum(error**2, axis=1)), "process")

    loss = jax.shard_map(loss_here, mesh=mesh, in_specs=(places, each, each), out_specs=all_of_it)

    def step(parameters: Parameters, tokens: Array, wanted: Array) -> tuple[Array, Parameters]:
        value, slope = jax.value_and_grad(loss)(parameters, tokens, wanted)
        return value, {name: parameters[name] - rate * slope[name] for name in parameters}

    return step


def layer(parameters: Parameters, tokens: Array, top_k: int, room: int) -> Array:
    """Return the output of the layer for the tokens of this process.

    `room` tokens of each process fit into an expert; a token that finds none goes past it.
    """
    tokens = jnp.tanh(tokens @ parameters["dense"])
    gates, chosen = lax.top_k(jax.nn.softmax(tokens @ parameters["router"]), top_k)
    gates, chosen = gates.reshape(-1), chosen.reshape(-1)  # token 0's experts, token 1's ...
    experts = parameters["router"].shape[1]
    is_chosen = jax.nn.one_hot(chosen, experts, dtype=jnp.int32)
    place = jnp.sum((jnp.cumsum(is_chosen, axis=0) - 1) * is_chosen, axis=1)
    owner = jnp.arange(len(chosen)) // top_k
    to_experts = jnp.zeros((experts, room, tokens.shape[1])).at[chosen, place].set(tokens[owner], mode="drop")
    from_experts = exchange(at_experts(parameters, exchange(to_experts)))
    answers = from_experts.at[chosen, place].get(mode="fill", fill_value=0) * gates[:, None]
    return tokens + jnp.zeros_like(tokens).at[owner].add(answers)


def at_experts(parameters: Parameters, arrived: Array) -> Array:
    """Return the output of this process' experts for the tokens of all: [sender * expert, room, width]."""
    here = parameters["up"].shape[0]
    by_expert = arrived.reshape(-1, here, *arrived.shape[1:])
    inner = jax.nn.relu(jnp.einsum("sert,eth->serh", by_expert, parameters["up"]))
    return jnp.einsum("serh,eht->sert", inner, parameters["down"]).reshape(arrived.shape)


def exchange(blocks: Array) -> Array:
    """Return the blocks for this process' experts, by sender; and the same again undoes it."""
    return lax.all_to_all(blocks, "process", split_axis=0, concat_axis=0, tiled=True)


def show_bytes(chosen: argparse.Namespace, size: int, block: int, parameters: Parameters) -> None:
    """Print what the shapes say that each process sent to each in all steps, payload alone."""
    a_pair = chosen.steps * ALL_TO_ALLS_A_STEP * block * 4
    pairs = a_pair * (1 - np.eye(size, dtype=np.int64))
    shared = sum(parameters[name].size for name in SHARED) * 4
    a_ring = chosen.steps * shared * 2 * (size - 1) // size
    ring = a_ring * np.roll(np.eye(size, dtype=np.int64), -1, axis=1)
    show("bytes of all-to-alls, from each process (row) to each (column):", pairs)
    show("bytes of AllReduces, a ring in which each sends to the one before:", ring)
    if chosen.demand:
        np.savetxt(chosen.demand, pairs + ring, fmt="%d", delimiter=",")


def show(title: str, matrix: np.ndarray) -> None:
    """Print a matrix as CSV."""
    rows = (",".join(map(str, row)) for row in matrix.tolist())
    print(title, *rows, sep="\n", flush=True)


def on_loopback(size: int) -> int:
    """Return the exit code of `size` processes of this program on loopback: the first that is not 0."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        coordinator = f"127.0.0.1:{free.getsockname()[1]}"
    common = os.environ | {"LIGHTRAIL_SIZE": str(size), "JAX_COORDINATOR_ADDRESS": coordinator}
    processes = [
        subprocess.Popen([sys.executable, *sys.argv], env=common | {"LIGHTRAIL_RANK": str(rank)})
        for rank in range(size)
    ]
    codes = [process.wait() for process in processes]
    return next((code for code in codes if code), 0)


if __name__ == "__main__":
    main()
