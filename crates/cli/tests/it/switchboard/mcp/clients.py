"""Asks switchboards as MCP clients do, and prints what they answered as one object of JSON.

Arguments: the token and the URL. Every kind of client that is installed asks over both transports;
`CLIENT/TRANSPORT` names what it was told.
"""

import asyncio
import datetime
import json
import sys
import uuid

import mcp
from mcp import ClientSession
from mcp.client import streamable_http
from mcp.client.sse import sse_client

try:
    import fastmcp
except ImportError:
    fastmcp = None

TOKEN, URL = sys.argv[1:]
HEADERS = {"Authorization": f"Bearer {TOKEN}"}


def streamable(url):
    """The function was renamed, and takes a client of HTTP now."""
    if hasattr(streamable_http, "streamablehttp_client"):
        return streamable_http.streamablehttp_client(url, headers=HEADERS)
    from mcp.shared._httpx_utils import create_mcp_http_client

    client = create_mcp_http_client(headers=HEADERS)
    return streamable_http.streamable_http_client(url, http_client=client)


def sse(url):
    """As clients are set up that can only be given a URL."""
    return sse_client(url.replace("://", f"://x:{TOKEN}@", 1))


def event(name, endpoint="test_bot"):
    source = {"channel": "telegram", "provider": "telegram", "endpoint_identity": endpoint}
    return {
        "schema_version": "ingest.v1",
        "source": source,
        "event": {"external_event_id": name, "observed_at": "2026-02-15T10:30:00Z"},
        "sender": {"identity": "user_eve"},
        "payload": {"raw": {"digits": 12345678901234567890123}, "normalized_text": "Hello"},
    }


def beat(name):
    return {
        "schema_version": "connector.heartbeat.v1",
        "connector": {
            "connector_type": "telegram_bot",
            "endpoint_identity": "test_bot",
            "instance_id": str(uuid.uuid5(uuid.NAMESPACE_DNS, name)),
        },
        "status": {"state": "healthy", "uptime_s": 7},
        "counters": {
            "messages_ingested": 1,
            "messages_failed": 0,
            "source_api_calls": 2,
            "checkpoint_saves": 3,
        },
        "sent_at": datetime.datetime.now(datetime.timezone.utc).isoformat(),
    }


async def ask(name, tools, call):
    """What everybody asks for. `call` gives (is it an error, the data, the text)."""
    told = {"tools": await tools()}
    told["new"] = await call("ingest", event(name))
    told["again"] = await call("ingest", event(name))
    told["invalid"] = await call("ingest", {"schema_version": "ingest.v2"})
    told["foreign"] = await call("ingest", event(name, "other_bot"))
    told["beat"] = await call("connector.heartbeat", beat(name))
    told["bad_beat"] = await call("connector.heartbeat", {})
    told["connectors"] = await call("connectors.list", {})
    who = {"connector_type": "telegram_bot", "endpoint_identity": "test_bot"}
    told["connector"] = await call("connectors.show", who)
    told["inbox"] = await call("inbox.list", {"endpoint": "test_bot", "limit": 1000})
    request_id = told["new"]["data"]["request_id"]
    told["message"] = await call("inbox.show", {"request_id": request_id})
    told["duties"] = await call("duties.list", {})
    told["bad_words"] = await call("inbox.list", {"limit": 0})
    told["nobody"] = await call("inbox.show", {"request_id": "nobody"})
    try:
        told["unknown"] = await call("no.such.tool", {})
    except Exception as error:
        told["unknown"] = str(error)
    return told


def result(is_error, data, content):
    text = content[0].text
    return {"error": bool(is_error), "data": data, "text": text, "kind": type(data).__name__}


async def by_session(name, transport):
    async with transport as streams, ClientSession(streams[0], streams[1]) as session:
        await session.initialize()

        async def tools():
            return [tool.name for tool in (await session.list_tools()).tools]

        return await ask(name, tools, lambda *asked: called(session, *asked))


async def called(client, tool, arguments):
    told = await client.call_tool(tool, arguments)
    is_error = told.isError if hasattr(told, "isError") else told.is_error
    old = hasattr(told, "structuredContent")
    data = told.structuredContent if old else told.structured_content
    return result(is_error, data, told.content)


async def by_client(name, transport):
    async with mcp.Client(transport) as client:

        async def tools():
            return [tool.name for tool in (await client.list_tools()).tools]

        told = await ask(name, tools, lambda *asked: called(client, *asked))
        told["version"] = client.protocol_version
        return told


async def by_fastmcp(name, url):
    kinds = {"mcp": fastmcp.client.StreamableHttpTransport, "sse": fastmcp.client.SSETransport}
    transport = kinds[url.rsplit("/", 1)[1]](url, headers=HEADERS)
    async with fastmcp.Client(transport) as client:

        async def tools():
            return [tool.name for tool in await client.list_tools()]

        async def call(tool, arguments):
            told = await client.call_tool(tool, arguments, raise_on_error=False)
            return result(told.is_error, told.data, told.content)

        return await ask(name, tools, call)


async def main():
    told = {}
    version = "2" if hasattr(mcp, "Client") else "1"
    for transport, opened in (("mcp", streamable), ("sse", sse)):
        name = f"session{version}/{transport}"
        told[name] = await by_session(name, opened(f"{URL}/{transport}"))
        if hasattr(mcp, "Client"):
            name = f"client/{transport}"
            told[name] = await by_client(name, opened(f"{URL}/{transport}"))
        if fastmcp:
            name = f"fastmcp/{transport}"
            told[name] = await by_fastmcp(name, f"{URL}/{transport}")
    print(json.dumps(told))


asyncio.run(main())
