"""Delegation GPUs: which GPU of a server a NIC belongs to, for what is gathered before it crosses."""

from topologies.fabric import Server


def delegation_gpu(server: Server, nic: int) -> int:
    """Return the GPU that a NIC belongs to: NIC k to GPU floor(k G / NICs) of G GPUs."""
    return nic * server.gpus // server.nics
