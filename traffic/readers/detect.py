"""A file of any known format as a collective: the format is told from the content, never the name."""

from pathlib import Path

from traffic.collective import Collective, single
from traffic.readers.aicb import is_aicb, read_aicb
from traffic.readers.htsim import HEADERS, read_htsim
from traffic.readers.mixnet import read_mixnet
from traffic.readers.nccl import read_nccl
from traffic.readers.text import bad_line, text_of
from traffic.workloads import HIDDEN, NUMBER_BYTES

KNOWN = "the start of an nccl-tests matrix, MixNet's list of lists, htsim's .cm or AICB's CSV"


def read_collective(
    path: Path | str,
    *,
    gpus: int | None = None,
    bytes_per_token: int = HIDDEN * NUMBER_BYTES,
    all_to_alls: int | None = None,
) -> Collective:
    """Return the collective that a file describes.

    Parameters
    ----------
    path
        An nccl-tests matrix, MixNet's list of lists, htsim's connection matrix, or AICB's CSV.
    gpus
        How many GPUs, used only where the format leaves it open (AICB without group sizes).
    bytes_per_token
        Size of a token, used only where the format counts tokens (MixNet) [bytes].
    all_to_alls
        At most so many steps, the first ones; by default all.

    Returns
    -------
    Collective
        Between as many GPUs as the file says; `traffic.placement.placed` puts it on a fabric.

    Raises
    ------
    TraceError
        If the file cannot be read as any of the formats; it says what was expected where.
    """
    path = Path(path)
    first = next(line for line in text_of(path).splitlines() if line.strip())
    if is_aicb(first):
        return read_aicb(path, gpus=gpus, all_to_alls=all_to_alls)
    if first.lstrip().startswith("["):
        return single(read_mixnet(path, bytes_per_token=bytes_per_token))
    if first.split()[0] in HEADERS or first.startswith("#"):
        collective = read_htsim(path)
        return Collective(collective.name, collective.steps[:all_to_alls], collective.note)
    if _is_number(first.split()[0]):
        return single(read_nccl(path))
    raise bad_line(path, 1, first, KNOWN)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
