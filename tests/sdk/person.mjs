// A person with a browser that has no JavaScript, for clients that open one (BROWSER) or print where to go: it opens the URL
// it is given, logs in where a page asks for a password, presses a button of the consent page, and goes where it is sent,
// back to the client too. Who the person is and what they press stands in a file of their own, which PERSON names:
// {"username", "password", "decision": "allow" | "deny", "seen": a file that gets one line for each page}.
import { appendFileSync, readFileSync } from 'node:fs';
import http from 'node:http';
import https from 'node:https';

const person = JSON.parse(readFileSync(process.env.PERSON, 'utf8'));
// More pages than any login has.
const MOST_STEPS = 20;
const patience = Date.now() + 10_000;
const cookies = new Map();

/** One request, with the headers of a navigation; redirects are not followed. */
function ask(url, form) {
  const jar = cookies.get(url.origin) ?? new Map();
  const headers = {
    Accept: 'text/html,application/xhtml+xml,*/*;q=0.8',
    'Sec-Fetch-Dest': 'document',
    'Sec-Fetch-Mode': 'navigate',
    'Sec-Fetch-Site': form ? 'same-origin' : 'none',
    ...(jar.size > 0 && { Cookie: [...jar].map(([name, value]) => `${name}=${value}`).join('; ') }),
    ...(form && { 'Content-Type': 'application/x-www-form-urlencoded', Origin: url.origin }),
  };
  const { request } = url.protocol === 'https:' ? https : http;
  return new Promise((resolve, reject) => {
    const sent = request(url, { method: form ? 'POST' : 'GET', headers, agent: false }, (response) => {
      for (const line of response.headers['set-cookie'] ?? []) keep(jar, line);
      cookies.set(url.origin, jar);
      const pieces = [];
      response.on('data', (piece) => pieces.push(piece));
      response.on('end', () => resolve({ response, text: Buffer.concat(pieces).toString() }));
      response.on('error', reject);
    });
    sent.on('error', (error) => {
      // A client may open the browser first and listen then; a person is slower than that.
      const isEarly = error.code === 'ECONNREFUSED' && url.origin !== origin && Date.now() < patience;
      if (isEarly) setTimeout(() => ask(url, form).then(resolve, reject), 50);
      else reject(error);
    });
    sent.end(form?.toString());
  });
}

function keep(jar, line) {
  const [pair, ...attributes] = line.split(';').map((part) => part.trim());
  const [, name, value] = /^([^=]*)=(.*)$/.exec(pair) ?? [];
  const has = (attribute) => attributes.some((one) => one.toLowerCase().startsWith(attribute));
  if (name?.startsWith('__Host-') && !(has('secure') && has('path=/') && !has('domain'))) {
    throw new Error(`a browser refuses this cookie: ${name}`);
  }
  if (has('max-age=0')) jar.delete(name);
  else if (name) jar.set(name, value);
}

const REFERENCES = { amp: '&', lt: '<', gt: '>', quot: '"', apos: "'" };
const unescaped = (text) =>
  text.replace(/&(?:#x([0-9a-f]+)|#(\d+)|(\w+));/gi, (all, hex, decimal, name) =>
    name ? (REFERENCES[name] ?? all) : String.fromCodePoint(hex ? Number.parseInt(hex, 16) : Number(decimal)),
  );

function attribute(tag, name) {
  const found = new RegExp(`\\s${name}(?:\\s*=\\s*(?:"([^"]*)"|'([^']*)'|([^\\s"'>]+)))?(?=[\\s/>]|$)`, 'i').exec(tag);
  return found ? unescaped(found[1] ?? found[2] ?? found[3] ?? '') : undefined;
}

/** The forms of a page: where they go, their fields, and their buttons that have a name. */
function forms(html) {
  return [...html.matchAll(/<form\b[^>]*>([\s\S]*?)<\/form>/gi)].map(([whole, inside]) => {
    const form = { action: attribute(/^<form[^>]*>/i.exec(whole)[0], 'action'), fields: [], buttons: [] };
    for (const [tag, kind] of inside.matchAll(/<(input|button)\b[^>]*>/gi)) {
      const [name, value] = [attribute(tag, 'name'), attribute(tag, 'value') ?? ''];
      const type = attribute(tag, 'type') ?? (kind.toLowerCase() === 'button' ? 'submit' : 'text');
      if (name === undefined || type === 'reset' || type === 'button') continue;
      if ((type === 'checkbox' || type === 'radio') && attribute(tag, 'checked') === undefined) continue;
      (type === 'submit' ? form.buttons : form.fields).push([name, value]);
    }
    return form;
  });
}

let hasLoggedIn = false;

/** What to send next from this page, or nothing where there is nothing for this person to do. */
function answer(page) {
  const login = forms(page).find(({ fields }) => fields.some(([name]) => name === 'password'));
  if (login) {
    if (hasLoggedIn) throw new Error('the login page came again');
    hasLoggedIn = true;
    const typed = { username: person.username, password: person.password };
    return { action: login.action, fields: login.fields.map(([name, value]) => [name, typed[name] ?? value]) };
  }
  const isPressed = ([name, value]) => name === 'decision' && value === person.decision;
  const consent = forms(page).find(({ buttons }) => buttons.some(isPressed));
  return consent && { action: consent.action, fields: [...consent.fields, ['decision', person.decision]] };
}

function see(what) {
  if (person.seen) appendFileSync(person.seen, `${JSON.stringify(what)}\n`);
}

let url = new URL(process.argv[2]);
const { origin } = url;
let form;
for (let step = 0; ; step++) {
  if (step === MOST_STEPS) throw new Error(`still not back after ${MOST_STEPS} pages`);
  const { response, text } = await ask(url, form);
  see({ url: url.href, method: form ? 'POST' : 'GET', status: response.statusCode, location: response.headers.location });
  if (response.headers.location !== undefined) {
    // Only after 303 does a browser surely not send the form on.
    if (form && response.statusCode !== 303) throw new Error(`${response.statusCode} after a form`);
    [url, form] = [new URL(response.headers.location, url), undefined];
    continue;
  }
  const next = url.origin === origin && answer(text);
  if (!next) {
    // Back at the client, or before a page that leads nowhere.
    if (url.origin === origin || response.statusCode >= 400) {
      throw new Error(`${response.statusCode} ${url.origin}${url.pathname}: ${text}`);
    }
    break;
  }
  [url, form] = [new URL(next.action || url, url), new URLSearchParams(next.fields)];
}
