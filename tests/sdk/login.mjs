// A client that logs in, for providers of the TypeScript SDKs: reads one step a line from stdin and prints one outcome a
// line, so that a test can let time pass in between, or revoke. What an SDK leaves to the program that uses it is here:
// where tokens are kept, the callback on this machine, the browser (BROWSER), and finishing a login that a 401 began.
import { spawn } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import http from 'node:http';
import { createInterface } from 'node:readline';

const { URL: url, BROWSER: browser, CLIENT_METADATA_URL: clientMetadataUrl } = process.env;
const kept = {};
let back;

const callback = http.createServer((request, response) => {
  const { pathname, searchParams } = new URL(request.url, 'http://127.0.0.1');
  response.writeHead(pathname === '/callback' ? 200 : 404, { Connection: 'close' }).end('You can close this page.');
  if (pathname === '/callback') back.resolve(searchParams);
});
await new Promise((resolve) => callback.listen(Number(process.env.CALLBACK_PORT ?? 0), '127.0.0.1', resolve));
const redirectUrl = `http://127.0.0.1:${callback.address().port}/callback`;

/** What the SDKs ask of a provider. */
const provider = {
  redirectUrl,
  ...(clientMetadataUrl && { clientMetadataUrl }),
  clientMetadata: {
    client_name: process.env.CLIENT_NAME,
    redirect_uris: [redirectUrl],
    grant_types: ['authorization_code', 'refresh_token'],
    response_types: ['code'],
    token_endpoint_auth_method: process.env.AUTH_METHOD ?? 'none',
  },
  state: () => (kept.state = randomUUID()),
  clientInformation: () => kept.client,
  saveClientInformation: (client) => void (kept.client = client),
  tokens: () => kept.tokens,
  saveTokens: (tokens) => void (kept.tokens = tokens),
  saveCodeVerifier: (verifier) => void (kept.verifier = verifier),
  codeVerifier: () => kept.verifier,
  saveDiscoveryState: (state) => void (kept.discovery = state),
  discoveryState: () => kept.discovery,
  invalidateCredentials: (what) => {
    if (what === 'all' || what === 'tokens') delete kept.tokens;
    if (what === 'all' || what === 'client') delete kept.client;
    if (what === 'all' || what === 'discovery') delete kept.discovery;
  },
  redirectToAuthorization: (to) => {
    back = Promise.withResolvers();
    spawn(browser, [to.href], { stdio: 'ignore' }).on('exit', (code) => {
      if (code !== 0) back.reject(new Error('the person did not come back'));
    });
  },
};

/** What came back from the browser, checked as far as the SDKs leave it to their users. */
async function comeBack() {
  const parameters = await back.promise;
  if (parameters.get('state') !== kept.state) throw new Error('the state is not the one that was sent');
  if (parameters.has('error')) throw new Error(`${parameters.get('error')}: ${parameters.get('error_description')}`);
  return parameters;
}

/**
 * `build` makes a client and a transport with the provider; `finish` hands what came back to the transport; `isLoginNeeded`
 * knows the SDK's own error.
 */
export async function run({ build, call, finish, isLoginNeeded }) {
  let now;
  const connect = async () => {
    now = build(new URL(url), provider);
    await now.client.connect(now.transport);
    return { server: now.client.getServerVersion() };
  };
  const steps = {
    connect,
    list: () => now.client.listTools(),
    call: ({ call: name, arguments: given }) => call(now.client, { name, arguments: given ?? {} }),
  };
  for await (const line of createInterface({ input: process.stdin })) {
    const step = JSON.parse(line);
    const [take] = Object.entries(steps).filter(([name]) => name in step).map(([, take]) => take);
    let outcome;
    try {
      outcome = { result: await take(step).catch(async (error) => {
        if (!isLoginNeeded(error)) throw error;
        await finish(now.transport, await comeBack());
        return take(step);
      }) };
    } catch (error) {
      outcome = { error: { kind: error.name, message: error.message } };
    }
    process.stdout.write(`${JSON.stringify(outcome)}\n`);
  }
  process.exit(0);
}
