"""The one set of HTML components: every page of the product is a `Page` filled with them.

A component is plain data; `Page.render` puts it into JSON blocks of one self-contained file and the
scripts under `assets/` draw it. Tokens are text everywhere: no data ever becomes markup.
"""

from regard.look.page.charts import (
    AttentionMaps,
    Bars,
    Heatmap,
    Histogram,
    Lines,
    MaskMap,
    Projector,
    Scatter,
)
from regard.look.page.component import Component
from regard.look.page.document import Page
from regard.look.page.media import Picture, Space
from regard.look.page.prose import Facts, Links, Sequences, Table, Text
from regard.look.page.symbols import BeamTree, Contributions, Distribution, Logo, Surprise, Tagged

__all__ = [
    "AttentionMaps",
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
    "MaskMap",
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
