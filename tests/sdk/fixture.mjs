// The server that clients and the conformance suite are tried on: everything a server may do, in both eras on one URL,
// on the official TypeScript SDK v2. The older era has sessions, streams from the server, and resumption.
// With --trusting it believes any Host and Origin.
import { randomUUID } from 'node:crypto';
import { createServer } from 'node:http';
import { Readable } from 'node:stream';
import { offer } from './fixture_surface.mjs';
import { load } from './packages.mjs';

const { toWebRequest } = load('@modelcontextprotocol/node');
const {
  WebStandardStreamableHTTPServerTransport,
  createMcpHandler,
  hostHeaderValidationResponse,
  isLegacyRequest,
  localhostAllowedHostnames,
  localhostAllowedOrigins,
  originValidationResponse,
} = load('@modelcontextprotocol/server');

// Short, so that a client that was told to come back does so soon.
const retryInterval = 50;

/** The events of one session; an event's id names its stream. */
class Events {
  #all = [];

  async storeEvent(stream, message) {
    const id = `${stream}:${this.#all.length}`;
    this.#all.push({ id, stream, message });
    return id;
  }

  async getStreamIdForEventId(id) {
    return this.#all.find((event) => event.id === id)?.stream;
  }

  async replayEventsAfter(id, { send }) {
    const seen = this.#all.findIndex((event) => event.id === id);
    const { stream } = this.#all[seen];
    for (const event of this.#all.slice(seen + 1)) {
      // The event that opens a stream carries no message.
      if (event.stream === stream && event.message.jsonrpc) await send(event.id, event.message);
    }
    return stream;
  }
}

const modern = createMcpHandler(({ era }) => offer(era, modern.notify), { legacy: 'reject' });
const sessions = new Map();

async function inSession({ transport, isOpen }, request) {
  const response = await transport.handleRequest(request);
  if (request.method === 'GET' && response.ok) isOpen.resolve();
  return response;
}

async function legacy(request) {
  const id = request.headers.get('mcp-session-id');
  if (id) return sessions.has(id) ? inSession(sessions.get(id), request) : new Response(null, { status: 404 });
  const isOpen = Promise.withResolvers();
  const transport = new WebStandardStreamableHTTPServerTransport({
    eventStore: new Events(),
    retryInterval,
    sessionIdGenerator: randomUUID,
    onsessioninitialized: (id) => sessions.set(id, { transport, isOpen }),
    onsessionclosed: (id) => sessions.delete(id),
  });
  const server = offer('legacy', {
    isHeard: isOpen.promise,
    toolsChanged: () => server.sendToolListChanged(),
    promptsChanged: () => server.sendPromptListChanged(),
    resourcesChanged: () => server.sendResourceListChanged(),
    resourceUpdated: (uri) => server.server.sendResourceUpdated({ uri }),
  });
  await server.connect(transport);
  return transport.handleRequest(request);
}

const isTrusting = process.argv.includes('--trusting');

async function fetch(request) {
  const stranger = isTrusting
    ? undefined
    : (hostHeaderValidationResponse(request, localhostAllowedHostnames()) ??
      originValidationResponse(request, localhostAllowedOrigins()));
  return stranger ?? ((await isLegacyRequest(request)) ? legacy(request) : modern.fetch(request));
}

// The SDK's own adapter notices only at its next write that a client has gone; until then a stream counts as taken, and
// the client that comes back for it is refused.
async function serve(incoming, outgoing) {
  const gone = new AbortController();
  outgoing.on('close', () => gone.abort());
  const response = await fetch(await toWebRequest(incoming, undefined, { signal: gone.signal }));
  outgoing.writeHead(response.status, Object.fromEntries(response.headers)).flushHeaders();
  const body = Readable.fromWeb(response.body ?? new Blob().stream());
  outgoing.on('close', () => body.destroy());
  body.on('error', () => outgoing.destroy()).pipe(outgoing);
}

const server = createServer(serve);
server.listen(0, '127.0.0.1', () => console.log(`listening ${server.address().port}`));
