"""HTML components: every page is a `Page` filled with them.

A component is plain data; `Page.render` puts it into JSON blocks of one self-contained file, and
the scripts under `assets/` draw it. Tokens are text everywhere: data never becomes markup.
"""

from regard.look.page.charts import (
    AttentionMaps,
    Bars,
    BeamTree,
    Contributions,
    Distribution,
    Forecasts,
    Heatmap,
    Histogram,
    ImageMaps,
    Intervals,
    Lines,
    Logo,
    MaskMap,
    PointMaps,
    Projector,
    Scatter,
    SeriesMaps,
    Surprise,
    Tagged,
)
from regard.look.page.document import Component, Facts, Links, Page, Sequences, Table, Text

__all__ = [
    "AttentionMaps",
    "Bars",
    "BeamTree",
    "Component",
    "Contributions",
    "Distribution",
    "Facts",
    "Forecasts",
    "Heatmap",
    "Histogram",
    "ImageMaps",
    "Intervals",
    "Lines",
    "Links",
    "Logo",
    "MaskMap",
    "Page",
    "PointMaps",
    "Projector",
    "Scatter",
    "Sequences",
    "SeriesMaps",
    "Surprise",
    "Table",
    "Tagged",
    "Text",
]
