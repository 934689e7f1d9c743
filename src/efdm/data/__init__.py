"""Read and write pictures.

`read_picture` and `write_picture` are for single files, `find_pictures` for folders and zips, `ImageSet` for style training,
and `load_domains` and `from_datasets` for labelled pictures of several domains. A `PictureError` explains what is wrong with
a file.
"""

from efdm.errors import requires

with requires("style"):
    from efdm.data.domains import DomainSet, load_domains
    from efdm.data.folders import Source, find_pictures
    from efdm.data.image_set import Crops, ImageSet, draw_crops, take_crops
    from efdm.data.images import (
        Picture,
        PictureError,
        on_white,
        read_mask,
        read_picture,
        resize,
        resize_short_side,
        write_picture,
    )
    from efdm.data.picture_formats import READABLE, WRITABLE
    from efdm.data.torch_datasets import from_datasets

__all__ = [
    "READABLE", "WRITABLE", "Crops", "DomainSet", "ImageSet", "Picture", "PictureError", "Source", "draw_crops",
    "find_pictures", "from_datasets", "load_domains", "on_white", "read_mask", "read_picture", "resize", "resize_short_side",
    "take_crops", "write_picture",
]  # fmt: skip
