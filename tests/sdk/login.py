"""A client that logs in: the official Python SDK's OAuth provider, or FastMCP's. Reads one step a line from stdin and prints
one outcome a line, so that a test can let time pass in between, or revoke."""

import json
import os
import socket
import subprocess
import sys
import traceback
from contextlib import AsyncExitStack, asynccontextmanager
from urllib.parse import parse_qs, urlsplit

import anyio
import fastmcp
from fastmcp.client.auth import OAuth
from mcp import Client
from mcp.client.auth import OAuthClientProvider
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client
from mcp.shared.auth import AuthorizationCodeResult, OAuthClientMetadata

URL = os.environ["URL"]
METADATA_URL = os.environ.get("CLIENT_METADATA_URL")


class Kept:
    """Where the Python SDK keeps tokens and its registration."""

    tokens = None
    client = None

    async def get_tokens(self):
        return self.tokens

    async def set_tokens(self, tokens):
        self.tokens = tokens

    async def get_client_info(self):
        return self.client

    async def set_client_info(self, client):
        self.client = client


class Callback:
    """The address on this machine that the browser comes back to. The Python SDK leaves it to the program."""

    def __init__(self):
        self.listener = socket.create_server(("127.0.0.1", int(os.environ.get("CALLBACK_PORT", "0"))))
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}/callback"

    async def open_browser(self, url):
        subprocess.Popen([os.environ["BROWSER"], url], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    async def come_back(self):
        query = await anyio.to_thread.run_sync(self.answer)
        given = {name: values[0] for name, values in parse_qs(query).items()}
        if "error" in given:
            raise PermissionError(f"{given['error']}: {given.get('error_description')}")
        return AuthorizationCodeResult(code=given["code"], state=given.get("state"), iss=given.get("iss"))

    def answer(self):
        connection, _ = self.listener.accept()
        with connection:
            request = connection.recv(65536).decode()
            connection.sendall(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 4\r\n\r\nDone")
        return urlsplit(request.split(" ")[1]).query


callback = Callback()


@asynccontextmanager
async def python():
    provider = OAuthClientProvider(
        URL,
        OAuthClientMetadata(
            client_name=os.environ["CLIENT_NAME"],
            redirect_uris=[callback.url],
            token_endpoint_auth_method=os.environ.get("AUTH_METHOD", "none"),
        ),
        Kept(),
        callback.open_browser,
        callback.come_back,
        client_metadata_url=METADATA_URL,
    )
    async with create_mcp_http_client(auth=provider) as http:
        async with Client(streamable_http_client(URL, http_client=http), mode=os.environ.get("MODE", "auto")) as client:
            yield client


@asynccontextmanager
async def fastmcp_client():
    # It opens the browser and listens by itself, in this order: the browser must not be waited for.
    os.environ["BROWSER"] += " %s &"
    oauth = OAuth(client_name=os.environ["CLIENT_NAME"], client_metadata_url=METADATA_URL)
    async with fastmcp.Client(URL, auth=oauth, mode=os.environ.get("MODE", "auto")) as client:
        yield client


CLIENTS = {"python": python, "fastmcp": fastmcp_client}


def plain(model):
    if isinstance(model, list):
        return {"tools": [plain(one) for one in model]}
    return model.model_dump(mode="json", by_alias=True, exclude_unset=True)


async def take(client, step):
    match step:
        case {"list": _}:
            return plain(await client.list_tools())
        case {"call": name}:
            call = getattr(client, "call_tool_mcp", client.call_tool)
            return plain(await call(name, step.get("arguments", {})))
    raise ValueError(f"not a step: {step}")


def failure(error):
    traceback.print_exception(error)
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return {"error": {"kind": type(error).__name__, "message": str(error)}}


async def steps():
    while line := await anyio.to_thread.run_sync(sys.stdin.readline, abandon_on_cancel=True):
        yield json.loads(line)


async def main():
    client = None
    async with AsyncExitStack() as stack:
        async for step in steps():
            try:
                if "connect" in step:
                    client = await stack.enter_async_context(CLIENTS[sys.argv[1]]())
                    outcome = {"result": {}}
                else:
                    outcome = {"result": await take(client, step)}
            except Exception as error:
                outcome = failure(error)
            print(json.dumps(outcome), flush=True)


anyio.run(main)
