// Keeps the list of held calls, or the status, as it is, without a reload. The page works without it.
'use strict';
const here = location.pathname;
const events = new EventSource(here === '/status' ? '/events?status' : '/events');
let isBusy = false;
let isStale = false;

async function renew() {
  isStale = true;
  if (isBusy) return;
  isBusy = true;
  while (isStale) {
    isStale = false;
    const answer = await fetch(`${here}?live`, { credentials: 'same-origin', cache: 'no-store' }).catch(() => null);
    if (!answer) break;
    const page = new DOMParser().parseFromString(await answer.text(), 'text/html');
    const [now, next] = [document.getElementById('live'), page.getElementById('live')];
    // Logged out, or out of order: the whole page says so.
    if (!next) return location.reload();
    const focused = document.activeElement?.getAttribute('href');
    now.replaceWith(next);
    document.title = page.title;
    if (focused) document.querySelector(`#live a[href="${CSS.escape(focused)}"]`)?.focus({ preventScroll: true });
  }
  isBusy = false;
}

events.addEventListener('changed', renew);
// Times on the page grow old.
setInterval(renew, 30000);
