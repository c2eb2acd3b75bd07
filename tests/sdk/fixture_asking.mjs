// The fixture's tools that ask something of their client before they answer: a form, a page, a model, the roots.
import { randomBytes } from 'node:crypto';
import { progressing, said, simple, tool } from './fixture_tools.mjs';
import { load } from './packages.mjs';

const { createRequestStateCodec, inputRequired } = load('@modelcontextprotocol/server');

/** What a server remembers across rounds travels through the client, signed. */
export const states = createRequestStateCodec({ key: randomBytes(32) });

export const form = (message, properties, required = Object.keys(properties)) =>
  inputRequired.elicit({ message, requestedSchema: { type: 'object', properties, required } });

const prompting = (text, maxTokens) =>
  inputRequired.createMessage({ messages: [{ role: 'user', content: { type: 'text', text } }], maxTokens });

const heard = (answers) => said(`The client answered ${JSON.stringify(answers)}`);

/** A handler that asks for these inputs until it has them all, and then answers with `done`. */
export const asking =
  (inputRequests, done = heard, state) =>
  async (_given, { mcpReq }) => {
    const answers = mcpReq.inputResponses ?? {};
    const isOpen = Object.keys(inputRequests).some((key) => answers[key] === undefined);
    if (!isOpen) return done(answers, mcpReq.requestState());
    return inputRequired({ inputRequests, ...(state && { requestState: await states.mint(state) }) });
  };

const name = form('What is your name?', { name: { type: 'string' } });
const confirmation = form('Please confirm', { ok: { type: 'boolean' } });
const roots = inputRequired.listRoots();

/** A default of each type (SEP-1034). */
const defaults = {
  name: { type: 'string', default: 'John Doe' },
  age: { type: 'integer', default: 30 },
  score: { type: 'number', default: 95.5 },
  status: { type: 'string', enum: ['active', 'inactive', 'pending'], default: 'active' },
  verified: { type: 'boolean', default: true },
};

const titled = (kind) => ['First', 'Second', 'Third'].map((nth, n) => ({ const: `value${n + 1}`, title: `${nth} ${kind}` }));

/** Each kind of choice (SEP-1330). */
const choices = {
  untitledSingle: { type: 'string', enum: ['option1', 'option2', 'option3'] },
  titledSingle: { type: 'string', oneOf: titled('Option') },
  legacyEnum: { type: 'string', enum: ['opt1', 'opt2', 'opt3'], enumNames: ['Option One', 'Option Two', 'Option Three'] },
  untitledMulti: { type: 'array', items: { type: 'string', enum: ['option1', 'option2', 'option3'] } },
  titledMulti: { type: 'array', items: { anyOf: titled('Choice') } },
};

function addKinds(server) {
  const prompt = { prompt: { type: 'string', description: 'What to ask.' } };
  tool(server, 'test_sampling', "Asks the client's model.", prompt, ({ prompt }, context) => {
    const answered = ({ input }) => said(`LLM response: ${input.content.text}`);
    return asking({ input: prompting(prompt, 100) }, answered)({}, context);
  });
  const message = { message: { type: 'string', description: 'What to ask.' } };
  const fields = {
    username: { type: 'string', description: "User's response" },
    email: { type: 'string', description: "User's email address" },
  };
  tool(server, 'test_elicitation', 'Asks the user.', message, ({ message }, context) =>
    asking({ input: form(message, fields) })({}, context),
  );
  const withDefaults = asking({ input: form('Is this right?', defaults, []) });
  simple(server, 'test_elicitation_sep1034_defaults', 'Asks the user, with defaults.', withDefaults);
  simple(server, 'test_elicitation_sep1330_enums', 'Asks to choose.', asking({ input: form('Which?', choices, []) }));
  const page = inputRequired.elicitUrl({ message: 'Please look', url: 'https://example.com/look?a=1&b=ü' });
  simple(server, 'test_url_elicitation', 'Asks the user to open a page.', asking({ input: page }));
  const model = asking({ input: prompting('Who are you?', 10) });
  simple(server, 'test_missing_capability', 'Needs a client that has a model.', model);
  simple(server, 'test_streaming_elicitation', 'Asks the user after some progress.', async (given, context) => {
    await progressing(given, context);
    return asking({ input: confirmation })(given, context);
  });
}

/** Asks for a name, then for a color, and remembers the name. */
async function stepByStep(_given, { mcpReq }) {
  const { step = 1, name } = mcpReq.requestState() ?? {};
  const answer = mcpReq.inputResponses?.[`step${step}`]?.content;
  if (step === 2 && answer) return said(`${name} likes ${answer.color}.`);
  const isNext = step === 1 && answer;
  const state = isNext ? { step: 2, name: answer.name } : { step: 1 };
  const input = isNext
    ? form('Step 2: What is your favorite color?', { color: { type: 'string' } })
    : form('Step 1: What is your name?', { name: { type: 'string' } });
  return inputRequired({ inputRequests: { [`step${state.step}`]: input }, requestState: await states.mint(state) });
}

function addRounds(server) {
  const ask = (name, description, run) => simple(server, `test_input_required_result_${name}`, description, run);
  const hello = ({ user_name }) => said(`Hello, ${user_name.content?.name ?? 'whoever you are'}!`);
  ask('elicitation', 'Asks for a name.', asking({ user_name: name }, hello));
  ask('sampling', 'Asks for a capital.', asking({ capital_question: prompting('What is the capital of France?', 100) }));
  ask('list_roots', 'Asks for the roots.', asking({ client_roots: roots }));
  const remembered = (_answers, state) => said(`state-${state?.kept ?? 'lost'}`);
  ask('request_state', 'Asks, and remembers.', asking({ confirm: confirmation }, remembered, { kept: 'ok' }));
  ask('tampered_state', 'Asks, and notices forgery.', asking({ confirm: confirmation }, heard, { kept: 'sealed' }));
  const three = { user_name: name, greeting: prompting('Generate a greeting', 50), client_roots: roots };
  ask('multiple_inputs', 'Asks for three things at once.', asking(three, heard, { n: 3 }));
  ask('multi_round', 'Asks twice, one after the other.', stepByStep);
  ask('capabilities', 'Asks for what the client has.', (given, context) => {
    const { elicitation, sampling } = server.server.getClientCapabilities() ?? {};
    const inputs = {
      ...(elicitation && { user_name: name }),
      ...(sampling && { greeting: prompting('Generate a greeting', 50) }),
    };
    return asking(inputs)(given, context);
  });
}

/** Adds them. */
export function addAskingTools(server) {
  addKinds(server);
  addRounds(server);
}
