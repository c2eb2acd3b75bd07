// The official TypeScript SDK v1 as a client. It knows only the older era.
import { load } from './packages.mjs';
import { input, run } from './steps.mjs';

const { Client } = load('@modelcontextprotocol/sdk/client/index.js');
const { StreamableHTTPClientTransport } = load('@modelcontextprotocol/sdk/client/streamableHttp.js');

const client = new Client({ name: 'client-v1', version: '1.0.0' });
const headers = input.token ? { Authorization: `Bearer ${input.token}` } : {};
const transport = new StreamableHTTPClientTransport(new URL(input.url), { requestInit: { headers } });
await run(() => client.connect(transport), client, (params, options) => client.callTool(params, undefined, options));
