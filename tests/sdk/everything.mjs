// @modelcontextprotocol/server-everything as it is, on a free port of 127.0.0.1 which is printed.
import { Server } from 'node:net';
import { dirname, join } from 'node:path';
import { load } from './packages.mjs';

const listen = Server.prototype.listen;
Server.prototype.listen = function (_port, ...rest) {
  this.once('listening', () => console.log(`listening ${this.address().port}`));
  return listen.call(this, 0, '127.0.0.1', ...rest);
};

const folder = dirname(load.resolve('@modelcontextprotocol/server-everything/package.json'));
process.argv[2] = 'streamableHttp';
await import(join(folder, 'dist/index.js'));
