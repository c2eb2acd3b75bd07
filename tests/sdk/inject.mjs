// The conformance suite has no option for a token. Preloaded into it (NODE_OPTIONS=--import), this adds one to every
// request to ORIGIN, whichever of its three ways the suite sends it: fetch, undici's own request, and http.request.
// Nothing else of a request is touched, and one that brings its own Authorization keeps it.
import http from 'node:http';
import { syncBuiltinESMExports } from 'node:module';
import { load } from './packages.mjs';

const { ORIGIN: origin, TOKEN: token } = process.env;
const authorization = `Bearer ${token}`;
const { getGlobalDispatcher, setGlobalDispatcher } = load('undici');

/** The headers with a token: undici takes them as an object, as a flat list, or as pairs. */
function withToken(headers) {
  if (Array.isArray(headers) && !Array.isArray(headers[0])) return ['authorization', authorization, ...headers];
  const pairs = headers?.[Symbol.iterator] ? [...headers] : Object.entries(headers ?? {});
  return { authorization, ...Object.fromEntries(pairs.map(([name, value]) => [name.toLowerCase(), value])) };
}

// Node's own fetch asks the same dispatcher as the undici package.
setGlobalDispatcher(
  getGlobalDispatcher().compose((dispatch) => (options, handler) => {
    const isOurs = String(options.origin) === origin;
    return dispatch(isOurs ? { ...options, headers: withToken(options.headers) } : options, handler);
  }),
);

const { request } = http;
http.request = (options, ...rest) => {
  const isOurs = `http://${options?.hostname}:${options?.port}` === origin;
  const headers = { Authorization: authorization, ...options?.headers };
  return request(isOurs ? { ...options, headers } : options, ...rest);
};
syncBuiltinESMExports();
