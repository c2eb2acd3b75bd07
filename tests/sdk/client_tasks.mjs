// The official package for the Tasks extension on the TypeScript SDK v2: newer era only. It drives a task by itself, and
// hands out what came of it.
import { pathToFileURL } from 'node:url';
import { load } from './packages.mjs';
import { input } from './steps.mjs';

const { Client, StreamableHTTPClientTransport } = load('@modelcontextprotocol/client');
// It has no entry for `require`.
const tasks = `${process.env.SDK_PACKAGES}/node_modules/@modelcontextprotocol/ext-tasks/dist/client/index.js`;
const { createTaskSessionFromClient } = await import(pathToFileURL(tasks));

const version = '2026-07-28';
const clientInfo = { name: 'client-tasks', version: '1.0.0' };
const capabilities = { extensions: { 'io.modelcontextprotocol/tasks': {} } };
const headers = input.token ? { Authorization: `Bearer ${input.token}` } : {};
const say = (outcome) => console.log(JSON.stringify(outcome));

const client = new Client(clientInfo, { capabilities, versionNegotiation: { mode: { pin: version } } });
await client.connect(new StreamableHTTPClientTransport(new URL(input.url), { requestInit: { headers } }));
say({ result: { capabilities: client.getServerCapabilities() } });

let id = 1000;

/** What the SDK's own codecs do not let through: a request of the extension, and its answer. */
async function rawDispatch({ method, params }, options) {
  id += 1;
  const response = await fetch(input.url, {
    method: 'POST',
    headers: {
      ...headers,
      ...options?.context?.headers,
      'Content-Type': 'application/json',
      Accept: 'application/json, text/event-stream',
      'MCP-Protocol-Version': version,
      'Mcp-Method': method,
      'Mcp-Name': params.taskId ?? params.name,
    },
    body: JSON.stringify({ jsonrpc: '2.0', id, method, params }),
    signal: options?.signal,
  });
  const text = await response.text();
  const lines = text.split('\n').map((line) => line.replace(/^data: /, '')).filter((line) => line.startsWith('{'));
  const { result, error } = lines.map((line) => JSON.parse(line)).find((message) => message.id === id);
  return error ? { kind: 'error', error } : { kind: 'result', result };
}

const session = createTaskSessionFromClient(client, {
  endpointId: 'gateway',
  rawDispatch,
  v2RequestFraming: { protocolVersion: version, clientInfo, clientCapabilities: capabilities },
});
for (const step of input.steps) {
  const execution = await session.callTool(step.call, step.arguments ?? {});
  const seen = [];
  const onEvent = ({ task }) => task && seen.push(task.status);
  const { outcome } = await execution.settle({ onEvent });
  say({ result: outcome.result ?? null, status: outcome.status, kind: execution.kind, seen });
}
await session.close();
await client.close();
