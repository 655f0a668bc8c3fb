"""Small files of each format, as the programs that own the formats write them."""

import json
from pathlib import Path


def written(directory: Path, content: str, name: str = "trace.txt") -> Path:
    """Write a text to a file and return its path."""
    path = directory / name
    path.write_text(content)
    return path


HTSIM = """# a comment
Nodes 4
Connections 3
0->1 id 1 start 0 size 2000 # and another
0->2 id 2 start 0 size 500 prio 3
3->2 start 0 size 7
"""


MICE = """Nodes 5
Connections 4
4->0 id 1 start 7 size 20000000
1->0 id 2 start 57 size 200000
2->0 id 3 start 57 size 200000
3->0 id 4 start 107 size 200000
"""
"""Connections whose starts differ."""


TRIGGERED = """Nodes 4
Connections 5
Triggers 3
3->0 id 5 trigger 3 size 50
0->1 id 1 start 0 size 10 send_done_trigger 1
0->2 id 2 start 0 size 20 recv_done_trigger 1
1->2 id 3 trigger 1 size 30 send_done_trigger 2 recv_done_trigger 3
2->3 id 4 trigger 2 size 40
trigger id 1 barrier count 2
trigger id 2 oneshot
trigger id 3 oneshot
"""


AICB_HEADER = (
    "comm_type,comm_group,comm_group_size,msg_size,stage,dst,src,additional,_elapsed_time,algbw,busbw,count"
)
OLD_HEADER = AICB_HEADER.replace("comm_group_size,", "")


def aicb_row(
    operation: str,
    group: str,
    size: object,
    group_size: object = None,
    elapsed: object = None,
    stage: str = "forward.MoE",
) -> str:
    """Return a row as AICB writes it."""
    left = f"CommType.{operation},CommGroup.{group},{group_size},{size}"
    return f"{left},{stage},None,None,,{elapsed},None,None,1"


AICB_END = "CommType.epoch_end,,None,0,,None,None,,433.2,None,None,1"
"""The row that ends an epoch."""
AICB_LOG = "\n".join(
    [
        AICB_HEADER,
        aicb_row("all_reduce", "dp_group", 8, 4, 3380.2, "init.model_setup"),
        AICB_END,
        aicb_row("all_gather", "tp_group", 65536, 2, 0.2),
        aicb_row("all_to_all", "tp_group", 77, 2, 0.2),
        aicb_row("all_to_all", "ep_group", 4096, None, 0.5),
        aicb_row("all_to_all", "ep_group", 8192, None, 0.7),
        aicb_row("all_to_all", "ep_group", 4096, None, 0.6),
        AICB_END,
        aicb_row("all_to_all", "ep_group", 16384, None, 0.3),
        AICB_END,
        "",
    ]
)


def router_record(step: int, layer: int, rank: int, chosen: list[list[int]], **other: object) -> str:
    """Return a line of a router trace."""
    told = {"num_tokens": len(chosen), "topk": len(chosen[0]) if chosen else 2}
    line = {"step": step, "stage": "forward", "block": "decoder", "layer": layer, "rank": rank} | told
    return json.dumps(line | {"top_indices": chosen} | other) + "\n"
