// A small chat bridge: what a receiver of portcullis' webhooks has to do, and nothing else. It verifies each message with the
// library of Standard Webhooks, prints what a chat would show, and decides: at once, in its answer, where a policy of its own
// is sure (ANSWER), or later, by a signed message to `decision_url`, when a person says so (a line on its input).
//
//   BRIDGE_SECRET=whsec_…  node chat_bridge.mjs        prints `bridge http://127.0.0.1:PORT/`
//   approve h_… alice          a person's word, on its input
//   deny h_… alice too risky
//
// ANSWER='approve' or 'deny', with PERSON=alice, answers every notice with that decision.
import { createServer } from 'node:http';
import { randomUUID } from 'node:crypto';
import { createInterface } from 'node:readline';
import { load } from './packages.mjs';

const { Webhook } = load('standardwebhooks');

const signer = new Webhook(process.env.BRIDGE_SECRET);
const waiting = new Map();
const heard = new Set();

// The headers and the body of a decision. It repeats what only we were told: the digest and the nonce.
function decision(notice, verdict, person, reason) {
  const data = { id: notice.id, digest: notice.digest, nonce: notice.nonce, decision: verdict };
  if (person) data.person = person;
  if (reason) data.reason = reason;
  const body = JSON.stringify({ type: 'approval.decision', data });
  const [id, now] = [`msg_${randomUUID()}`, new Date()];
  const headers = {
    'content-type': 'application/json',
    'webhook-id': id,
    'webhook-timestamp': String(Math.floor(now.getTime() / 1000)),
    'webhook-signature': signer.sign(id, now, body),
  };
  return { headers, body };
}

// One that comes again has the same id: it is answered, and not shown a second time.
function receive(raw, headers) {
  const { type, data } = signer.verify(raw, headers);
  if (type !== 'approval.requested') return undefined;
  const isNew = !heard.has(headers['webhook-id']);
  heard.add(headers['webhook-id']);
  waiting.set(data.id, data);
  if (isNew) {
    // `summary` is one line without markup; everything else a real bridge escapes as its chat wants it.
    console.log(`message ${JSON.stringify({ id: data.id, text: data.summary, link: data.link, arguments: data.arguments })}`);
  }
  return data;
}

const server = createServer((request, response) => {
  const pieces = [];
  request.on('data', (piece) => pieces.push(piece));
  request.on('end', () => {
    let notice;
    try {
      notice = receive(Buffer.concat(pieces).toString(), request.headers);
    } catch (error) {
      console.log(`refused ${error.message}`);
      return response.writeHead(400).end();
    }
    if (!notice?.nonce || !process.env.ANSWER) return response.writeHead(204).end();
    const { headers, body } = decision(notice, process.env.ANSWER, process.env.PERSON, process.env.REASON);
    return response.writeHead(200, headers).end(body);
  });
});

createInterface({ input: process.stdin }).on('line', async (line) => {
  const [verdict, id, person, ...reason] = line.trim().split(' ');
  const notice = waiting.get(id);
  if (!notice) return console.log(`unknown ${id}`);
  const { headers, body } = decision(notice, verdict, person, reason.join(' '));
  const answer = await fetch(notice.decision_url, { method: 'POST', headers, body, redirect: 'error' });
  return console.log(`decided ${answer.status} ${await answer.text()}`);
});

server.listen(Number(process.env.PORT ?? 0), '127.0.0.1', () => {
  console.log(`bridge http://127.0.0.1:${server.address().port}/`);
});
