"""The options that several InfiniteHBD scenarios have."""

from typing import Annotated

import typer

Nodes = Annotated[int, typer.Option(help="Nodes of the cluster, or of the K-hop ring.")]
NodeGpus = Annotated[int, typer.Option(help="R, GPUs of a node; over circuits it has as many bundles.")]
TorNodes = Annotated[int, typer.Option(help="Nodes under a ToR; 2 is fitted to the paper.")]
DomainNodes = Annotated[int, typer.Option(help="Nodes of a domain of the aggregation layer.")]
Tp = Annotated[int, typer.Option(help="GPUs of a TP group, whole nodes.")]
Hops = Annotated[int, typer.Option(help="K, how far a bundle reaches along the line of nodes.")]
