// A server on the official TypeScript SDK v2. Both eras; the older one without sessions, or with them (--sessions).
import { randomUUID } from 'node:crypto';
import { appendFileSync, readFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { setTimeout as pause } from 'node:timers/promises';
import { load } from './packages.mjs';

const { toNodeHandler } = load('@modelcontextprotocol/node');
const { Server, WebStandardStreamableHTTPServerTransport, createMcpHandler, isLegacyRequest } = load('@modelcontextprotocol/server');

const surface = JSON.parse(readFileSync(new URL('surface.json', import.meta.url), 'utf8'));
const maxRequestBodySize = 64 * 1024 * 1024;

const text = (text, more = {}) => ({ content: [{ type: 'text', text }], ...more });

const tools = {
  echo: (given) => text(given.text, { structuredContent: given }),
  add: ({ a, b }) => text(String(a + b), { structuredContent: { sum: a + b } }),
  danger: () => {
    appendFileSync(process.env.DANGER_MARKER, 'ran\n');
    return text('it is done');
  },
  big: ({ bytes }) => text('x'.repeat(bytes)),
  slow: async ({ seconds }) => {
    await pause(seconds * 1000);
    return text('at last');
  },
  stream: async ({ count }, context) => {
    const { _meta: meta, notify } = context.mcpReq;
    for (let n = 1; n <= count; n++) {
      if (meta?.progressToken !== undefined) {
        const params = { progressToken: meta.progressToken, progress: n, total: count, message: `step ${n}` };
        await notify({ method: 'notifications/progress', params });
      }
    }
    return text(`${count} steps`);
  },
  fail: () => text('this tool always fails', { isError: true }),
};

function build() {
  const server = new Server(surface.server, { capabilities: { tools: {}, prompts: {}, resources: {} } });
  server.setRequestHandler('tools/list', () => ({ tools: surface.tools }));
  server.setRequestHandler('tools/call', ({ params }, context) => {
    if (!Object.hasOwn(tools, params.name)) throw Object.assign(new Error(`Unknown tool: ${params.name}`), { code: -32602 });
    return tools[params.name](params.arguments ?? {}, context);
  });
  server.setRequestHandler('prompts/list', () => ({ prompts: surface.prompts }));
  server.setRequestHandler('prompts/get', ({ params }) => ({
    description: 'A greeting.',
    messages: [{ role: 'user', content: { type: 'text', text: `Greet ${params.arguments?.who}.` } }],
  }));
  server.setRequestHandler('resources/list', () => ({ resources: surface.resources }));
  server.setRequestHandler('resources/templates/list', () => ({ resourceTemplates: surface.resourceTemplates }));
  server.setRequestHandler('resources/read', ({ params }) => ({
    contents: [{ uri: params.uri, mimeType: 'text/plain', text: `The note at ${params.uri}.` }],
  }));
  return server;
}

const sessions = new Map();

async function inSession(request) {
  const id = request.headers.get('mcp-session-id');
  if (id) return sessions.get(id)?.handleRequest(request) ?? new Response(null, { status: 404 });
  const transport = new WebStandardStreamableHTTPServerTransport({
    maxRequestBodySize,
    sessionIdGenerator: randomUUID,
    onsessioninitialized: (id) => sessions.set(id, transport),
    onsessionclosed: (id) => sessions.delete(id),
  });
  await build().connect(transport);
  return transport.handleRequest(request);
}

const hasSessions = process.argv.includes('--sessions');
const { fetch } = createMcpHandler(build, { legacy: hasSessions ? 'reject' : 'stateless', maxRequestBodySize });
const eitherEra = async (request) => ((await isLegacyRequest(request)) ? inSession(request) : fetch(request));

const server = createServer(toNodeHandler({ fetch: hasSessions ? eitherEra : fetch }));
server.listen(0, '127.0.0.1', () => console.log(`listening ${server.address().port}`));
