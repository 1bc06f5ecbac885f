"""Hook of MkDocs: a link to a file beside the documents, which the site does not have, becomes its path."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parent
_LINK = re.compile(r"\[([^\]]*)\]\(((?:\.\./)[^)#\s]*)(#[^)\s]*)?\)")


def on_page_markdown(markdown: str, *, page: Any, **_more: object) -> str:  # noqa: ANN401 - MkDocs' own type
    """Called by MkDocs with the text of each page."""
    folder = (DOCS / page.file.src_uri).parent

    def plain(link: re.Match[str]) -> str:
        target = (folder / link[2]).resolve()
        return link[0] if target.is_relative_to(DOCS) else f"{link[1]} (`{target.relative_to(DOCS.parent)}`)"

    return _LINK.sub(plain, markdown)
