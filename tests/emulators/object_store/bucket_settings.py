"""Settings of buckets: lifecycle, tags, encryption, public access; and Google's JSON interface."""

from __future__ import annotations

import base64
import hashlib
import json
import threading
import xml.etree.ElementTree as ET

from .calls import Answer, Call, xml_answer
from .refusals import Refusal
from .state import Bucket

SETTINGS = {
    "encryption": "ServerSideEncryptionConfigurationNotFoundError",
    "lifecycle": "NoSuchLifecycleConfiguration",
    "publicAccessBlock": "NoSuchPublicAccessBlockConfiguration",
    "tagging": "NoSuchTagSet",
}
"""Names of settings, and the refusal where a bucket has none."""
SUMMED = {"lifecycle", "tagging"}
"""Settings that Amazon takes only with the MD5 of the request."""


class BucketSettings:
    """Creation, settings and deletion of buckets, a part of `s3.Operations`."""

    dialect: str
    region: str
    lock: threading.Lock
    buckets: dict[str, Bucket]

    def create_bucket(self, call: Call) -> Answer:
        """Create a bucket; Amazon wants the region of the endpoint, but never its oldest one."""
        body = b"".join(call.body)
        root = ET.fromstring(body) if body else None
        texts = [] if root is None else [node.text or "" for node in root.iter()]
        named = next((text for text in texts if text.strip()), "")
        if self.dialect == "aws" and call.payload_hash:
            if named == "us-east-1":
                raise Refusal("InvalidLocationConstraint", "us-east-1 is not named")
            if (named or "us-east-1") != self.region:
                raise Refusal("IllegalLocationConstraintException", f"not {self.region}")
        with self.lock:
            if call.bucket in self.buckets and call.payload_hash and self.region != "us-east-1":
                raise Refusal("BucketAlreadyOwnedByYou", "You already own this bucket")
            self.buckets.setdefault(call.bucket, Bucket(call.bucket))
        return Answer()

    def delete_bucket(self, bucket: Bucket) -> Answer:
        """Delete a bucket that has no objects."""
        with self.lock:
            if bucket.objects:
                raise Refusal("BucketNotEmpty", "The bucket you tried to delete is not empty")
            del self.buckets[bucket.name]
        return Answer(204)

    def setting(self, bucket: Bucket, call: Call, name: str) -> Answer:
        """Read, write or delete a setting."""
        if call.method == "GET":
            if name not in bucket.settings:
                raise Refusal(SETTINGS[name])
            return xml_answer(bucket.settings[name])
        if call.method == "DELETE":
            bucket.settings.pop(name, None)
            return Answer(204)
        body = b"".join(call.body)
        given = call.headers.get("content-md5")
        if given is None and name in SUMMED:
            raise Refusal("InvalidRequest", "Missing required header for this request: Content-MD5")
        digest = base64.b64encode(hashlib.md5(body, usedforsecurity=False).digest()).decode()
        if given not in (None, digest):
            raise Refusal("BadDigest", "The Content-MD5 you specified did not match")
        try:
            root = ET.fromstring(body)
        except ET.ParseError:
            raise Refusal("MalformedXML", "not XML") from None
        if name == "lifecycle":
            _check_lifecycle(root)
        bucket.settings[name] = body.decode()
        return Answer()

    def json_call(self, call: Call) -> Answer:
        """Carry out a request of Google's JSON interface: creation of a bucket."""
        if call.method != "POST" or "project" not in call.query or not call.query["project"]:
            raise Refusal("InvalidArgument", "Required parameter: project")
        wanted = json.loads(b"".join(call.body))
        name = wanted["name"]
        with self.lock:
            if name in self.buckets:
                raise Refusal("BucketAlreadyOwnedByYou", "You already own this bucket")
            bucket = self.buckets[name] = Bucket(name)
            bucket.settings = {key: json.dumps(value) for key, value in wanted.items()}
        return Answer(200, {"Content-Type": "application/json"}, json.dumps(wanted).encode())


def _check_lifecycle(root: ET.Element) -> None:
    """Refuse rules that Amazon would refuse."""
    for rule in (node for node in root if node.tag.endswith("Rule")):
        fields = {child.tag.rpartition("}")[2]: child for child in rule}
        if not {"Status"} <= fields.keys() or not {"Filter", "Prefix"} & fields.keys():
            raise Refusal("MalformedXML", "a rule needs Status and Filter")
        if fields["Status"].text not in ("Enabled", "Disabled"):
            raise Refusal("MalformedXML", "Status is Enabled or Disabled")
        days = [node.text for node in rule.iter() if node.tag.rpartition("}")[2].endswith("Days")]
        days += [n.text for n in rule.iter() if n.tag.rpartition("}")[2] == "DaysAfterInitiation"]
        if not days or any(not (day or "").isdigit() or int(day or 0) < 1 for day in days):
            raise Refusal("InvalidArgument", "Days must be a positive integer")
