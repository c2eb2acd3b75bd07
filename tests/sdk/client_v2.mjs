// The official TypeScript SDK v2 as a client: of the older era as it is by default, or trying or demanding the newer one.
import { load } from './packages.mjs';
import { capabilities, fetching, input, run } from './steps.mjs';

const { Client, StreamableHTTPClientTransport } = load('@modelcontextprotocol/client');

const mode = input.mode === 'modern' ? { pin: '2026-07-28' } : input.mode;
const client = new Client({ name: 'client-v2', version: '1.0.0' }, { capabilities, versionNegotiation: { mode } });
const headers = input.token ? { Authorization: `Bearer ${input.token}` } : {};
const transport = new StreamableHTTPClientTransport(new URL(input.url), { fetch: fetching, requestInit: { headers } });
await run(
  () => client.connect(transport),
  client,
  (params, options) => client.callTool(params, options),
  (method, answer) => client.setRequestHandler(method, answer),
);
