"""The official Python SDK as a client: of the older era, or trying or demanding the newer one."""

import sys
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client
from mcp_types import ListRootsResult, PromptReference, ResourceTemplateReference

sys.path.insert(0, str(Path(__file__).parent))
import steps  # noqa: E402


class Calls:
    """The client's methods under the names that steps know."""

    def __init__(self, client):
        self.client = client
        self.list_tools = client.list_tools
        self.list_prompts = client.list_prompts
        self.list_resources = client.list_resources
        self.list_templates = client.list_resource_templates
        self.get_prompt = client.get_prompt
        self.read_resource = client.read_resource
        self.subscribe = client.subscribe_resource
        self.unsubscribe = client.unsubscribe_resource
        self.set_level = client.set_logging_level
        self.ping = client.send_ping

    async def call_tool(self, name, arguments, on_progress, meta):
        return await self.client.call_tool(name, arguments, progress_callback=on_progress, meta=meta)

    async def complete(self, given):
        kind = PromptReference if given["ref"]["type"] == "ref/prompt" else ResourceTemplateReference
        context = given.get("context", {}).get("arguments")
        return await self.client.complete(kind.model_validate(given["ref"]), given["argument"], context)

    def listen(self, wanted):
        return self.client.listen(
            tools_list_changed=wanted.get("toolsListChanged", False),
            prompts_list_changed=wanted.get("promptsListChanged", False),
            resources_list_changed=wanted.get("resourcesListChanged", False),
            resource_subscriptions=wanted.get("resourceSubscriptions", ()),
        )


async def on_elicitation(_context, params):
    return steps.elicited(params)


async def on_sampling(_context, params):
    return steps.sampled(params)


async def on_roots(_context):
    steps.ask("roots/list", None)
    return ListRootsResult(roots=steps.ROOTS)


ANSWERS = {
    "elicitation_callback": on_elicitation,
    "list_roots_callback": on_roots,
    "sampling_callback": on_sampling,
}


@asynccontextmanager
async def connecting():
    mode = "2026-07-28" if steps.INPUT["mode"] == "modern" else steps.INPUT["mode"]
    async with create_mcp_http_client(headers=steps.HEADERS) as http:
        transport = streamable_http_client(steps.INPUT["url"], http_client=http)
        async with Client(
            transport,
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
