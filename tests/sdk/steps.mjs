// Reads what to do from stdin, does it with the client it is given, prints one line per step. Used by both TypeScript clients.
import { readFileSync } from 'node:fs';

export const input = JSON.parse(readFileSync(0, 'utf8'));

const say = (outcome) => console.log(JSON.stringify(outcome));

const failure = (error) => ({
  error: { code: error.code ?? null, message: error.message, data: error.data ?? null, kind: error.constructor.name },
});

async function outcome(act) {
  try {
    return { result: await act() };
  } catch (error) {
    return failure(error);
  }
}

async function take(client, step) {
  const params = step.arguments === undefined ? {} : { arguments: step.arguments };
  switch (true) {
    case step.list === 'tools': return client.listTools();
    case step.list === 'prompts': return client.listPrompts();
    case step.list === 'resources': return client.listResources();
    case step.list === 'templates': return client.listResourceTemplates();
    case 'prompt' in step: return client.getPrompt({ name: step.prompt, ...params });
    case 'read' in step: return client.readResource({ uri: step.read });
    default: throw new Error(`not a step: ${JSON.stringify(step)}`);
  }
}

/** `call(params, options)` is how this SDK calls a tool. */
export async function run(connect, client, call) {
  const connected = await outcome(async () => {
    await connect();
    return { server: client.getServerVersion(), capabilities: client.getServerCapabilities() };
  });
  say(connected);
  if (connected.error) process.exit(0);
  for (const step of input.steps) {
    const progress = [];
    const options = step.progress ? { onprogress: (one) => progress.push(one) } : {};
    const name = { name: step.call, ...(step.arguments === undefined ? {} : { arguments: step.arguments }) };
    const done = await outcome(() => ('call' in step ? call(name, options) : take(client, step)));
    say(step.progress ? { ...done, progress } : done);
  }
  // What the client does at the end (ending its session, say) belongs to the conversation.
  const closed = await outcome(() => client.close());
  if (closed.error) say(closed);
}
