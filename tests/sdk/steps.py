"""Reads what to do from stdin, does it with the client it is given, prints one line per step. Both Python clients use it."""

import json
import sys
import time
import traceback
from contextlib import AsyncExitStack

import anyio
from mcp.shared.exceptions import MCPError
from mcp_types import CreateMessageResult, ElicitResult, Root, TextContent

INPUT = json.load(sys.stdin)
HEADERS = {"Authorization": f"Bearer {INPUT['token']}"} if INPUT["token"] else {}
# How long to wait for what the server tells, in seconds.
PATIENCE = 10


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


# === What servers ask of a client ===

asked = []
heard = []
SAMPLES = {"string": "tëxt", "integer": 7, "number": 1.5, "boolean": True}
ROOTS = [Root(uri="file:///r%C3%BCt", name="Rüt")]


def ask(method, params):
    given = plain(params) if params else None
    if given and "elicitationId" in given:
        # An id that the server made up is another one each time.
        given["elicitationId"] = "an id"
    asked.append({"method": method, "params": given})


def filled(prop):
    if prop.get("type") == "array":
        return [filled(prop["items"])]
    choices = prop.get("oneOf") or prop.get("anyOf")
    if choices:
        return choices[0]["const"]
    return prop["enum"][0] if "enum" in prop else SAMPLES[prop["type"]]


def elicited(params):
    ask("elicitation/create", params)
    if params.message.startswith("decline"):
        return ElicitResult(action="decline")
    schema = plain(params).get("requestedSchema")
    if not schema:
        return ElicitResult(action="accept")
    return ElicitResult(action="accept", content={name: filled(prop) for name, prop in schema["properties"].items()})


def sampled(params):
    ask("sampling/createMessage", params)
    said = json.dumps([plain(message) for message in params.messages], ensure_ascii=False)
    content = TextContent(type="text", text=f"You said {said}")
    return CreateMessageResult(role="assistant", content=content, model="a model", stop_reason="endTurn")


async def on_message(message):
    if isinstance(message, Exception):
        heard.append({"exception": str(message)})
        return
    told = plain(message)
    # Progress is told to the call it belongs to.
    if told["method"] != "notifications/progress":
        heard.append({"method": told["method"], "params": told.get("params")})


# === Steps ===


async def hear(n):
    until = time.monotonic() + PATIENCE
    while len(heard) < n and time.monotonic() < until:
        await anyio.sleep(0.005)
    told = heard.copy()
    heard.clear()
    return told


async def call(client, step, progress):
    """Calls a tool. One that is abandoned is cancelled at its first report of progress."""
    with anyio.CancelScope() as scope:

        async def on_progress(done, total, message):
            progress.append({"progress": done, "total": total, "message": message})
            if step.get("abandon"):
                scope.cancel()

        wants_progress = step.get("progress") or step.get("abandon")
        return await client.call_tool(
            step["call"], step.get("arguments"), on_progress if wants_progress else None, step.get("meta")
        )
    return {"abandoned": True}


async def take(client, step, progress, stack):
    match step:
        case {"list": kind}:
            return await getattr(client, f"list_{kind}")()
        case {"call": _}:
            return await call(client, step, progress)
        case {"prompt": name}:
            return await client.get_prompt(name, step.get("arguments"))
        case {"read": uri}:
            return await client.read_resource(uri)
        case {"complete": given}:
            return await client.complete(given)
        case {"subscribe": uri}:
            return await client.subscribe(uri)
        case {"unsubscribe": uri}:
            return await client.unsubscribe(uri)
        case {"level": level}:
            return await client.set_level(level)
        case {"ping": _}:
            return await client.ping()
        case {"listen": wanted}:
            return (await stack.enter_async_context(client.listen(wanted))).honored
        case {"hear": n}:
            return await hear(n)
    raise ValueError(f"not a step: {step}")


async def run(connecting, about):
    """`connecting` is a context manager that gives a client; `about` says what it knows of its server."""
    is_connected = False
    try:
        async with connecting as client, AsyncExitStack() as stack:
            is_connected = True
            say({"result": about(client)})
            for step in INPUT["steps"]:
                progress = []
                try:
                    result = await take(client, step, progress, stack)
                    outcome = {"result": plain(result) if hasattr(result, "model_dump") else result}
                except Exception as error:
                    outcome = failure(error)
                if step.get("progress"):
                    outcome["progress"] = progress
                if asked:
                    outcome["asked"] = asked.copy()
                    asked.clear()
                say(outcome)
    except Exception as error:
        if is_connected:
            raise
        say(failure(error))
