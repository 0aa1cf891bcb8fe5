"""Other people's formats, read and written."""

from regard.interop.hugging_face import export_hf, import_hf

__all__ = ["export_hf", "import_hf"]
