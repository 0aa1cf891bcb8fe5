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
    Lines,
    Logo,
    MaskMap,
    PointMaps,
    Projector,
    Reading,
    Ribbons,
    Scatter,
    SeriesMaps,
    Surprise,
    Tagged,
)
from regard.look.page.document import (
    Choices,
    Component,
    Facts,
    Links,
    Page,
    Sequences,
    Table,
    Text,
)

__all__ = [
    "AttentionMaps",
    "Bars",
    "BeamTree",
    "Choices",
    "Component",
    "Contributions",
    "Distribution",
    "Facts",
    "Forecasts",
    "Heatmap",
    "Histogram",
    "ImageMaps",
    "Lines",
    "Links",
    "Logo",
    "MaskMap",
    "Page",
    "PointMaps",
    "Projector",
    "Reading",
    "Ribbons",
    "Scatter",
    "Sequences",
    "SeriesMaps",
    "Surprise",
    "Table",
    "Tagged",
    "Text",
]
