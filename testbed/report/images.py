"""A figure as a file: PNG, PDF or SVG, equal bytes from equal figures."""

from io import BytesIO

from matplotlib import rc_context
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from testbed.report.page import Format
from testbed.report.palette import styled

DOTS_PER_INCH = 160
_embedded = rc_context({"pdf.fonttype": 42, "svg.fonttype": "none", "svg.hashsalt": "lightrail"})
"""TrueType fonts in a PDF, which publishers ask for; in an SVG letters stay letters."""
UNDATED: dict[Format, dict[str, None]] = {"pdf": {"CreationDate": None}, "svg": {"Date": None}}


@styled
@_embedded
def image_of(figure: Figure, form: Format) -> bytes:
    """Return a figure as an image."""
    file = BytesIO()
    if form == "png":
        figure.set_dpi(DOTS_PER_INCH)
        # `savefig` draws twice, first for the layout alone; level 6 takes twice as long, for the same size.
        canvas = FigureCanvasAgg(figure)
        canvas.print_png(file, pil_kwargs={"compress_level": 3})  # type: ignore[no-untyped-call]
    else:
        figure.savefig(file, format=form, metadata=UNDATED[form])
    return file.getvalue()
