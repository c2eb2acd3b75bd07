// The official TypeScript SDK v2 with its OAuth provider, which checks the issuer of what comes back (RFC 9207).
import { run } from './login.mjs';
import { load } from './packages.mjs';

const { Client, StreamableHTTPClientTransport, UnauthorizedError } = load('@modelcontextprotocol/client');

await run({
  build: (url, authProvider) => ({
    client: new Client({ name: 'login-v2', version: '1.0.0' }, { versionNegotiation: { mode: process.env.MODE ?? 'auto' } }),
    transport: new StreamableHTTPClientTransport(url, { authProvider }),
  }),
  call: (client, params) => client.callTool(params),
  finish: (transport, parameters) => transport.finishAuth(parameters),
  isLoginNeeded: (error) => error instanceof UnauthorizedError,
});
