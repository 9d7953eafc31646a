"""Read images from what tools return: content blocks of LangChain, MCP, OpenAI and Anthropic, checked and bounded."""

import base64
import binascii
from collections.abc import Iterator, Mapping
from typing import Any

from langchain_core.messages import BaseMessage

from donewhen.state.channels import Json

MOST_IMAGES = 20
"""The most images of one result."""
IMAGE_CHARS, MOST_CHARS = 7_000_000, 21_000_000
"""The most characters in base64 of an image, about 5 MB, which is what providers take, and of all of a result."""
NOT_KEPT = "{count} of its images cannot be shown: models take PNG, JPEG, GIF and WebP, given as data, of at most 5 MB"
_KINDS = ("image", "image_url", "input_image", "file")
_CARRIERS = ("base64", "data", "source", "image_url", "url")
_BEGINNINGS = {b"\x89PNG\r\n\x1a\n": "png", b"\xff\xd8\xff": "jpeg", b"GIF87a": "gif", b"GIF89a": "gif"}


def images_in(value: Any) -> tuple[list[Json], int]:
    """Return the images in a tool's value, as standard content blocks, and how many others cannot be shown.

    The type is read from the data, because providers refuse an image with the wrong type. Images given as an address
    are not shown, because the provider would fetch whatever address a tool names.
    """
    value = value.content if isinstance(value, BaseMessage) else value
    images, others, room = list[Json](), 0, MOST_CHARS
    for block in _blocks(value):
        data = _data_of(block)
        kind = _kind_of(data) if len(images) < MOST_IMAGES and len(data) <= min(room, IMAGE_CHARS) else ""
        if kind:
            images.append({"type": "image", "base64": data, "mime_type": f"image/{kind}"})
            room -= len(data)
        elif block["type"] != "file":
            others += 1
    return images, others


def _blocks(value: Any) -> Iterator[Mapping[str, Any]]:
    for block in value if isinstance(value, list) else ():
        if isinstance(block, dict) and block.get("type") in _KINDS and any(key in block for key in _CARRIERS):
            yield block


def _data_of(block: Mapping[str, Any]) -> str:
    """Return the data of a block in base64; "" if it has none."""
    data = next(block[key] for key in _CARRIERS if key in block)
    if isinstance(data, Mapping):
        data = data.get("data") or data.get("url")
    if isinstance(data, bytes):
        return base64.b64encode(data).decode()
    if not isinstance(data, str):
        return ""
    if data.startswith("data:"):
        data = data.partition(";base64,")[2]
    return data if data.isalnum() else "".join(data.split())


def _kind_of(data: str) -> str:
    """Return the format of the image, if it is one that models take; "" for anything else."""
    try:
        raw = binascii.a2b_base64(data, strict_mode=True)
    except ValueError:
        return ""
    if raw[:4] == b"RIFF" and raw[8:12] == b"WEBP":
        return "webp"
    return next((kind for start, kind in _BEGINNINGS.items() if raw.startswith(start)), "")
