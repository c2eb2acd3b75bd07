// A person with a real browser: does what it is told on stdin, one JSON object a line, `{"id", "do", …}`, and answers each with
// `{"id", "result"}` or `{"id", "error"}`. Chromium starts with the first window. It ends when stdin does.
//
// Windows share nothing: each is a browser profile of its own, as if on another computer.
import { mkdirSync, readFileSync } from 'node:fs';
import { dirname } from 'node:path';
import { createInterface } from 'node:readline';
import { load } from './packages.mjs';

const { chromium } = load('playwright-core');
const axe = readFileSync(load.resolve('axe-core/axe.min.js'), 'utf8');
// Where something does not come, the test says so; this is far above what a busy machine needs.
const PATIENCE_MS = 25_000;
const WCAG = ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice'];

let browser;
const windows = new Map();

function launch() {
  const quiet = ['--no-first-run', '--disable-background-networking', '--disable-component-update', '--disable-sync'];
  // Apps of the tests live on this machine, under names of their own; nothing else is to be found.
  const names = 'MAP *.example 127.0.0.1, MAP * ~NOTFOUND, EXCLUDE localhost, EXCLUDE 127.0.0.1, EXCLUDE [::1]';
  const rooms = ['--no-sandbox', '--disable-gpu', '--disable-quic', '--disable-dev-shm-usage'];
  const args = [...rooms, ...quiet, `--host-resolver-rules=${names}`];
  return chromium.launch({ executablePath: process.env.CHROMIUM, args, timeout: PATIENCE_MS });
}

/** A window, and what can be known of it from outside: requests, failures, what its console says. */
async function open({ window, scheme, width, height, script, motion, colors }) {
  browser ??= launch();
  const context = await (await browser).newContext({
    colorScheme: scheme,
    viewport: { width, height },
    javaScriptEnabled: script,
    reducedMotion: motion,
    forcedColors: colors,
    ignoreHTTPSErrors: true,
  });
  context.setDefaultTimeout(PATIENCE_MS);
  const page = await context.newPage();
  const heard = { requests: [], failures: [], console: [] };
  const asked = (request) => heard.requests.push(`${request.method()} ${request.url()}`);
  page.on('request', asked);
  page.on('requestfailed', (request) => heard.failures.push(`${request.url()} ${request.failure()?.errorText}`));
  page.on('console', (message) => heard.console.push(`${message.type()}: ${message.text()}`));
  page.on('pageerror', (error) => heard.console.push(`error: ${error}`));
  const state = { context, page, heard, status: undefined };
  page.on('response', (response) => {
    if (response.request().isNavigationRequest()) state.status = response.status();
  });
  windows.set(window, state);
  return {};
}

/** What stands in the window. */
async function seen({ page, status, heard }) {
  const [title, text, heading, focused] = await Promise.all([
    page.title(),
    page.locator('body').innerText(),
    page.locator('h1').allInnerTexts(),
    page.evaluate(() => {
      const at = document.activeElement;
      return at === document.body ? '' : (at.labels?.[0] ?? at).textContent.trim().replace(/\s+/g, ' ');
    }),
  ]);
  return { url: page.url(), status, title, text, heading: heading.join('\n'), focused, ...heard };
}

/** Does something that leads to another page, and waits until that is there. */
async function leads(state, act) {
  const [done] = await Promise.allSettled([
    state.page.waitForEvent('framenavigated', { predicate: (frame) => frame === state.page.mainFrame() }),
    act(),
  ]);
  if (done.status === 'rejected') throw done.reason;
  await state.page.waitForLoadState('load');
  return seen(state);
}

async function isHeard(heard, isSo, what) {
  const deadline = Date.now() + PATIENCE_MS;
  while (!isSo(Object.values(heard).flat())) {
    if (Date.now() > deadline) throw new Error(`waited in vain for ${what}: ${JSON.stringify(heard)}`);
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
}

const control = (page, name) => {
  const exact = { name, exact: true };
  return page.getByRole('button', exact).or(page.getByRole('link', exact));
};

const actions = {
  async goto(state, { url }) {
    await state.page.goto(url, { waitUntil: 'load' });
    return seen(state);
  },
  async fill(state, { label, text }) {
    await state.page.getByLabel(label, { exact: true }).fill(text);
    return {};
  },
  press: (state, { name }) => leads(state, () => control(state.page, name).click({ noWaitAfter: true })),
  // A press that leads out of the browser, or nowhere.
  async press_in_vain({ page, heard }, { name, until }) {
    await control(page, name).click({ noWaitAfter: true });
    await isHeard(heard, (lines) => lines.some((line) => line.includes(until)), until);
    return heard;
  },
  // Twice, each time until the form is on its way: the answer must not come before.
  async press_twice({ page, heard }, { name }) {
    const { x, y, width, height } = await control(page, name).boundingBox();
    const n_posts = (lines) => lines.filter((line) => line.startsWith('POST ')).length;
    const before = n_posts(heard.requests);
    for (const n of [1, 2]) {
      // The mouse itself: a click on an element waits for what the first one began.
      await page.mouse.click(x + width / 2, y + height / 2);
      await isHeard(heard, (lines) => n_posts(lines) === before + n, `form ${n}`);
    }
    return {};
  },
  async arrive(state, { heading }) {
    await state.page.getByRole('heading', { name: heading, exact: true }).waitFor();
    return seen(state);
  },
  async type(state, { keys }) {
    for (const key of keys) {
      if (key.startsWith('text:')) await state.page.keyboard.type(key.slice(5));
      else await state.page.keyboard.press(key);
    }
    return seen(state);
  },
  type_away: (state, { keys }) => leads(state, () => actions.type(state, { keys }).catch(() => {})),
  // A canary that script of strangers would set, and what elements there are within one.
  census: ({ page }, { within }) =>
    page.evaluate((within) => {
      const names = [...document.querySelectorAll(`${within} *`)].map((it) => it.localName);
      return { canary: String(window.__x), names: [...new Set(names)].sort() };
    }, within),
  async wait_for({ page }, { role, name }) {
    await page.getByRole(role, { name }).first().waitFor();
    return {};
  },
  back: (state) => leads(state, () => state.page.goBack({ waitUntil: 'commit' })),
  async field(state, { label }) {
    const field = state.page.getByLabel(label, { exact: true });
    return { value: await field.inputValue(), valid: await field.evaluate((it) => it.validity.valid) };
  },
  async shot(state, { file, media }) {
    mkdirSync(dirname(file), { recursive: true });
    if (media) await state.page.emulateMedia({ media });
    await state.page.screenshot({ path: file, fullPage: true });
    if (media) await state.page.emulateMedia({ media: null });
    return {};
  },
  // What stands in the way of people: targets too small for a finger and text that runs out of the window; with `rules`, also
  // what WCAG 2.2 AA has as far as a program can judge it.
  async hindrances(state, { rules }) {
    const measured = await state.page.evaluate(() => {
      const small = [...document.querySelectorAll('button, input:not([type=hidden]), a.main')].filter((it) => {
        const { width, height } = it.getBoundingClientRect();
        if (!it.checkVisibility()) return false;
        return width < 44 || height < 44;
      });
      const wide = document.documentElement.scrollWidth - window.innerWidth;
      return [
        ...small.map((it) => `smaller than 44 px: ${it.outerHTML}`),
        ...(wide > 0 ? [`${wide} px wider than the window`] : []),
      ];
    });
    if (!rules) return { hindrances: measured };
    await state.page.evaluate(axe);
    const { violations, passes } = await state.page.evaluate((tags) => axe.run(document, { runOnly: tags }), WCAG);
    const nodes = ({ id, nodes }) => nodes.map(({ html, failureSummary }) => `${id}: ${html} ${failureSummary}`);
    return { n_passed: passes.length, hindrances: [...measured, ...violations.flatMap(nodes)] };
  },
  async spoil(state) {
    await state.page.evaluate(() => {
      document.documentElement.removeAttribute('lang');
      document.querySelector('label').remove();
      document.querySelector('h1').style.color = '#ddd';
      document.querySelector('button').style.minHeight = '20px';
      document.querySelector('button').style.padding = '0';
      document.querySelector('main').style.minWidth = '500px';
    });
    return {};
  },
  async cookies(state) {
    return { cookies: await state.context.cookies() };
  },
  async close(state, { window }) {
    windows.delete(window);
    await state.context.close();
    return {};
  },
};

async function take(order) {
  if (order.do === 'open') return open(order);
  return actions[order.do](windows.get(order.window), order);
}

for await (const line of createInterface({ input: process.stdin })) {
  const order = JSON.parse(line);
  take(order).then(
    (result) => console.log(JSON.stringify({ id: order.id, result })),
    (error) => console.log(JSON.stringify({ id: order.id, error: String(error?.stack ?? error) })),
  );
}
setTimeout(() => process.exit(1), 10_000).unref();
await (await browser)?.close();
process.exit(0);
