"""Compiles the .proto files of the lock service: `python -m scripts.generate_protos`.

The result is one `FileDescriptorSet`, committed next to its sources. The lock service loads it at
run time, so neither it nor its clients need protoc.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Final

from grpc_tools import protoc

PROTOS: Final = Path(__file__).parents[1] / "src" / "tidelock" / "lock" / "server" / "protos"
TARGET: Final = PROTOS / "lockservice.binpb"


def compiled() -> bytes:
    """Return the serialized descriptor set of all .proto files, imports included."""
    well_known = Path(protoc.__file__).parent / "_proto"
    sources = sorted(path.name for path in PROTOS.glob("*.proto"))
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / TARGET.name
        options = [f"-I{PROTOS}", f"-I{well_known}", "--include_imports"]
        status = protoc.main(["protoc", *options, f"--descriptor_set_out={target}", *sources])
        if status != 0:
            raise SystemExit(status)
        return target.read_bytes()


def main() -> None:
    """Write the descriptor set."""
    TARGET.write_bytes(compiled())
    sys.stdout.write(f"{TARGET.relative_to(Path.cwd())}\n")


if __name__ == "__main__":
    main()
