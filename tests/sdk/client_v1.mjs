// The official TypeScript SDK v1 as a client. It knows only the older era.
import { load } from './packages.mjs';
import { capabilities, fetching, input, run } from './steps.mjs';

const { Client } = load('@modelcontextprotocol/sdk/client/index.js');
const { StreamableHTTPClientTransport } = load('@modelcontextprotocol/sdk/client/streamableHttp.js');
const types = load('@modelcontextprotocol/sdk/types.js');

const schemas = {
  'elicitation/create': types.ElicitRequestSchema,
  'roots/list': types.ListRootsRequestSchema,
  'sampling/createMessage': types.CreateMessageRequestSchema,
};
const client = new Client({ name: 'client-v1', version: '1.0.0' }, { capabilities });
const headers = input.token ? { Authorization: `Bearer ${input.token}` } : {};
const transport = new StreamableHTTPClientTransport(new URL(input.url), { fetch: fetching, requestInit: { headers } });
await run(
  () => client.connect(transport),
  client,
  (params, options) => client.callTool(params, undefined, options),
  (method, answer) => client.setRequestHandler(schemas[method], answer),
);
