"""Made models on disk: where they are kept, and how a folder comes to be complete or not at all."""
from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_CHUNK = 1 << 20


def models_root() -> Path:
    """models/ of a checkout, or a folder of the user's cache for an installed package."""
    checkout = Path(__file__).resolve().parents[3]
    if (checkout / "Makefile").is_file() and (checkout / "python" / "onnxruntime_ep_mlx").is_dir():
        return checkout / "models"
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "onnxruntime_ep_mlx"


def content_hash(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


@contextmanager
def new_folder(final: Path) -> Iterator[Path]:
    """A temporary folder that becomes `final` when the block ends well, and vanishes when it does not.

    When another process made `final` meanwhile, that one is kept.
    """
    final.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=f".{final.name}.", dir=final.parent))
    try:
        yield temporary
        temporary.chmod(0o755)
        try:
            temporary.rename(final)
        except OSError:
            if not final.is_dir():
                raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
