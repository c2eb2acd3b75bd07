// A client on oauth4webapi, which refuses whatever an RFC does not allow: metadata of another issuer, an answer without
// `iss` where it was promised, a token response that may be cached, an access token that is no RFC 9068 JWT. One run, from
// the 401 to the revocation; the last line on stdout says what it got.
import { spawn } from 'node:child_process';
import http from 'node:http';
import { setTimeout as pause } from 'node:timers/promises';
import { load } from './packages.mjs';

const oauth = load('oauth4webapi');
// With CLIENT, a JSON of its id and of what it has to show, it is a client of the configuration; otherwise it registers.
const { URL: route, BROWSER: browser, AUTH_METHOD: method, CLIENT: written } = process.env;
const insecure = { [oauth.allowInsecureRequests]: true };

const back = Promise.withResolvers();
const callback = http.createServer((request, response) => {
  response.writeHead(200, { Connection: 'close' }).end('You can close this page.');
  back.resolve(new URL(request.url, redirectUri));
});
await new Promise((resolve) => callback.listen(0, '127.0.0.1', resolve));
const redirectUri = `http://127.0.0.1:${callback.address().port}/callback`;

// RFC 9728: from the challenge of a bare request to the document, and from there to the issuer.
const bare = await fetch(route, { method: 'POST' });
const challenge = bare.headers.get('www-authenticate');
const resource = await oauth.processResourceDiscoveryResponse(
  new URL(route),
  await oauth.resourceDiscoveryRequest(new URL(route), insecure),
);
const issuer = new URL(resource.authorization_servers[0]);
const server = await oauth.processDiscoveryResponse(issuer, await oauth.discoveryRequest(issuer, { algorithm: 'oauth2', ...insecure }));
const openid = await oauth.processDiscoveryResponse(issuer, await oauth.discoveryRequest(issuer, { algorithm: 'oidc', ...insecure }));

// RFC 7591.
const register = async () =>
  oauth.processDynamicClientRegistrationResponse(
    await oauth.dynamicClientRegistrationRequest(
      server,
      { redirect_uris: [redirectUri], client_name: 'a strict client', token_endpoint_auth_method: method },
      insecure,
    ),
  );
const client = written ? { ...JSON.parse(written), token_endpoint_auth_method: method } : await register();
const importKey = (pem) => {
  const der = Buffer.from(pem.replace(/-----[^-]+-----/g, ''), 'base64');
  return crypto.subtle.importKey('pkcs8', der, { name: 'ECDSA', namedCurve: 'P-256' }, false, ['sign']);
};
const authentication = {
  none: () => oauth.None(),
  client_secret_basic: () => oauth.ClientSecretBasic(client.client_secret),
  client_secret_post: () => oauth.ClientSecretPost(client.client_secret),
  private_key_jwt: async () => oauth.PrivateKeyJwt({ key: await importKey(client.key), kid: client.kid }),
}[method];
const authenticated = await authentication();

// RFC 6749, 7636, 8707, 9207.
const verifier = oauth.generateRandomCodeVerifier();
const state = oauth.generateRandomState();
const to = new URL(server.authorization_endpoint);
const asked = {
  client_id: client.client_id,
  redirect_uri: redirectUri,
  response_type: 'code',
  code_challenge: await oauth.calculatePKCECodeChallenge(verifier),
  code_challenge_method: 'S256',
  resource: route,
  scope: resource.scopes_supported.join(' '),
  state,
};
for (const [name, value] of Object.entries(asked)) to.searchParams.set(name, value);
spawn(browser, [to.href], { stdio: 'ignore' });
const parameters = oauth.validateAuthResponse(server, client, await back.promise, state);
const more = { additionalParameters: { resource: route }, ...insecure };
const tokens = await oauth.processAuthorizationCodeResponse(
  server,
  client,
  await oauth.authorizationCodeGrantRequest(server, client, authenticated, parameters, redirectUri, verifier, more),
);

/** The claims, if it is an access token as RFC 9068 has it, signed by a published key, for this route. */
const validate = (token) =>
  oauth.validateJwtAccessToken(server, new Request(route, { headers: { Authorization: `Bearer ${token}` } }), route, {
    signingAlgorithms: ['ES256', 'EdDSA'],
    ...insecure,
  });
/** The status of a call, or the challenge that it met (RFC 6750 §3). */
const connect = async (token) => {
  const headers = new Headers({ Accept: 'application/json, text/event-stream', 'Content-Type': 'application/json' });
  const about = { protocolVersion: '2025-11-25', capabilities: {}, clientInfo: { name: 'strict', version: '1' } };
  const body = JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'initialize', params: about });
  try {
    const response = await oauth.protectedResourceRequest(token, 'POST', new URL(route), headers, body, insecure);
    await response.text();
    return response.status;
  } catch (error) {
    if (!(error instanceof oauth.WWWAuthenticateChallengeError)) throw error;
    return { status: error.status, challenges: error.cause };
  }
};

const claims = await validate(tokens.access_token);
const first = await connect(tokens.access_token);
const refreshed = await oauth.processRefreshTokenResponse(
  server,
  client,
  await oauth.refreshTokenGrantRequest(server, client, authenticated, tokens.refresh_token, more),
);
const again = await validate(refreshed.access_token);
const second = await connect(refreshed.access_token);
// RFC 7662.
const introspect = async (token) => {
  const asked = await oauth.introspectionRequest(server, client, authenticated, token, insecure);
  return oauth.processIntrospectionResponse(server, client, asked).catch((error) => ({ error: error.error }));
};
const before = await introspect(refreshed.access_token);
// RFC 7009.
await oauth.processRevocationResponse(
  await oauth.revocationRequest(server, client, authenticated, refreshed.refresh_token, insecure),
);
const after = await introspect(refreshed.access_token);
// Every replica knows within a second.
let third;
for (const end = Date.now() + 5000; Date.now() < end; await pause(20)) {
  third = await connect(refreshed.access_token);
  if (third !== 200) break;
}
console.log(
  JSON.stringify({ bare: bare.status, challenge, resource, server, openid, client, claims, again, before, after, calls: [first, second, third] }),
);
process.exit(0);
