"""Start a store and print its address: ``python -m tests.emulators.object_store --forget``."""

from __future__ import annotations

import argparse
import json
import sys

from .server import ObjectStore, authority


def main() -> None:
    """Serve until standard input ends; each line names buckets to create or sparse objects."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--dialect", default="aws")
    parser.add_argument("--forget", action="store_true")
    parser.add_argument("--tls", help="file for the certificate of the authority")
    parser.add_argument("--bucket", default="bucket")
    options = parser.parse_args()
    with ObjectStore(options.dialect, keep=not options.forget, tls=bool(options.tls)) as store:
        store.create(options.bucket)
        if options.tls:
            authority().cert_pem.write_to_path(options.tls)
        print(store.url, flush=True)
        for line in sys.stdin:
            command, *words = json.loads(line)
            if command == "zeros":
                key, size = words
                store.put(options.bucket, key, (bytes(n) for n in _pieces(size)))
            elif command == "counts":
                print(json.dumps([len(store.requests), *store.byte_counts()]), flush=True)
            print("done", flush=True)


def _pieces(size: int) -> list[int]:
    full, rest = divmod(size, 2**20)
    return [2**20] * full + ([rest] if rest else [])


if __name__ == "__main__":
    main()
