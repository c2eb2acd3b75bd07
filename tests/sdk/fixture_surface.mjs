// What the fixture offers: the `test_*` tools, prompts and resources that the conformance suite asks for by name (each of
// its scenarios says what it expects), and a few more for what clients are to be seen doing.
// A handler is written once for both eras: where it needs something of the client, the SDK asks in the way of the era.
import { randomBytes } from 'node:crypto';
import { setTimeout as pause } from 'node:timers/promises';
import { load } from './packages.mjs';

const { McpServer, ResourceTemplate, createRequestStateCodec, fromJsonSchema, inputRequired } =
  load('@modelcontextprotocol/server');

const redPixel =
  'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR42mP4z8AAAAMBAQD3A0FDAAAAAElFTkSuQmCC';
const briefSilence = 'UklGRiwAAABXQVZFZm10IBAAAAABAAEAQB8AAEAfAAABAAgAZGF0YQgAAACAgICAgICAgA==';

const said = (text, more = {}) => ({ content: [{ type: 'text', text }], ...more });
const heard = (answer) => said(`The client answered ${JSON.stringify(answer)}`);
const image = { type: 'image', data: redPixel, mimeType: 'image/png' };
const embedded = (resource) => ({ type: 'resource', resource });
const user = (content) => ({ role: 'user', content });
const object = (properties = {}, more = {}) => ({ type: 'object', properties, required: Object.keys(properties), ...more });
const string = (description) => ({ type: 'string', description });

const form = (message, properties, more) => inputRequired.elicit({ message, requestedSchema: object(properties, more) });
const prompting = (text, maxTokens) =>
  inputRequired.createMessage({ messages: [user({ type: 'text', text })], maxTokens });

const states = createRequestStateCodec({ key: randomBytes(32) });

/** A handler that asks for these inputs until it has them all, and then answers with `done`. */
const asking = (inputRequests, done = heard, state) => async (_given, { mcpReq }) => {
  const answers = mcpReq.inputResponses ?? {};
  const isOpen = Object.keys(inputRequests).some((key) => answers[key] === undefined);
  if (!isOpen) return done(answers, mcpReq.requestState());
  return inputRequired({ inputRequests, ...(state && { requestState: await states.mint(state) }) });
};

const askingForName = asking({ user_name: form('What is your name?', { name: { type: 'string' } }) }, (answers) =>
  said(`Hello, ${answers.user_name.content?.name ?? 'whoever you are'}!`));

async function stepByStep(_given, { mcpReq }) {
  const { step = 1, name } = mcpReq.requestState() ?? {};
  const answer = mcpReq.inputResponses?.[`step${step}`]?.content;
  const next = async (step, input, state) =>
    inputRequired({ inputRequests: { [`step${step}`]: input }, requestState: await states.mint({ step, ...state }) });
  if (step === 2 && answer) return said(`${name} likes ${answer.color}.`);
  if (step === 1 && answer) {
    return next(2, form('Step 2: What is your favorite color?', { color: { type: 'string' } }), { name: answer.name });
  }
  return next(1, form('Step 1: What is your name?', { name: { type: 'string' } }));
}

async function logging(_given, { mcpReq }) {
  await mcpReq.log('info', 'Tool execution started', 'fixture');
  await pause(50);
  await mcpReq.log('info', { 'Tool processing data': [1, 'ü', null] });
  await pause(50);
  await mcpReq.log('info', 'Tool execution completed');
  return said('logged');
}

async function progressing(_given, { mcpReq }) {
  const { progressToken } = mcpReq._meta ?? {};
  for (const progress of [0, 50, 100]) {
    const params = { progressToken, progress, total: 100, message: `${progress} of 100` };
    if (progressToken !== undefined) await mcpReq.notify({ method: 'notifications/progress', params });
    await pause(50);
  }
  return said('progressed');
}

/** What each kind of choice looks like in a form (SEP-1330). */
const choices = {
  untitledSingle: { type: 'string', enum: ['option1', 'option2', 'option3'] },
  titledSingle: {
    type: 'string',
    oneOf: ['First', 'Second', 'Third'].map((title, n) => ({ const: `value${n + 1}`, title: `${title} Option` })),
  },
  legacyEnum: { type: 'string', enum: ['opt1', 'opt2', 'opt3'], enumNames: ['Option One', 'Option Two', 'Option Three'] },
  untitledMulti: { type: 'array', items: { type: 'string', enum: ['option1', 'option2', 'option3'] } },
  titledMulti: {
    type: 'array',
    items: { anyOf: ['First', 'Second', 'Third'].map((title, n) => ({ const: `value${n + 1}`, title: `${title} Choice` })) },
  },
};

/** A default of each type (SEP-1034). */
const defaults = {
  name: { type: 'string', default: 'John Doe' },
  age: { type: 'integer', default: 30 },
  score: { type: 'number', default: 95.5 },
  status: { type: 'string', enum: ['active', 'inactive', 'pending'], default: 'active' },
  verified: { type: 'boolean', default: true },
};

/** A schema of JSON Schema 2020-12, with more of its vocabulary than a naive reader keeps (SEP-1613, SEP-2106). */
const wide = {
  $schema: 'https://json-schema.org/draft/2020-12/schema',
  type: 'object',
  $defs: {
    address: {
      $anchor: 'addressDef',
      type: 'object',
      properties: { street: { type: 'string' }, city: { type: 'string' } },
    },
  },
  properties: {
    name: { type: 'string' },
    address: { $ref: '#/$defs/address' },
    contactMethod: { type: 'string', enum: ['phone', 'email'] },
    phone: { type: 'string' },
    email: { type: 'string' },
  },
  allOf: [{ anyOf: [{ required: ['phone'] }, { required: ['email'] }] }],
  if: { properties: { contactMethod: { const: 'phone' } }, required: ['contactMethod'] },
  then: { required: ['phone'] },
  else: { required: ['email'] },
  additionalProperties: false,
};

/** Arguments that travel in headers too. */
const mirrored = {
  region: { ...string('Where.'), 'x-mcp-header': 'Region' },
  count: { type: 'integer', 'x-mcp-header': 'Count' },
  dry: { type: 'boolean', 'x-mcp-header': 'Dry' },
};

const weather = object({ celsius: { type: 'number' }, sky: { type: 'string' } });

/** Calls that wait to be cancelled, by a key their caller chose. */
const cancellations = new Map();

function cancellation(key) {
  if (!cancellations.has(key)) cancellations.set(key, Promise.withResolvers());
  return cancellations.get(key);
}

async function waiting({ key }, { mcpReq }) {
  const { resolve, promise } = cancellation(key);
  mcpReq.signal.addEventListener('abort', () => resolve('cancelled'));
  return said(await promise);
}

function addTools(server, changes) {
  const tool = (name, description, inputSchema, run, more = {}) =>
    server.registerTool(name, { description, inputSchema: fromJsonSchema(inputSchema), ...more }, run);
  const simple = (name, description, run) => tool(name, description, { type: 'object' }, run);

  simple('test_simple_text', 'Returns text.', () => said('This is a simple text response for testing.'));
  simple('test_image_content', 'Returns an image.', () => ({ content: [image] }));
  simple('test_audio_content', 'Returns audio.', () => ({
    content: [{ type: 'audio', data: briefSilence, mimeType: 'audio/wav' }],
  }));
  simple('test_embedded_resource', 'Returns a resource.', () => ({
    content: [
      embedded({ uri: 'test://embedded-resource', mimeType: 'text/plain', text: 'This is an embedded resource content.' }),
    ],
  }));
  simple('test_multiple_content_types', 'Returns one of each.', () => ({
    content: [
      { type: 'text', text: 'Multiple content types test:' },
      image,
      embedded({
        uri: 'test://mixed-content-resource',
        mimeType: 'application/json',
        text: JSON.stringify({ test: 'data', value: 123 }),
      }),
    ],
  }));
  simple('test_error_handling', 'Always fails.', () => {
    throw new Error('This tool intentionally returns an error for testing');
  });
  simple('test_tool_with_logging', 'Logs while it works.', logging);
  simple('test_logging_tool', 'Logs, where the client wants to hear it.', logging);
  simple('test_tool_with_progress', 'Reports progress while it works.', progressing);
  simple('test_reconnection', 'Lets go of the client in the middle, which comes back for the result.', async (_given, { http }) => {
    http?.closeSSE?.();
    await pause(100);
    return said('You came back.');
  });
  tool('json_schema_2020_12_tool', 'Takes what JSON Schema 2020-12 describes.', wide, (given) => said(JSON.stringify(given)));
  tool('test_header_parameters', 'Takes arguments that are repeated in headers.', object(mirrored, { required: ['region'] }),
    (given) => said(JSON.stringify(given)));
  tool('test_structured_content', 'Returns structured content, and a link.', { type: 'object' }, () => ({
    content: [
      { type: 'text', text: 'cold', annotations: { audience: ['user'], priority: 0.5 } },
      { type: 'resource_link', uri: 'test://static-text', name: 'static-text', mimeType: 'text/plain' },
    ],
    structuredContent: { celsius: -3.5, sky: 'clear' },
    _meta: { 'example.com/station': 7 },
  }), {
    title: 'Weather',
    outputSchema: fromJsonSchema(weather),
    annotations: { readOnlyHint: true, openWorldHint: false },
    _meta: { 'example.com/kept': { deeply: [1, 2.5, null, 'ü'] } },
  });
  tool('test_waits_for_cancellation', 'Answers once it is cancelled, which nobody hears.', object({ key: string('Which one.') }), waiting);
  tool('test_was_cancelled', 'Answers once the other call was cancelled.', object({ key: string('Which one.') }),
    async ({ key }) => said(await cancellation(key).promise));

  simple('test_trigger_tool_change', 'Says that the list of tools changed.', () => (changes.toolsChanged(), said('changed')));
  simple('test_trigger_prompt_change', 'Says that the list of prompts changed.', () => (changes.promptsChanged(), said('changed')));
  simple('test_trigger_resource_change', 'Says that the list of resources changed.', () => (changes.resourcesChanged(), said('changed')));
  tool('test_trigger_resource_update', 'Says that a resource changed.', object({ uri: string('Which resource.') }),
    ({ uri }) => (changes.resourceUpdated(uri), said('updated')));
}

function addAskingTools(server) {
  const tool = (name, description, inputSchema, run) =>
    server.registerTool(name, { description, inputSchema: fromJsonSchema(inputSchema) }, run);
  const simple = (name, description, run) => tool(name, description, { type: 'object' }, run);
  const answer = ({ input }) => heard(input);

  tool('test_sampling', 'Asks the client\'s model.', object({ prompt: string('What to ask.') }),
    ({ prompt }, context) => asking({ input: prompting(prompt, 100) }, ({ input }) => said(`LLM response: ${input.content.text}`))({}, context));
  tool('test_elicitation', 'Asks the user.', object({ message: string('What to ask.') }), ({ message }, context) =>
    asking({ input: form(message, { username: string('User\'s response'), email: string('User\'s email address') }) }, answer)({}, context));
  simple('test_elicitation_sep1034_defaults', 'Asks the user, with defaults.',
    asking({ input: form('Is this right?', defaults, { required: [] }) }, answer));
  simple('test_elicitation_sep1330_enums', 'Asks the user to choose.',
    asking({ input: form('Which ones?', choices, { required: [] }) }, answer));
  simple('test_url_elicitation', 'Asks the user to open a page.',
    asking({ input: inputRequired.elicitUrl({ message: 'Please look', url: 'https://example.com/look?a=1&b=ü' }) }, answer));
  simple('test_missing_capability', 'Needs a client that has a model.', asking({ input: prompting('Who are you?', 10) }, answer));
  simple('test_streaming_elicitation', 'Asks the user after some progress.', async (given, context) => {
    await progressing(given, context);
    return asking({ input: form('Go on?', { ok: { type: 'boolean' } }) }, answer)(given, context);
  });

  simple('test_input_required_result_elicitation', 'Asks for a name.', askingForName);
  simple('test_input_required_result_sampling', 'Asks for a capital.', asking({ capital_question: prompting('What is the capital of France?', 100) }));
  simple('test_input_required_result_list_roots', 'Asks for the roots.', asking({ client_roots: inputRequired.listRoots() }));
  simple('test_input_required_result_request_state', 'Asks, and remembers.',
    asking({ confirm: form('Please confirm', { ok: { type: 'boolean' } }) }, (_answers, state) => said(`state-${state?.kept ?? 'lost'}`), { kept: 'ok' }));
  simple('test_input_required_result_tampered_state', 'Asks, and notices a forged memory.',
    asking({ confirm: form('Please confirm', { ok: { type: 'boolean' } }) }, heard, { sealed: true }));
  simple('test_input_required_result_multiple_inputs', 'Asks for three things at once.', asking({
    user_name: form('What is your name?', { name: { type: 'string' } }),
    greeting: prompting('Generate a greeting', 50),
    client_roots: inputRequired.listRoots(),
  }, heard, { n: 3 }));
  simple('test_input_required_result_multi_round', 'Asks twice, one after the other.', stepByStep);
  simple('test_input_required_result_capabilities', 'Asks for what the client has.', (given, context) => {
    const { elicitation, sampling } = server.server.getClientCapabilities() ?? {};
    return asking({
      ...(elicitation && { user_name: form('What is your name?', { name: { type: 'string' } }) }),
      ...(sampling && { greeting: prompting('Generate a greeting', 50) }),
    })(given, context);
  });
}

function addPrompts(server) {
  const prompt = (name, description, argsSchema, build) =>
    server.registerPrompt(name, { description, ...(argsSchema && { argsSchema: fromJsonSchema(argsSchema) }) }, build);
  const asked = (...contents) => ({ messages: contents.map((content) => user(typeof content === 'string' ? { type: 'text', text: content } : content)) });

  prompt('test_simple_prompt', 'A text.', undefined, () => asked('This is a simple prompt for testing.'));
  prompt('test_prompt_with_arguments', 'A text with two blanks.',
    object({ arg1: string('First test argument'), arg2: string('Second test argument') }),
    ({ arg1, arg2 }) => asked(`Prompt with arguments: arg1='${arg1}', arg2='${arg2}'`));
  prompt('test_prompt_with_embedded_resource', 'A resource.', object({ resourceUri: string('URI of the resource to embed') }),
    ({ resourceUri: uri }) => asked(embedded({ uri, mimeType: 'text/plain', text: 'Embedded resource content for testing.' }),
      'Please process the embedded resource above.'));
  prompt('test_prompt_with_image', 'An image.', undefined, () => asked(image, 'Please analyze the image above.'));
  prompt('test_input_required_result_prompt', 'A text that asks first.', undefined, (context) =>
    asking({ user_context: form('What context should the prompt use?', { context: { type: 'string' } }) },
      (answers) => asked(`In the context of ${answers.user_context.content?.context}.`))({}, context));
}

function addResources(server) {
  const resource = (name, uri, description, contents) =>
    server.registerResource(name, uri, { description, mimeType: contents.mimeType, cacheHint: { ttlMs: 1000, cacheScope: 'public' } },
      () => ({ contents: [{ uri, ...contents }] }));

  resource('static-text', 'test://static-text', 'A text.',
    { mimeType: 'text/plain', text: 'This is the content of the static text resource.' });
  resource('static-binary', 'test://static-binary', 'An image.', { mimeType: 'image/png', blob: redPixel });
  resource('watched-resource', 'test://watched-resource', 'One to subscribe to.', { mimeType: 'text/plain', text: 'Watch me.' });
  server.registerResource('template', new ResourceTemplate('test://template/{id}/data', { list: undefined }),
    { description: 'Data by id.', mimeType: 'application/json' }, (uri, { id }) => {
      const text = JSON.stringify({ id, templateTest: true, data: `Data for ID: ${id}` });
      return { contents: [{ uri: uri.href, mimeType: 'application/json', text }] };
    });
}

function addTheRest({ server }, changes) {
  server.setRequestHandler('completion/complete', ({ params }) => {
    const words = ['paris', 'park', 'party'].filter((word) => word.startsWith(params.argument.value));
    const before = Object.values(params.context?.arguments ?? {}).map((value) => `after ${value}`);
    return { completion: { values: [...words, ...before], total: 150, hasMore: true } };
  });
  const watched = new Set();
  server.setRequestHandler('resources/subscribe', ({ params }) => (watched.add(params.uri), {}));
  server.setRequestHandler('resources/unsubscribe', ({ params }) => (watched.delete(params.uri), {}));
  // In the newer era who listens is the SDK's to know.
  return { ...changes, resourceUpdated: (uri) => watched.has(uri) && changes.resourceUpdated(uri) };
}

/** A server that offers all of it; `changes` is how to tell clients that something changed. */
export function offer(changes, era) {
  const options = {
    capabilities: {
      completions: {},
      logging: {},
      prompts: { listChanged: true },
      resources: { listChanged: true, subscribe: true },
      tools: { listChanged: true },
    },
    instructions: 'Try everything.\nTwice, if it is "safe".',
    requestState: states,
    cacheHints: { 'tools/list': { ttlMs: 60_000, cacheScope: 'public' }, 'prompts/list': { ttlMs: 5 } },
  };
  const server = new McpServer({ name: 'portcullis-fixture', version: '1.2.3', title: 'A fixture' }, options);
  const mine = addTheRest(server, changes);
  addTools(server, era === 'modern' ? changes : mine);
  addAskingTools(server);
  addPrompts(server);
  addResources(server);
  return server;
}
