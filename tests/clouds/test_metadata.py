"""Answers of metadata services, and the requests that they refuse."""

from __future__ import annotations

import json

from tests.emulators.metadata import Metadata


def test_metadata_of_aws_in_detail() -> None:
    service = Metadata({"cloud": "aws", "id": "i-1", "region": "us-east-1"})
    ttl = "X-aws-ec2-metadata-token-ttl-seconds"
    for bad in ({}, {ttl: "0"}, {ttl: "21601"}, {ttl: "x"}):
        assert service.answer("PUT", "/latest/api/token", bad).status == 400
    proxied = {ttl: "9", "X-Forwarded-For": "1.2.3.4"}
    assert service.answer("PUT", "/latest/api/token", proxied).status == 403
    token = service.answer("PUT", "/latest/api/token", {ttl: "60"}).body
    headers = {"x-aws-ec2-metadata-token": token}
    action = "/latest/meta-data/spot/instance-action"
    assert service.answer("GET", action, headers).status == 404
    service.change({"notice": 1_800_000_000.0})
    told = json.loads(service.answer("GET", action, headers).body)
    assert told == {"action": "terminate", "time": "2027-01-15T08:00:00Z"}
    names = service.answer("GET", "/latest/meta-data/", headers).body.splitlines()
    assert {"instance-id", "placement/", "spot/"} <= set(names)
    wrong = {"x-aws-ec2-metadata-token": "made up"}
    assert service.answer("GET", action, wrong).status == 401
    assert service.answer("GET", "/computeMetadata/v1/instance/id", headers).status == 404


def test_metadata_of_azure_in_detail() -> None:
    service = Metadata({"cloud": "azure", "name": "vm-0", "group": "g"})
    me, events = {"Metadata": "true"}, "/metadata/scheduledevents?api-version=2020-07-01"
    assert service.answer("GET", events, {}).status == 400
    assert service.answer("GET", "/metadata/scheduledevents", me).status == 400
    assert json.loads(service.answer("GET", events, me).body)["Events"] == []
    service.change({"notice": 1_800_000_000.0})
    (event,) = json.loads(service.answer("GET", events, me).body)["Events"]
    assert (event["EventType"], event["Resources"]) == ("Preempt", ["vm-0"])
    assert event["NotBefore"] == "Fri, 15 Jan 2027 08:00:00 GMT"

    token = "/metadata/identity/oauth2/token?api-version=2018-02-01&resource=https://x/"
    refused = service.answer("GET", token, me)
    assert refused.status == 400 and "Identity not found" in refused.body
    service.change({"identity_token": "secret"})
    told = json.loads(service.answer("GET", token, me).body)
    assert (told["access_token"], told["resource"]) == ("secret", "https://x/")
    group = "/metadata/instance/compute/resourceGroupName?api-version=2021-02-01&format=text"
    assert service.answer("GET", group, me).body == "g"


def test_metadata_of_google_in_detail() -> None:
    service = Metadata({"cloud": "gcp", "name": "n", "attributes": {"k": "v"}, "account": "p"})
    root, me = "/computeMetadata/v1/", {"Metadata-Flavor": "Google"}
    assert service.answer("GET", root + "instance/name", {}).status == 403
    assert service.answer("GET", root + "instance/name", me).body == "n"
    assert service.answer("GET", root + "project/project-id", me).body == "p"
    assert service.answer("GET", root + "instance/attributes/", me).body == "k"
    token = root + "instance/service-accounts/default/token"
    assert service.answer("GET", token, me).status == 404
    identity = {"identity_token": "t", "identity_email": "a@p", "identity_scopes": ["x", "y"]}
    service.change(identity)
    assert json.loads(service.answer("GET", token, me).body)["access_token"] == "t"
    assert service.answer("GET", token, {}).status == 403
    accounts = root + "instance/service-accounts/"
    assert service.answer("GET", accounts, me).body.split() == ["a@p/", "default/"]
    assert service.answer("GET", accounts + "a@p/scopes", me).body.split() == ["x", "y"]
    assert service.answer("GET", accounts + "default/email", me).body == "a@p"
    waiting = root + "instance/preempted?wait_for_change=true&timeout_sec=0.01"
    first = service.answer("GET", waiting, me)
    assert first.body == "FALSE"
    service.change({"notice": 1.0})
    late = service.answer("GET", f"{waiting}&last_etag={first.headers['ETag']}", me)
    assert late.body == "TRUE"
