// The fixture's tools that answer by themselves.
import { appendFileSync } from 'node:fs';
import { setTimeout as pause } from 'node:timers/promises';
import { load } from './packages.mjs';

const { fromJsonSchema } = load('@modelcontextprotocol/server');

export const redPixel =
  'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR42mP4z8AAAAMBAQD3A0FDAAAAAElFTkSuQmCC';
const briefSilence = 'UklGRiwAAABXQVZFZm10IBAAAAABAAEAQB8AAEAfAAABAAgAZGF0YQgAAACAgICAgICAgA==';

export const image = { type: 'image', data: redPixel, mimeType: 'image/png' };
const audio = { type: 'audio', data: briefSilence, mimeType: 'audio/wav' };
export const embedded = (resource) => ({ type: 'resource', resource });
export const said = (text) => ({ content: [{ type: 'text', text }] });

/** Registers a tool without arguments. */
export const simple = (server, name, description, run) =>
  server.registerTool(name, { description, inputSchema: fromJsonSchema({ type: 'object' }) }, run);

/** Registers a tool that takes these arguments. */
export const tool = (server, name, description, properties, run, required = Object.keys(properties)) =>
  server.registerTool(name, { description, inputSchema: fromJsonSchema({ type: 'object', properties, required }) }, run);

// === Contents ===

function addContents(server) {
  simple(server, 'test_simple_text', 'Returns text.', () => said('This is a simple text response for testing.'));
  simple(server, 'test_image_content', 'Returns an image.', () => ({ content: [image] }));
  simple(server, 'test_audio_content', 'Returns audio.', () => ({ content: [audio] }));
  const plain = { uri: 'test://embedded-resource', mimeType: 'text/plain', text: 'This is an embedded resource content.' };
  simple(server, 'test_embedded_resource', 'Returns a resource.', () => ({ content: [embedded(plain)] }));
  const json = { uri: 'test://mixed-content-resource', mimeType: 'application/json', text: '{"test":"data","value":123}' };
  simple(server, 'test_multiple_content_types', 'Returns one of each.', () => ({
    content: [{ type: 'text', text: 'Multiple content types test:' }, image, embedded(json)],
  }));
  simple(server, 'test_error_handling', 'Always fails.', () => {
    throw new Error('This tool intentionally returns an error for testing');
  });
  addStructuredContent(server);
}

function addStructuredContent(server) {
  const properties = { celsius: { type: 'number' }, sky: { type: 'string' } };
  const config = {
    title: 'Weather',
    description: 'Returns structured content, and a link.',
    inputSchema: fromJsonSchema({ type: 'object' }),
    outputSchema: fromJsonSchema({ type: 'object', properties, required: ['celsius'] }),
    annotations: { readOnlyHint: true, openWorldHint: false },
    _meta: { 'example.com/kept': { deeply: [1, 2.5, null, 'ü'] } },
  };
  server.registerTool('test_structured_content', config, () => ({
    content: [
      { type: 'text', text: 'cold', annotations: { audience: ['user'], priority: 0.5 } },
      { type: 'resource_link', uri: 'test://static-text', name: 'static-text', mimeType: 'text/plain' },
    ],
    structuredContent: { celsius: -3.5, sky: 'clear' },
    _meta: { 'example.com/station': 7 },
  }));
}

// === Arguments ===

/** A schema with more of the vocabulary of JSON Schema 2020-12 than a naive reader keeps (SEP-1613, SEP-2106). */
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

/** Arguments that travel in headers too (SEP-2243). */
const mirrored = {
  region: { type: 'string', 'x-mcp-header': 'Region' },
  count: { type: 'integer', 'x-mcp-header': 'Count' },
  dry: { type: 'boolean', 'x-mcp-header': 'Dry' },
};

function addArguments(server) {
  const repeat = (given) => said(JSON.stringify(given));
  const config = { description: 'Takes what JSON Schema 2020-12 describes.', inputSchema: fromJsonSchema(wide) };
  server.registerTool('json_schema_2020_12_tool', config, repeat);
  tool(server, 'test_header_parameters', 'Takes arguments that headers repeat.', mirrored, repeat, ['region']);
  const numbers = { a: { type: 'number' }, b: { type: 'number' } };
  tool(server, 'add', 'Adds two numbers.', numbers, ({ a, b }) => said(String(a + b)));
}

// === While a call runs ===

async function logging(_given, { mcpReq }) {
  await mcpReq.log('info', 'Tool execution started', 'fixture');
  await pause(50);
  await mcpReq.log('info', { 'Tool processing data': [1, 'ü', null] });
  await pause(50);
  await mcpReq.log('info', 'Tool execution completed');
  return said('logged');
}

async function report({ _meta, notify }, progress, message) {
  const progressToken = _meta?.progressToken;
  if (progressToken === undefined) return;
  await notify({ method: 'notifications/progress', params: { progressToken, progress, total: 100, message } });
}

export async function progressing(_given, { mcpReq }) {
  for (const progress of [0, 50, 100]) {
    await report(mcpReq, progress, `${progress} of 100`);
    await pause(50);
  }
  return said('progressed');
}

/** Calls that wait to be cancelled, by a key their caller chose. */
const cancellations = new Map();

function cancellation(key) {
  if (!cancellations.has(key)) cancellations.set(key, Promise.withResolvers());
  return cancellations.get(key);
}

async function waiting({ key }, { mcpReq }) {
  const { resolve, promise } = cancellation(key);
  mcpReq.signal.addEventListener('abort', () => resolve('cancelled'));
  await report(mcpReq, 1, 'waiting');
  return said(await promise);
}

function addLongCalls(server) {
  simple(server, 'test_tool_with_logging', 'Logs while it works.', logging);
  simple(server, 'test_logging_tool', 'Logs, where the client wants to hear it.', logging);
  simple(server, 'test_tool_with_progress', 'Reports progress while it works.', progressing);
  const key = { key: { type: 'string', description: 'Which call.' } };
  tool(server, 'test_waits_for_cancellation', 'Answers once it is cancelled, which nobody hears.', key, waiting);
  tool(server, 'test_was_cancelled', 'Answers once that call was cancelled.', key, async ({ key }) =>
    said(await cancellation(key).promise),
  );
  simple(server, 'danger', 'Leaves a mark in a file, so that a test can prove that it did not run.', () => {
    appendFileSync(process.env.DANGER_MARKER, 'ran\n');
    return said('it is done');
  });
}

// === Streams ===

function addStreams(server, changes) {
  const trigger = (name, description, change) => simple(server, name, description, () => (change(), said('changed')));
  trigger('test_trigger_tool_change', 'Says that the list of tools changed.', changes.toolsChanged);
  trigger('test_trigger_prompt_change', 'Says that the list of prompts changed.', changes.promptsChanged);
  trigger('test_trigger_resource_change', 'Says that the list of resources changed.', changes.resourcesChanged);
  const which = { uri: { type: 'string', description: 'Which resource.' } };
  tool(server, 'test_trigger_resource_update', 'Says that a resource changed.', which, ({ uri }) => {
    changes.resourceUpdated(uri);
    return said('updated');
  });
  simple(server, 'test_stream_is_open', 'Answers once the client listens.', async () => {
    await changes.isHeard;
    return said('it is');
  });
  simple(server, 'test_reconnection', 'Lets go of a client that comes back for the result.', async (_given, { http }) => {
    http?.closeSSE?.();
    await pause(100);
    return said('You came back.');
  });
  simple(server, 'test_stream_reconnection', 'Ends the stream, then tells something.', (_given, { http }) => {
    http?.closeStandaloneSSE?.();
    changes.toolsChanged();
    return said('Come back to hear it.');
  });
}

/** Adds them; `changes` is how to tell clients that something changed. */
export function addTools(server, changes) {
  addContents(server);
  addArguments(server);
  addLongCalls(server);
  addStreams(server, changes);
}
