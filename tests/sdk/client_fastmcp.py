"""FastMCP as a client: of the older era, or trying or demanding the newer one."""

import sys
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
from fastmcp import Client
from fastmcp.client.transports import StreamableHttpTransport
from mcp_types import PromptReference, ResourceTemplateReference

sys.path.insert(0, str(Path(__file__).parent))
import steps  # noqa: E402


class Calls:
    """The client's methods under the names that steps know. It has none for streams of the newer era."""

    def __init__(self, client):
        self.client = client
        self.list_tools = client.list_tools_mcp
        self.list_prompts = client.list_prompts_mcp
        self.list_resources = client.list_resources_mcp
        self.list_templates = client.list_resource_templates_mcp
        self.get_prompt = client.get_prompt_mcp
        self.read_resource = client.read_resource_mcp
        self.subscribe = client.session.subscribe_resource
        self.unsubscribe = client.session.unsubscribe_resource
        self.set_level = client.set_logging_level
        self.ping = client.ping

    async def call_tool(self, name, arguments, on_progress, meta):
        return await self.client.call_tool_mcp(name, arguments or {}, progress_handler=on_progress, meta=meta)

    async def complete(self, given):
        kind = PromptReference if given["ref"]["type"] == "ref/prompt" else ResourceTemplateReference
        context = given.get("context", {}).get("arguments")
        return await self.client.complete_mcp(kind.model_validate(given["ref"]), given["argument"], context)


async def on_elicitation(_message, _response_type, params, _context):
    return steps.elicited(params)


async def on_sampling(_messages, params, _context):
    return steps.sampled(params)


async def on_roots(_context):
    steps.ask("roots/list", None)
    return steps.ROOTS


ANSWERS = {"elicitation_handler": on_elicitation, "roots": on_roots, "sampling_handler": on_sampling}


@asynccontextmanager
async def connecting():
    mode = "2026-07-28" if steps.INPUT["mode"] == "modern" else steps.INPUT["mode"]
    async with Client(
        StreamableHttpTransport(steps.INPUT["url"], headers=steps.HEADERS),
        mode=mode,
        message_handler=steps.on_message,
        **(ANSWERS if steps.INPUT["answers"] else {}),
    ) as client:
        yield Calls(client)


def about(calls):
    client = calls.client
    return {
        "server": steps.plain(client.server_info) if client.server_info else None,
        "capabilities": steps.plain(client.server_capabilities),
        "instructions": client.instructions,
        "version": client.protocol_version,
    }


anyio.run(steps.run, connecting(), about)
