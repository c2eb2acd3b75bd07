"""The official Python SDK as a client: reads what to do from stdin, prints one line per step."""

import json
import sys
import traceback

import anyio
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client
from mcp.shared.exceptions import MCPError


def say(outcome):
    print(json.dumps(outcome, ensure_ascii=True), flush=True)


def plain(model):
    return model.model_dump(mode="json", by_alias=True, exclude_unset=True)


def failure(error):
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, MCPError):
        return {"error": {"code": error.code, "message": error.message, "data": error.data, "kind": "MCPError"}}
    traceback.print_exception(error)
    return {"error": {"code": None, "message": str(error), "data": None, "kind": type(error).__name__}}


async def take(client, step, progress):
    match step:
        case {"list": "tools"}:
            return await client.list_tools()
        case {"list": "prompts"}:
            return await client.list_prompts()
        case {"list": "resources"}:
            return await client.list_resources()
        case {"list": "templates"}:
            return await client.list_resource_templates()
        case {"call": name}:

            async def on_progress(done, total, message):
                progress.append({"progress": done, "total": total, "message": message})

            callback = on_progress if step.get("progress") else None
            return await client.call_tool(name, step.get("arguments"), progress_callback=callback)
        case {"prompt": name}:
            return await client.get_prompt(name, step.get("arguments"))
        case {"read": uri}:
            return await client.read_resource(uri)
    raise ValueError(f"not a step: {step}")


async def converse(client, steps):
    server = plain(client.server_info) if client.server_info else None
    say({"result": {"server": server, "capabilities": plain(client.server_capabilities)}})
    for step in steps:
        progress = []
        try:
            outcome = {"result": plain(await take(client, step, progress))}
        except Exception as error:
            outcome = failure(error)
        say({**outcome, "progress": progress} if step.get("progress") else outcome)


async def main():
    given = json.load(sys.stdin)
    headers = {"Authorization": f"Bearer {given['token']}"} if given["token"] else {}
    is_connected = False
    async with create_mcp_http_client(headers=headers) as http:
        try:
            transport = streamable_http_client(given["url"], http_client=http)
            async with Client(transport, mode=given["mode"]) as client:
                is_connected = True
                await converse(client, given["steps"])
        except Exception as error:
            if is_connected:
                raise
            say(failure(error))


anyio.run(main)
