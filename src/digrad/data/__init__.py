"""Images and text: where the original files are, how they are read and fetched.

Also who holds which part of them (``splits``, ``shards``). No models and no training. Read
``sets`` first.
"""

from digrad.base.data_folders import MissingDataError, data_folder
from digrad.data.fetching import FetchError, fetch
from digrad.data.formats import read_text
from digrad.data.images import Images, LabeledImages, counts_of
from digrad.data.sets import DATASETS, Dataset, find_files, read_images

__all__ = [
    "DATASETS",
    "Dataset",
    "FetchError",
    "Images",
    "LabeledImages",
    "MissingDataError",
    "counts_of",
    "data_folder",
    "fetch",
    "find_files",
    "read_images",
    "read_text",
]
