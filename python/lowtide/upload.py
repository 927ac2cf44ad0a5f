"""Uploads telemetry to an object store, or any other place that pyarrow knows: `python -m lowtide.upload DIR URL`.

    python -m lowtide.upload /var/lib/lowtide/telemetry s3://bucket/telemetry?endpoint_override=http://127.0.0.1:9000

Files that are there with the same size are left out, so it may be run again and again, from a timer. A file is there whole or not at
all: stores make it visible when it is closed, and on file systems it is renamed then. One that cannot be uploaded is said and counted,
and the others are.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import shutil
import sys
from typing import Dict, List, Tuple, Union

import pyarrow as pa
from pyarrow import fs

from .store import plain

__all__ = ["upload"]


def _there(store: fs.FileSystem, root: str) -> Dict[str, int]:
    """Files below a folder of the store, with their sizes."""
    selector = fs.FileSelector(root, allow_not_found=True, recursive=True)
    return {info.path: info.size for info in store.get_file_info(selector) if info.type == fs.FileType.File}


def _put(file: pathlib.Path, store: fs.FileSystem, path: str) -> None:
    folder, name = path.rsplit("/", 1)
    local = isinstance(store, fs.LocalFileSystem)
    # Stores know no folders, and need none.
    if local:
        store.create_dir(folder, recursive=True)
    target = f"{folder}/.{name}.tmp" if local else path
    with file.open("rb") as source, store.open_output_stream(target) as sink:
        shutil.copyfileobj(source, sink, 1 << 20)
    if local:
        store.move(target, path)


def upload(folder: Union[str, "os.PathLike[str]"], url: str) -> Tuple[int, List[str]]:
    """Uploads telemetry: how many files went there, and why others did not."""
    store, root = fs.FileSystem.from_uri(url)
    root = root.rstrip("/")
    there = _there(store, root)
    base, count, troubles = pathlib.Path(folder), 0, []
    for file in sorted(base.glob("day=*/host=*/*.parquet")):
        path = f"{root}/{file.relative_to(base).as_posix()}"
        try:
            # Hidden ones are not whole yet; those that have gone since were too old to be kept.
            if file.name.startswith(".") or there.get(path) == file.stat().st_size:
                continue
            _put(file, store, path)
            count += 1
        except FileNotFoundError:
            continue
        except (OSError, pa.ArrowException) as error:
            troubles.append(f"{file}: {error}")
    return count, troubles


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m lowtide.upload", description="Uploads telemetry to an object store.")
    parser.add_argument("folder", help="telemetry: a folder with day=.../host=... in it")
    parser.add_argument("url", help="s3://BUCKET/PATH, gs://BUCKET/PATH, file:///PATH")
    arguments = parser.parse_args()
    if not pathlib.Path(arguments.folder).is_dir():
        parser.error(f"{arguments.folder}: no such folder")
    try:
        count, troubles = upload(arguments.folder, arguments.url)
    except (OSError, ValueError, pa.ArrowException) as error:
        print(f"{plain(arguments.url)}: {error}", file=sys.stderr)
        return 1
    for trouble in troubles:
        print(trouble, file=sys.stderr)
    print(f"{count} files uploaded" + (f", {len(troubles)} not" if troubles else ""))
    return 1 if troubles else 0


if __name__ == "__main__":
    sys.exit(main())
