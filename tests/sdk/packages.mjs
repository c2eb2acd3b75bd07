// The SDKs are installed outside the clone; these programs say `load('@modelcontextprotocol/client')` instead of `import`.
import { createRequire } from 'node:module';

export const load = createRequire(`${process.env.SDK_PACKAGES}/package.json`);
