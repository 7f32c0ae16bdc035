"""A streams group that was described -> a line as the brokers' request log has it, which the topology feed reads."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

API_KEY, API_VERSION = 89, 1
API = "STREAMS_GROUP_DESCRIBE"
CONNECTION = "afterlog-collect"
STATUSES = ("NOT_REQUESTED", "NOT_STORED", "ERROR", "AVAILABLE")
NOT_FOUND = 69  # GROUP_ID_NOT_FOUND
_SOURCE, _PROCESSOR, _SINK = 1, 2, 3

Fields = Mapping[str, Any]


def response(group: Fields) -> dict[str, Any]:
    """Return what a describe response says about a group, in the wire's schema, given the admin client's object."""
    described = group["topologyDescription"]
    return {
        "errorCode": 0,
        "errorMessage": None,
        "groupId": group["groupId"],
        "groupState": "".join(part.capitalize() for part in group["groupState"].split("_")),
        "groupEpoch": group["groupEpoch"],
        "topology": {"epoch": group["topologyEpoch"]},
        "members": [{"memberId": member["memberId"]} for member in group["members"]],
        "topologyDescription": None if described is None else topology(described),
        "topologyDescriptionStatus": STATUSES.index(group["topologyDescriptionStatus"]),
    }


def absent(group: str) -> dict[str, Any]:
    """Return what a describe response says about a group that the cluster does not have."""
    return {"errorCode": NOT_FOUND, "errorMessage": None, "groupId": group}


def topology(described: Fields) -> dict[str, Any]:
    """Return a topology in the wire's schema."""
    return {
        "subtopologies": [
            {"subtopologyId": part["id"], "nodes": [_node(node) for node in part["nodes"]]}
            for part in described["subtopologies"]
        ],
        "globalStores": [
            {"source": _node(store["source"]), "processor": _node(store["processor"])}
            for store in described["globalStores"]
        ],
    }


def _node(node: Fields) -> dict[str, Any]:
    """Return a node; the admin client's classes differ in their fields."""
    kind = _SOURCE if "topics" in node else _PROCESSOR if "stores" in node else _SINK
    return {
        "name": node["name"],
        "nodeType": kind,
        "sourceTopics": sorted(node.get("topics") or ()),
        "sinkTopic": node.get("topic"),
        "stores": sorted(node.get("stores") or ()),
        "successors": sorted(node.get("successors") or ()),
    }


def unchanging(response: Fields) -> dict[str, Any]:
    """Return what makes a response worth landing: not the members and the epoch, which change with each member."""
    return {name: value for name, value in response.items() if name not in ("members", "groupEpoch")}


def lines(responses: Iterable[Fields], at: datetime) -> Iterable[str]:
    """Yield a line for each response; the time names its zone, unlike those that brokers write."""
    time = f"{at:%Y-%m-%d %H:%M:%S},{at.microsecond // 1000:03}Z"
    for number, group in enumerate(responses):
        exchange = {
            "requestHeader": {
                "requestApiKey": API_KEY,
                "requestApiVersion": API_VERSION,
                "correlationId": number,
                "clientId": CONNECTION,
                "requestApiKeyName": API,
            },
            "request": {"groupIds": [group["groupId"]], "includeTopologyDescription": True},
            "response": {"throttleTimeMs": 0, "groups": [group]},
            "connection": CONNECTION,
        }
        text = json.dumps(exchange, separators=(",", ":"))
        yield f"[{time}] DEBUG Completed request:{text} (afterlog collect)"
