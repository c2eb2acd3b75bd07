"""A server on the official Python SDK: both eras, the older one with sessions."""

import json
import os
from pathlib import Path

import anyio
import uvicorn
from mcp import MCPError
from mcp.server.lowlevel import Server
from mcp_types import (
    CallToolResult,
    GetPromptResult,
    ListPromptsResult,
    ListResourcesResult,
    ListResourceTemplatesResult,
    ListToolsResult,
    ReadResourceResult,
)

SURFACE = json.loads(Path(__file__).with_name("surface.json").read_text("utf-8"))


def text(value, **more):
    return CallToolResult.model_validate({"content": [{"type": "text", "text": value}], **more})


async def echo(given, _context):
    return text(given["text"], structuredContent=given)


async def add(given, _context):
    total = given["a"] + given["b"]
    return text(str(total), structuredContent={"sum": total})


async def danger(_given, _context):
    with open(os.environ["DANGER_MARKER"], "a", encoding="utf-8") as marker:
        marker.write("ran\n")
    return text("it is done")


async def big(given, _context):
    return text("x" * given["bytes"])


async def slow(given, _context):
    await anyio.sleep(given["seconds"])
    return text("at last")


async def stream(given, context):
    for n in range(1, given["count"] + 1):
        await context.session.report_progress(n, given["count"], f"step {n}")
    return text(f"{given['count']} steps")


async def fail(_given, _context):
    return text("this tool always fails", isError=True)


TOOLS = {tool.__name__: tool for tool in (echo, add, danger, big, slow, stream, fail)}


async def on_list_tools(_context, _params):
    return ListToolsResult.model_validate({"tools": SURFACE["tools"]})


async def on_call_tool(context, params):
    tool = TOOLS.get(params.name)
    if tool is None:
        raise MCPError(-32602, f"Unknown tool: {params.name}")
    return await tool(params.arguments or {}, context)


async def on_list_prompts(_context, _params):
    return ListPromptsResult.model_validate({"prompts": SURFACE["prompts"]})


async def on_get_prompt(_context, params):
    content = {"type": "text", "text": f"Greet {(params.arguments or {}).get('who')}."}
    return GetPromptResult.model_validate({"description": "A greeting.", "messages": [{"role": "user", "content": content}]})


async def on_list_resources(_context, _params):
    return ListResourcesResult.model_validate({"resources": SURFACE["resources"]})


async def on_list_resource_templates(_context, _params):
    return ListResourceTemplatesResult.model_validate({"resourceTemplates": SURFACE["resourceTemplates"]})


async def on_read_resource(_context, params):
    note = {"uri": str(params.uri), "mimeType": "text/plain", "text": f"The note at {params.uri}."}
    return ReadResourceResult.model_validate({"contents": [note]})


class Announcing(uvicorn.Server):
    """Prints the port once it listens."""

    async def startup(self, sockets=None):
        await super().startup(sockets)
        for server in self.servers:
            for listener in server.sockets:
                print("listening", listener.getsockname()[1], flush=True)


def main():
    server = Server(
        SURFACE["server"]["name"],
        version=SURFACE["server"]["version"],
        on_list_tools=on_list_tools,
        on_call_tool=on_call_tool,
        on_list_prompts=on_list_prompts,
        on_get_prompt=on_get_prompt,
        on_list_resources=on_list_resources,
        on_list_resource_templates=on_list_resource_templates,
        on_read_resource=on_read_resource,
    )
    app = server.streamable_http_app(max_request_body_size=64 * 1024 * 1024)
    Announcing(uvicorn.Config(app, host="127.0.0.1", port=0, log_level="warning")).run()


main()
