// An authorization server as others run it: npm `oidc-provider`, with JWT access tokens (RFC 9068) whose audience is the
// resource asked for (RFC 8707). The test asks it for tokens over HTTP: the client `machine` by its own grant, and
// `GET /test/login?account=…&resource=…` goes through the whole login in a browser's stead and answers with the tokens.
import { createHash, generateKeyPairSync, randomBytes } from 'node:crypto';
import { createServer } from 'node:http';
import { load } from './packages.mjs';

const { Provider } = load('oidc-provider');

const jwk = (kid, kind, options) => ({ ...generateKeyPairSync(kind, options).privateKey.export({ format: 'jwk' }), kid, use: 'sig' });
const callback = 'http://127.0.0.1:1/callback';
const groups = { alice: ['operators'], machine: ['operators'] };

const server = createServer();
server.listen(0, '127.0.0.1', () => {
  const issuer = `http://127.0.0.1:${server.address().port}`;
  const provider = new Provider(issuer, {
    jwks: { keys: [jwk('rsa-1', 'rsa', { modulusLength: 2048 }), jwk('ec-1', 'ec', { namedCurve: 'P-256' })] },
    cookies: { keys: [randomBytes(32).toString('hex')] },
    clients: [
      { client_id: 'machine', client_secret: 'of-the-machine', grant_types: ['client_credentials'], response_types: [], redirect_uris: [] },
      { client_id: 'app', token_endpoint_auth_method: 'none', application_type: 'native', redirect_uris: [callback] },
    ],
    scopes: ['openid', 'mcp.use'],
    features: {
      clientCredentials: { enabled: true },
      resourceIndicators: {
        enabled: true,
        useGrantedResource: () => true,
        getResourceServerInfo: (_context, resource, client) => ({
          scope: 'mcp.use',
          audience: resource,
          accessTokenFormat: 'jwt',
          jwt: { sign: { alg: client.clientId === 'machine' ? 'ES256' : 'RS256' } },
        }),
      },
    },
    findAccount: (_context, id) => ({ accountId: id, claims: () => ({ sub: id }) }),
    extraTokenClaims: (_context, token) => ({ groups: groups[token.accountId ?? token.clientId] ?? ['visitors'] }),
  });
  const answer = provider.callback();
  server.on('request', (request, response) => {
    const url = new URL(request.url, issuer);
    if (url.pathname !== '/test/login') return answer(request, response);
    login(issuer, url.searchParams).then(
      (tokens) => response.setHeader('Content-Type', 'application/json').end(JSON.stringify(tokens)),
      (error) => response.writeHead(500).end(String(error.stack)),
    );
  });
  console.log(`listening ${server.address().port}`);
});

/** What a browser and a client do together: authorization code with PKCE, login form, consent form. */
async function login(issuer, asked) {
  const verifier = randomBytes(32).toString('base64url');
  const query = new URLSearchParams({
    client_id: 'app',
    response_type: 'code',
    redirect_uri: callback,
    scope: 'openid mcp.use',
    resource: asked.get('resource'),
    code_challenge: createHash('sha256').update(verifier).digest('base64url'),
    code_challenge_method: 'S256',
  });
  const jar = new Map();
  const open = async (url, form) => {
    const headers = { Cookie: [...jar].map(([name, value]) => `${name}=${value}`).join('; ') };
    const body = form && new URLSearchParams(form);
    const response = await fetch(url, { redirect: 'manual', headers, body, method: form ? 'POST' : 'GET' });
    for (const cookie of response.headers.getSetCookie()) {
      const [, name, value] = /^([^=]+)=([^;]*)/.exec(cookie);
      value ? jar.set(name, value) : jar.delete(name);
    }
    return response;
  };
  let at = `${issuer}/auth?${query}`;
  let response = await open(at);
  for (let n = 0; n < 20; n++) {
    const location = response.headers.get('location');
    if (location?.startsWith(callback)) {
      const code = new URL(location).searchParams.get('code');
      if (!code) throw new Error(location);
      const form = { grant_type: 'authorization_code', client_id: 'app', code, redirect_uri: callback, code_verifier: verifier, resource: asked.get('resource') };
      return (await fetch(`${issuer}/token`, { method: 'POST', body: new URLSearchParams(form) })).json();
    }
    if (location) {
      at = new URL(location, at).href;
      response = await open(at);
      continue;
    }
    const page = await response.text();
    const prompt = /name="prompt" value="(\w+)"/.exec(page)?.[1];
    const action = /action="([^"]+)"/.exec(page)?.[1];
    if (!prompt || !action) throw new Error(`${response.status} ${at}\n${page}`);
    response = await open(new URL(action, at).href, { prompt, login: asked.get('account'), password: 'any' });
  }
  throw new Error('the login does not end');
}
