"""Listings of objects and uploads."""

from __future__ import annotations

import base64
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from urllib.parse import quote
from xml.sax.saxutils import escape

from .calls import Answer, Call, amazon_answer
from .state import Bucket, StoredVersion


class Listings:
    """Listings, a part of `s3.Operations`."""

    dialect: str
    lock: threading.Lock

    def _list(self, bucket: Bucket, call: Call) -> Answer:
        query = call.query
        prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
        limit = min(int(query.get("max-keys", "1000")), 1000)
        after = query.get("start-after", "") or query.get("marker", "")
        if token := query.get("continuation-token"):
            after = base64.urlsafe_b64decode(token).decode()
        encode = quote if query.get("encoding-type") == "url" else escape
        with self.lock:
            keys = sorted(key for key in bucket.objects if key.startswith(prefix) and key > after)
        entries, folders, last, more = [], set(), after, False
        for key in keys:
            rest = key[len(prefix) :]
            head, found, _ = rest.partition(delimiter or "\0")
            folder = prefix + head + found if delimiter and found else ""
            if folder and (folder in folders or folder <= after):
                continue
            if len(entries) + len(folders) >= limit:
                more = True
                break
            last = key
            if folder:
                folders.add(folder)
                last = folder + "\U0010ffff"
                continue
            wanted = call.headers.get("x-amz-optional-object-attributes", "")
            entries.append(self._entry(bucket.objects[key], encode, wanted))
        shared = (f"<CommonPrefixes><Prefix>{encode(f)}</Prefix></CommonPrefixes>" for f in folders)
        token = base64.urlsafe_b64encode(last.encode()).decode()
        following = f"<NextContinuationToken>{token}</NextContinuationToken>" if more else ""
        if encode is quote:
            following += "<EncodingType>url</EncodingType>"
        return amazon_answer(
            f"<ListBucketResult><Name>{bucket.name}</Name><IsTruncated>{str(more).lower()}"
            f"</IsTruncated><KeyCount>{len(entries)}</KeyCount>{''.join(entries)}"
            f"{''.join(sorted(shared))}{following}</ListBucketResult>"
        )

    def _entry(self, version: StoredVersion, encode: Callable[[str], str], wanted: str) -> str:
        modified = _iso_time(version.modified)
        generation = f"<Generation>{version.generation}</Generation>"
        restore = ""
        if version.restore and wanted == "RestoreStatus":
            running, ends = str(version.is_restoring).lower(), _iso_time(version.modified + 86400)
            ends = "" if version.is_restoring else f"<RestoreExpiryDate>{ends}</RestoreExpiryDate>"
            restore = f"<IsRestoreInProgress>{running}</IsRestoreInProgress>{ends}"
            restore = f"<RestoreStatus>{restore}</RestoreStatus>"
        return (
            f"<Contents><Key>{encode(version.key)}</Key><LastModified>{modified}</LastModified>"
            f"<ETag>&quot;{version.etag}&quot;</ETag><Size>{version.content.size}</Size>"
            f"{generation if self.dialect == 'google' else ''}"
            f"<StorageClass>{version.storage_class}</StorageClass>{restore}</Contents>"
        )

    def _list_uploads(self, bucket: Bucket, call: Call) -> Answer:
        query = call.query
        prefix, limit = query.get("prefix", ""), min(int(query.get("max-uploads", "1000")), 1000)
        after = (query.get("key-marker", ""), query.get("upload-id-marker", ""))
        encode = quote if query.get("encoding-type") == "url" else escape
        with self.lock:
            found = sorted((each.key, each.id, each.begun) for each in bucket.uploads.values())
        found = [each for each in found if each[0].startswith(prefix) and each[:2] > after]
        more = len(found) > limit
        inner = "".join(
            f"<Upload><Key>{encode(key)}</Key><UploadId>{upload_id}</UploadId>"
            f"<Initiated>{_iso_time(begun)}</Initiated></Upload>"
            for key, upload_id, begun in found[:limit]
        )
        if more:
            key, upload_id, _ = found[limit - 1]
            inner += f"<NextKeyMarker>{encode(key)}</NextKeyMarker>"
            inner += f"<NextUploadIdMarker>{upload_id}</NextUploadIdMarker>"
        if encode is quote:
            inner += "<EncodingType>url</EncodingType>"
        return amazon_answer(
            f"<ListMultipartUploadsResult><IsTruncated>{str(more).lower()}</IsTruncated>{inner}"
            "</ListMultipartUploadsResult>"
        )


def _iso_time(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%dT%H:%M:%S.000Z")
