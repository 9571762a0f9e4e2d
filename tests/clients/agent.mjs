// What every client's script shares: the tools of an agent, its conversation, and how it says what happened.
//
// A script gets one argument, {url, key, cases: [{name, model, mode, words: [...]}]}, and prints one line of JSON for each case:
// {name, turns: [{text, calls: [[tool, arguments], ...], stop}]} or {name, error}. A turn is one saying of the user, with all
// requests that it takes until the model calls no more tools.

const TURNS = 8;

// Runs a tool; `calls` notes what ran. A command is noted only: the agents of these tests have nothing to delete.
export function run(calls, name, args) {
  calls.push([name, args]);
  if (name === "get_weather") return `sunny in ${args.city}`;
  if (name === "get_time") return "noon";
  if (name === "bash") return `ran ${args.command}`;
  throw new Error(`a call of a tool that does not exist: ${name}`);
}

export const SCHEMAS = {
  get_weather: object({ city: { type: "string" } }),
  get_time: object({}),
  bash: object({ command: { type: "string" } }),
};

function object(properties) {
  return { type: "object", properties, required: Object.keys(properties), additionalProperties: false };
}

// Asks until there are no calls: `step` makes one request and gives what the turn said so far, and whether it goes on.
export async function loop(step) {
  for (let n = 0; n < TURNS; n++) {
    const said = await step();
    if (said) return said;
  }
  throw new Error(`the model calls tools after ${TURNS} requests`);
}

// Runs all cases; `ask(place, one, words, history)` runs one turn and keeps the history.
export async function main(ask) {
  const place = JSON.parse(process.argv[2]);
  for (const one of place.cases) {
    const said = { name: one.name, turns: [] };
    try {
      const history = [];
      for (const words of one.words) said.turns.push(await ask(place, one, words, history));
    } catch (error) {
      said.error = String(error?.stack ?? error);
    }
    console.log(JSON.stringify(said));
  }
}
