// Reads what to do from stdin, does it with the client it is given, prints one line per step. Used by both clients on the
// TypeScript SDKs.
import { readFileSync } from 'node:fs';
import { setTimeout as pause } from 'node:timers/promises';

export const input = JSON.parse(readFileSync(0, 'utf8'));

const say = (outcome) => console.log(JSON.stringify(outcome));

const failure = (error) => ({
  error: { code: error.code ?? null, message: error.message, data: error.data ?? null, kind: error.constructor.name },
});

async function outcome(act) {
  try {
    return { result: await act() };
  } catch (error) {
    return failure(error);
  }
}

// === What servers ask of a client ===

/** What a client that answers says of itself. */
export const capabilities = input.answers
  ? { sampling: {}, elicitation: { form: {}, url: {} }, roots: { listChanged: true } }
  : {};

/** What the server asked since the last step. */
let asked = [];

const samples = { string: 'tëxt', integer: 7, number: 1.5, boolean: true };

function filled(property) {
  if (property.type === 'array') return [filled(property.items)];
  return (property.oneOf ?? property.anyOf)?.[0].const ?? property.enum?.[0] ?? samples[property.type];
}

function elicited({ message, requestedSchema }) {
  if (message.startsWith('decline')) return { action: 'decline' };
  if (!requestedSchema) return { action: 'accept' };
  const fields = Object.entries(requestedSchema.properties).map(([name, property]) => [name, filled(property)]);
  return { action: 'accept', content: Object.fromEntries(fields) };
}

const answers = {
  'elicitation/create': elicited,
  'roots/list': () => ({ roots: [{ uri: 'file:///r%C3%BCt', name: 'Rüt' }] }),
  'sampling/createMessage': ({ messages }) => ({
    role: 'assistant',
    content: { type: 'text', text: `You said ${JSON.stringify(messages)}` },
    model: 'a model',
    stopReason: 'endTurn',
  }),
};

// === A connection that breaks ===

/** How many streams are still to be cut. */
let nCuts = 0;

/** What the transports fetch with: cuts a stream off after its first event, where a step wants it. */
export async function fetching(url, init) {
  const response = await fetch(url, init);
  const isStream = response.headers.get('content-type')?.startsWith('text/event-stream');
  if (nCuts === 0 || init?.method !== 'POST' || !isStream) return response;
  const reader = response.body.getReader();
  let isBroken = false;
  const body = new ReadableStream({
    async pull(controller) {
      if (isBroken) {
        controller.error(new Error('the connection broke'));
        return reader.cancel();
      }
      const { done, value } = await reader.read();
      if (done) return controller.close();
      controller.enqueue(value);
      // A comment is no event, and from one without an id nobody can go on. What is queued must be read before it breaks.
      isBroken = nCuts > 0 && /^id:/m.test(Buffer.from(value));
      if (isBroken) nCuts -= 1;
    },
  });
  return new Response(body, { status: response.status, headers: response.headers });
}

// === Steps ===

/** What the server told since it was last asked for. */
let heard = [];
/** How long to wait for what the server tells. */
const patience = 10_000;

async function hear(n) {
  const until = Date.now() + patience;
  while (heard.length < n && Date.now() < until) await pause(5);
  const all = heard;
  heard = [];
  return all;
}

async function take(client, step) {
  const params = step.arguments === undefined ? {} : { arguments: step.arguments };
  switch (true) {
    case step.list === 'tools': return client.listTools();
    case step.list === 'prompts': return client.listPrompts();
    case step.list === 'resources': return client.listResources();
    case step.list === 'templates': return client.listResourceTemplates();
    case 'prompt' in step: return client.getPrompt({ name: step.prompt, ...params });
    case 'read' in step: return client.readResource({ uri: step.read });
    case 'complete' in step: return client.complete(step.complete);
    case 'subscribe' in step: return client.subscribeResource({ uri: step.subscribe });
    case 'unsubscribe' in step: return client.unsubscribeResource({ uri: step.unsubscribe });
    case 'level' in step: return client.setLoggingLevel(step.level);
    case 'ping' in step: return client.ping();
    case 'listen' in step: return (await client.listen(step.listen)).honoredFilter;
    case 'hear' in step: return hear(step.hear);
    default: throw new Error(`not a step: ${JSON.stringify(step)}`);
  }
}

/** Calls a tool; `progress` takes what it reports. One that is abandoned is cancelled at the first report. */
function callTool(call, step, progress) {
  nCuts = step.cut ? 1 : 0;
  const abandoning = new AbortController();
  const onprogress = (one) => {
    progress.push(one);
    if (step.abandon) abandoning.abort('enough');
  };
  const params = {
    name: step.call,
    ...(step.arguments === undefined ? {} : { arguments: step.arguments }),
    ...(step.meta === undefined ? {} : { _meta: step.meta }),
  };
  return call(params, step.progress || step.abandon ? { onprogress, signal: abandoning.signal } : {});
}

/** Takes these steps all at once. In which order the server asks meanwhile is chance. */
async function together(steps, take) {
  const taken = steps.map((step) => {
    const progress = [];
    return outcome(() => take(step, progress)).then((done) => ({ ...done, progress }));
  });
  const result = await Promise.all(taken);
  const plain = asked.map(({ method, params: { _meta, ...params } }) => ({ method, params }));
  asked = plain.toSorted((one, other) => (JSON.stringify(one) < JSON.stringify(other) ? -1 : 1));
  return { result };
}

function about(client) {
  return {
    server: client.getServerVersion(),
    capabilities: client.getServerCapabilities(),
    instructions: client.getInstructions(),
    // Only v2 has these.
    version: client.getNegotiatedProtocolVersion?.(),
    discovered: client.getDiscoverResult?.(),
  };
}

/**
 * `call(params, options)` is how this SDK calls a tool, `handle(method, answer)` how it is told to answer requests of the
 * server.
 */
export async function run(connect, client, call, handle) {
  for (const [method, answer] of Object.entries(input.answers ? answers : {})) {
    handle(method, async ({ params }) => {
      // An id that the server made up is another one each time.
      asked.push({ method, params: { ...params, ...(params?.elicitationId && { elicitationId: 'an id' }) } });
      return answer(params);
    });
  }
  client.fallbackNotificationHandler = async ({ method, params }) => heard.push({ method, params });
  const connected = await outcome(async () => {
    await connect();
    return about(client);
  });
  say(connected);
  if (connected.error) process.exit(0);
  for (const step of input.steps) {
    const progress = [];
    const one = (step, progress) => ('call' in step ? callTool(call, step, progress) : take(client, step));
    const done = await ('together' in step
      ? together(step.together, one)
      : outcome(() => one(step, progress)));
    if (step.cut && nCuts > 0) throw new Error('there was nothing to cut');
    say({ ...done, ...(step.progress && { progress }), ...(asked.length > 0 && { asked }) });
    asked = [];
  }
  // What a client does at the end belongs to the conversation.
  const closed = await outcome(async () => {
    await client.transport.terminateSession();
    await client.close();
  });
  if (closed.error) say(closed);
}
