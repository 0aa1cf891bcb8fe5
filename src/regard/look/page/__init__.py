"""The one set of HTML components: every page of the product is a `Page` filled with them.

A component is plain data; `Page.render` puts it into JSON blocks of one self-contained file and the
scripts under `assets/` draw it. Tokens are text everywhere: no data ever becomes markup.
"""

from .charts import Bars, Histogram, Lines
from .clouds import Space
from .component import Component
from .document import Page
from .maps import Attention, Heatmap, Mask
from .pictures import Picture
from .points import Projector, Scatter
from .prose import Facts, Links, Sequences, Table, Text
from .symbols import BeamTree, Contributions, Distribution, Logo, Surprise, Tagged

__all__ = [
    "Attention",
    "Bars",
    "BeamTree",
    "Component",
    "Contributions",
    "Distribution",
    "Facts",
    "Heatmap",
    "Histogram",
    "Lines",
    "Links",
    "Logo",
    "Mask",
    "Page",
    "Picture",
    "Projector",
    "Scatter",
    "Sequences",
    "Space",
    "Surprise",
    "Table",
    "Tagged",
    "Text",
]
