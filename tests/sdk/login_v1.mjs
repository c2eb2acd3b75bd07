// The official TypeScript SDK v1 with its OAuth provider.
import { run } from './login.mjs';
import { load } from './packages.mjs';

const { Client } = load('@modelcontextprotocol/sdk/client/index.js');
const { UnauthorizedError } = load('@modelcontextprotocol/sdk/client/auth.js');
const { StreamableHTTPClientTransport } = load('@modelcontextprotocol/sdk/client/streamableHttp.js');

await run({
  build: (url, authProvider) => ({
    client: new Client({ name: 'login-v1', version: '1.0.0' }),
    transport: new StreamableHTTPClientTransport(url, { authProvider }),
  }),
  call: (client, params) => client.callTool(params),
  finish: (transport, parameters) => transport.finishAuth(parameters.get('code')),
  isLoginNeeded: (error) => error instanceof UnauthorizedError,
});
