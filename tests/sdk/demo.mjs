// The story that `make demo` tells: an agent makes risky calls, and people decide on them. Everything in it is real: the
// gateway and its sandbox, the agent (the official TypeScript SDK), the browser, and the library that verifies webhooks.
// It says what it sees, and ends with 1 as soon as something is not as it should be.
import { execFile, spawn } from 'node:child_process';
import { createServer } from 'node:http';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { randomBytes } from 'node:crypto';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { promisify } from 'node:util';
import { load } from './packages.mjs';

const { Client, StreamableHTTPClientTransport } = load('@modelcontextprotocol/client');
const { chromium } = load('playwright-core');
const { Webhook } = load('standardwebhooks');

const started = Date.now();
const folder = mkdtempSync(join(tmpdir(), 'portcullis-demo-'));
const endings = [];

const plain = (text) => text.replace(/\s+/g, ' ').trim();
const act = (title) => console.log(`\n── ${title}`);
const say = (who, what) => console.log(`${who.padStart(9)} │ ${plain(String(what)).slice(0, 150)}`);
const indented = (text, most = 40) => {
  const lines = text.trimEnd().split('\n');
  for (const line of lines.slice(0, most)) console.log(`          │   ${line}`);
  if (lines.length > most) console.log(`          │   (${lines.length - most} more lines)`);
};
function must(isSo, what) {
  if (!isSo) throw new Error(`this should not be: ${what}`);
}

async function portcullis(...args) {
  const { stdout } = await promisify(execFile)(process.env.PORTCULLIS, ['--config', 'gateway.yaml', ...args], { cwd: folder });
  return stdout.trim();
}

// === The receiver of webhooks: what a chat bridge would be ===

const secret = `whsec_${randomBytes(32).toString('base64')}`;
const verifier = new Webhook(secret);
const notices = [];
let tell = () => {};

const receiver = createServer((request, response) => {
  const pieces = [];
  request.on('data', (piece) => pieces.push(piece));
  request.on('end', () => {
    try {
      notices.push(verifier.verify(Buffer.concat(pieces).toString(), request.headers));
      response.writeHead(204).end();
    } catch (error) {
      notices.push({ error });
      response.writeHead(400).end();
    }
    tell();
  });
});

async function notice() {
  const patience = setTimeout(() => {
    console.error('no webhook came');
    process.exit(1);
  }, 20_000);
  while (notices.length === 0) await new Promise((resolve) => (tell = resolve));
  clearTimeout(patience);
  const { error, ...message } = notices.shift();
  if (error) throw error;
  say('webhook', `signature verified by npm standardwebhooks: ${message.data.summary}`);
  return message.data;
}

// === The gateway ===

/** alice works with an agent; bob is an admin. Their passwords are known to nobody's agent. */
const people = { alice: 'team', bob: 'admins' };

function configuration(hash) {
  const user = (name) => `    - { name: ${name}, groups: [${people[name]}], password_hash: "${hash[name]}" }`;
  return `listen: 127.0.0.1:0
admin: { listen: 127.0.0.1:0 }
data_dir: data
identity:
  users:
${Object.keys(people).map(user).join('\n')}
upstreams:
  sandbox: { sandbox: { workspace: workspace, network: none } }
policy:
  rules:
    - { name: work in the sandbox, tools: ["sandbox/*"], allow: {} }
    - name: deletes are looked at
      tools: [sandbox/run_command]
      when: { /command: { matches: '.*\\brm\\b.*', or_absent: true } }
      hold: { approvers: { groups: [admins] }, signals: { "recursive delete": '\\brm\\s+-\\w*r' } }
    - name: own risk
      tools: [sandbox/run_command]
      when: { /command: { matches: '.*\\bgit push\\b.*' } }
      hold: { approvers: { users: [alice] }, self: true }
approvals:
  wait: 20s
  webhooks:
    - { name: chat, url: "http://127.0.0.1:${receiver.address().port}/", secret: { env: HOOK_SECRET } }
`;
}

async function gateway() {
  const hash = {};
  for (const name of Object.keys(people)) {
    const file = join(folder, `${name}.password`);
    writeFileSync(file, `${randomBytes(12).toString('base64')}\n`, { mode: 0o600 });
    const hashed = await promisify(execFile)(process.env.PORTCULLIS, ['user', 'hash', '--password-file', file]);
    hash[name] = hashed.stdout.trim();
  }
  writeFileSync(join(folder, 'gateway.yaml'), configuration(hash));
  const env = { ...process.env, HOOK_SECRET: secret, RUST_LOG: 'warn' };
  const served = spawn(process.env.PORTCULLIS, ['serve', '--config', 'gateway.yaml'], { cwd: folder, env, stdio: ['ignore', 'pipe', 'inherit'] });
  process.env.HOOK_SECRET = secret;
  endings.push(() => new Promise((resolve) => {
    served.once('exit', resolve);
    served.kill('SIGTERM');
  }));
  for await (const line of createInterface({ input: served.stdout })) {
    const [, agents, admins] = /agent=(\S+).* admin=(\S+)/.exec(line) ?? [];
    if (agents) return { agents, admins };
  }
  throw new Error('the gateway did not start');
}

// === The agent ===

async function agent(url) {
  const token = await portcullis('token', 'issue', '--user', 'alice', '--route', 'sandbox', '--password-file', 'alice.password');
  const client = new Client({ name: 'demo-agent', version: '1.0.0' });
  const headers = { Authorization: `Bearer ${token}` };
  await client.connect(new StreamableHTTPClientTransport(new URL(`${url}/mcp/sandbox`), { requestInit: { headers } }));
  endings.push(() => client.close());
  return client;
}

const textOf = (result) => result.content.map(({ text }) => text).join('\n');

async function call(client, name, args, options) {
  say('agent', `${name} ${JSON.stringify(args)}`);
  const result = await client.callTool({ name, arguments: args }, { timeout: 50_000, ...options });
  say('answer', `${result.isError ? 'error: ' : ''}${textOf(result) || '(nothing)'}`);
  return result;
}

/** A call that its caller gives up as soon as it is known to be held. */
async function heldCall(client, name, args) {
  const giveUp = new AbortController();
  say('agent', `${name} ${JSON.stringify(args)}`);
  const gone = client.callTool({ name, arguments: args }, { signal: giveUp.signal }).then(
    () => must(false, 'it ran'),
    () => say('agent', 'gives up; the call stays held'),
  );
  const held = await notice();
  giveUp.abort();
  await gone;
  return held;
}

// === The story ===

async function approveOnThePage(link) {
  const browser = await chromium.launch({ executablePath: process.env.CHROMIUM, args: ['--no-sandbox', '--disable-gpu'] });
  endings.push(() => browser.close());
  const page = await browser.newPage();
  await page.goto(link);
  await logIn(page, 'bob');
  if (!page.url().startsWith(link)) await page.goto(link);
  say('browser', `${page.url()} as bob shows:`);
  indented((await page.locator('main').innerText()).replace(/\n\s*\n/g, '\n'), 60);
  await page.getByLabel('Your password', { exact: true }).fill(password('bob'));
  await page.getByRole('button', { name: 'Approve, once', exact: true }).click();
  await page.waitForLoadState('load');
  say('browser', `after "Approve, once": ${await page.locator('h1').first().innerText()}`);
}

const password = (name) => readFileSync(join(folder, `${name}.password`), 'utf8').trim();

async function logIn(page, name) {
  await page.getByLabel('User name', { exact: true }).fill(name);
  await page.getByLabel('Password', { exact: true }).fill(password(name));
  await page.getByRole('button', { name: 'Log in', exact: true }).click();
  await page.waitForLoadState('load');
}

const command = { command: 'rm -r build && ls' };

async function story() {
  await new Promise((resolve) => receiver.listen(0, '127.0.0.1', resolve));
  endings.push(() => receiver.close());
  const { agents, admins } = await gateway();
  const client = await agent(agents);
  say('gateway', `agents at ${agents}, approvers at ${admins}`);

  act('What is allowed runs at once');
  await call(client, 'run_command', { command: 'mkdir build && echo old >build/app && echo new >app && ls' });

  act('What is risky waits for a person');
  const waiting = call(client, 'run_command', command);
  const held = await notice();
  await approveOnThePage(held.link);
  const ran = await waiting;
  must(!ran.isError && !textOf(ran).includes('build'), 'it has not run as approved');

  act('An approval is for one run');
  const again = await heldCall(client, 'run_command', command);
  must(again.id !== held.id, 'it was held under the approval that is used up');
  await portcullis('approvals', 'withdraw', again.id, '--as', 'alice', '--password-file', 'alice.password');
  say('alice', `withdraws ${again.id} at the terminal`);

  act('Other arguments are another call, and a no is an answer');
  const other = await heldCall(client, 'run_command', { command: 'rm -r / && ls' });
  must(other.digest !== held.digest, 'it has the same digest');
  await portcullis('approvals', 'deny', other.id, '--reason', 'not the whole disk', '--as', 'bob', '--password-file', 'bob.password');
  say('bob', 'denies it at the terminal: not the whole disk');
  must((await call(client, 'run_command', { command: 'rm -r / && ls' })).isError, 'it ran');

  act('Who is alone approves with a password that no agent has');
  const own = call(client, 'run_command', { command: 'echo "git push" would run here' });
  const mine = await notice();
  await portcullis('approvals', 'approve', mine.id, '--digest', mine.digest, '--as', 'alice', '--password-file', 'alice.password');
  say('alice', `approves ${mine.id} at the terminal`);
  must(!(await own).isError, 'it has not run');

  act(`portcullis audit show ${held.id}`);
  const story = await portcullis('audit', 'show', held.id);
  indented(story, 120);
  for (const event of ['approval.requested', 'approval.decided', 'approval.consumed', 'approval.ended']) {
    must(story.includes(event), `${event} is not in the log`);
  }
  say('audit', await portcullis('audit', 'verify'));
}

// A call may still wait when something else goes wrong; that is what is to be told.
process.on('unhandledRejection', () => {});
let failed;
try {
  await story();
} catch (error) {
  failed = error;
  console.error(error);
}
for (const end of endings.reverse()) await end();
rmSync(folder, { recursive: true, force: true });
if (failed) process.exit(1);
console.log(`\nmake demo: done in ${((Date.now() - started) / 1000).toFixed(0)} s`);
