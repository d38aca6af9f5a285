// A tool component in JavaScript, for StarlingMonkey and for QuickJS. Its tools do what a tool of that language does
// first: compute and, where the engine can, fetch.

import { get } from 'checkrein:plugin/config@0.1.0';
import { write } from 'checkrein:plugin/log@0.1.0';

const text = { type: 'string' };

// Each tool with the schemas of its arguments. All arguments are required.
const tools = {
  add: {
    properties: { numbers: { type: 'array', items: { type: 'number' } } },
    run({ numbers }) {
      write('info', `adding ${numbers.length} numbers`);
      const unit = get('unit');
      const sum = numbers.reduce((sum, number) => sum + number, 0);
      return JSON.stringify({ sum, unit: unit === undefined ? null : JSON.parse(unit) });
    },
  },
  fail: {
    properties: { code: text },
    run({ code }) {
      throw { code, message: 'as it was told' };
    },
  },
  crash: {
    properties: {},
    run() {
      throw new TypeError('nobody catches this');
    },
  },
};

if (typeof fetch === 'function') {
  tools.fetch = {
    properties: { url: text },
    async run({ url }) {
      try {
        return await (await fetch(url)).text();
      } catch (error) {
        throw { code: 'denied', message: `${error}` };
      }
    },
  };
}

export function describe() {
  return Object.entries(tools).map(([name, { properties }]) => ({
    name,
    description: 'A tool of the tests.',
    parameters: JSON.stringify({ type: 'object', properties, required: Object.keys(properties) }),
    hints: [],
  }));
}

export function call(name, args) {
  return tools[name].run(JSON.parse(args));
}
