// What the fixture offers: the `test_*` tools, prompts and resources that the conformance suite asks for by name (each of
// its scenarios says what it expects), and a few more for what clients are to be seen doing.
// A handler is written once for both eras: where it needs something of the client, the SDK asks in the way of the era.
import { addAskingTools, asking, form, states } from './fixture_asking.mjs';
import { addTools, embedded, image, redPixel } from './fixture_tools.mjs';
import { load } from './packages.mjs';

const { McpServer, ResourceTemplate, fromJsonSchema } = load('@modelcontextprotocol/server');

function addPrompts(server) {
  const message = (content) => ({ role: 'user', content: content.type ? content : { type: 'text', text: content } });
  const asked = (...contents) => ({ messages: contents.map(message) });
  const simple = (name, description, build) => server.registerPrompt(name, { description }, build);
  const prompt = (name, description, blanks, build) => {
    const properties = Object.entries(blanks).map(([name, description]) => [name, { type: 'string', description }]);
    const schema = { type: 'object', properties: Object.fromEntries(properties), required: Object.keys(blanks) };
    server.registerPrompt(name, { description, argsSchema: fromJsonSchema(schema) }, build);
  };

  simple('test_simple_prompt', 'A text.', () => asked('This is a simple prompt for testing.'));
  simple('test_prompt_with_image', 'An image.', () => asked(image, 'Please analyze the image above.'));
  prompt(
    'test_prompt_with_arguments',
    'A text with two blanks.',
    { arg1: 'First test argument', arg2: 'Second test argument' },
    ({ arg1, arg2 }) => asked(`Prompt with arguments: arg1='${arg1}', arg2='${arg2}'`),
  );
  prompt(
    'test_prompt_with_embedded_resource',
    'A resource.',
    { resourceUri: 'URI of the resource to embed' },
    ({ resourceUri: uri }) => {
      const resource = embedded({ uri, mimeType: 'text/plain', text: 'Embedded resource content for testing.' });
      return asked(resource, 'Please process the embedded resource above.');
    },
  );
  const context = { user_context: form('What context should the prompt use?', { context: { type: 'string' } }) };
  const inContext = asking(context, ({ user_context }) => asked(`In the context of ${user_context.content?.context}.`));
  simple('test_input_required_result_prompt', 'A text that asks first.', (context) => inContext({}, context));
}

function addResources(server) {
  const resource = (name, description, contents) => {
    const uri = `test://${name}`;
    const cacheHint = { ttlMs: 1000, cacheScope: 'public' };
    const config = { description, mimeType: contents.mimeType, cacheHint };
    server.registerResource(name, uri, config, () => ({ contents: [{ uri, ...contents }] }));
  };

  const text = 'This is the content of the static text resource.';
  resource('static-text', 'A text.', { mimeType: 'text/plain', text });
  resource('static-binary', 'An image.', { mimeType: 'image/png', blob: redPixel });
  resource('watched-resource', 'One to subscribe to.', { mimeType: 'text/plain', text: 'Watch me.' });

  const template = new ResourceTemplate('test://template/{id}/data', { list: undefined });
  const config = { description: 'Data by id.', mimeType: 'application/json' };
  server.registerResource('template', template, config, (uri, { id }) => {
    const text = JSON.stringify({ id, templateTest: true, data: `Data for ID: ${id}` });
    return { contents: [{ uri: uri.href, mimeType: 'application/json', text }] };
  });
}

function addCompletion({ server }) {
  server.setRequestHandler('completion/complete', ({ params }) => {
    const words = ['paris', 'park', 'party'].filter((word) => word.startsWith(params.argument.value));
    const before = Object.values(params.context?.arguments ?? {}).map((value) => `after ${value}`);
    return { completion: { values: [...words, ...before], total: 150, hasMore: true } };
  });
}

/** Subscriptions of the older era; `changes` tells of updates to what is subscribed to only. */
function addSubscriptions({ server }, changes) {
  const watched = new Set();
  server.setRequestHandler('resources/subscribe', ({ params }) => (watched.add(params.uri), {}));
  server.setRequestHandler('resources/unsubscribe', ({ params }) => (watched.delete(params.uri), {}));
  return { ...changes, resourceUpdated: (uri) => watched.has(uri) && changes.resourceUpdated(uri) };
}

/** A server that offers all of it in this era; `changes` is how to tell clients that something changed. */
export function offer(era, changes) {
  const server = new McpServer(
    { name: 'portcullis-fixture', version: '1.2.3', title: 'A fixture' },
    {
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
    },
  );
  // In the newer era the SDK itself knows who listens to what.
  addTools(server, era === 'modern' ? changes : addSubscriptions(server, changes));
  addAskingTools(server);
  addPrompts(server);
  addResources(server);
  addCompletion(server);
  return server;
}
