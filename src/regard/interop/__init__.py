"""Other people's formats, read and written."""

from regard.interop.hugging_face import export_hf, import_hf
from regard.interop.word2vec_format import export_vec, import_vec

__all__ = ["export_hf", "export_vec", "import_hf", "import_vec"]
