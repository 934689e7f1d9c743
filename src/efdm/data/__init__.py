"""Reading and writing pictures: `read_picture` and `write_picture` for single files, `find_pictures` for folders and zips,
and `ImageSet` for training, whose `Pack` is cropped on the GPU. A `PictureError` explains what is wrong with a file."""

from efdm.errors import requires

with requires("style"):
    from efdm.data.folders import Source, find_pictures
    from efdm.data.image_set import Crops, ImageSet, Pack, draw_crops, take_crops
    from efdm.data.images import (
        READABLE,
        WRITABLE,
        Picture,
        PictureError,
        on_white,
        read_mask,
        read_picture,
        resize,
        resize_short_side,
        write_picture,
    )

__all__ = [
    "READABLE",
    "WRITABLE",
    "Crops",
    "ImageSet",
    "Pack",
    "Picture",
    "PictureError",
    "Source",
    "draw_crops",
    "find_pictures",
    "on_white",
    "read_mask",
    "read_picture",
    "resize",
    "resize_short_side",
    "take_crops",
    "write_picture",
]
