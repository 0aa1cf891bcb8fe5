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
    Scatter,
    SeriesMaps,
    Surprise,
    Tagged,
)
from regard.look.page.document import Component, Facts, Links, Page, Sequences, Table, Text
from regard.look.page.records import (
    Answer,
    Confusion,
    MoleculeMaps,
    RecordList,
    ShownRecord,
    ValueRange,
)

__all__ = [
    "Answer",
    "AttentionMaps",
    "Bars",
    "BeamTree",
    "Component",
    "Confusion",
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
    "MoleculeMaps",
    "Page",
    "PointMaps",
    "Projector",
    "RecordList",
    "Scatter",
    "Sequences",
    "SeriesMaps",
    "ShownRecord",
    "Surprise",
    "Table",
    "Tagged",
    "Text",
    "ValueRange",
]
