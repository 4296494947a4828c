import { afterEach, describe, expect, it, vi } from 'vitest';

import { english, RequestError } from '../../jupyter_sky/interfaces/widgets/static/base.js';
import { drawForm } from '../../jupyter_sky/interfaces/widgets/static/form.js';
import { replaceSource } from '../src/cellSource';

const field = (key: string, kind: string, more: object = {}) => ({
  ...{ key, label: key, help: `about ${key}`, example: '4+', kind, flag: `--${key}` },
  ...{ group: '', complete: '', choices: [], ...more }
});
const MARKET = [['', 'on demand'], ['spot', 'spot'], ['on_demand', 'always']];
const SCHEMA = {
  aliases: {},
  fields: [
    field('gpus', 'text', { complete: 'gpu', label: 'GPU' }),
    field('cpus', 'text'),
    field('market', 'choice', { choices: MARKET }),
    field('input', 'list', { complete: 'local-name' }),
    field('bg', 'named', { group: 'Running' }),
    field('yes', 'flag', { group: 'Running' })
  ]
};
const READ = { fields: { values: {}, alias: '' }, line: null, errors: {}, alias: {}, reads: [], makes: [] };
const PLACE = {
  ...{ cloud: 'aws', region: 'us-east-1', machine: 'p3', gpu: 'V100:1', vcpus: 8, memory: 61 },
  ...{ spot: false, price: 3.06, estimate: null, origin: 'AWS, 5 Jul 2026', origin_detail: 'AWS price list, Jul 2026', note: '', more: 0 }
};
const MATCH = {
  ...{ line: '--cpus 4', errors: {}, count: 2, places: [PLACE], spot: null, seconds: null },
  ...{ seconds_to_limit: null, suggestions: [], notes: [], summary: '2 offers match' }
};

let forms: { dispose: () => void }[] = [];
afterEach(() => {
  forms.forEach(form => form.dispose());
  forms = [];
  document.body.replaceChildren();
});

const settle = (ms = 0) => new Promise(done => setTimeout(done, ms));

/** A form whose answers are given; what it asks is kept. */
async function drawn(told: any = {}, actions: any[] = [], source = 'x', command?: string) {
  const asked: [string, any][] = [];
  const answers: any = { schema: SCHEMA, read: READ, match: MATCH, place: { words: 'here' }, ...told };
  const ask = async (kind: string, payload: any) => {
    asked.push([kind, structuredClone(payload)]);
    const answer = answers[kind];
    if (answer instanceof Error) throw answer;
    return typeof answer === 'function' ? answer(payload) : (answer ?? { choices: [] });
  };
  const el = document.createElement('div');
  document.body.append(el);
  forms.push(drawForm({ el, ask, _: english, source, command, actions }));
  await settle();
  await settle();
  const input = (label: string): any => {
    const found = [...el.querySelectorAll('label')].find(one => one.textContent === label);
    return document.getElementById(found?.getAttribute('for') ?? '');
  };
  const set = async (label: string, value: string) => {
    input(label).value = value;
    input(label).dispatchEvent(new Event('input', { bubbles: true }));
    await settle(220);
  };
  const last = (kind: string) => asked.filter(([name]) => name === kind).at(-1)?.[1];
  return { el, input, set, asked, last };
}

describe('the form', () => {
  it('shows parsed options of every kind and writes the same line', async () => {
    const values = { gpus: 'V100:1', spot: true, input: 'x, y', bg: 'train', yes: true };
    const read = { ...READ, fields: { values, alias: 'big' }, line: 'as it stands' };
    const { input, el, last } = await drawn({ read });
    expect([input('GPU').value, input('market').value, input('input').value]).toEqual(
      ['V100:1', 'spot', 'x, y']
    );
    expect([input('bg').value, input('yes').checked]).toEqual(['train', true]);
    expect(el.querySelector('.jsky-Needs-count')?.textContent).toBe('(2 set)');
    expect(last('match').fields).toEqual({ values, alias: 'big' });
  });

  it('sends one request for many keys, with the last values', async () => {
    const { set, asked, input, last } = await drawn();
    const before = asked.length;
    for (const text of ['1', '16', '16+']) {
      input('cpus').value = text;
      input('cpus').dispatchEvent(new Event('input', { bubbles: true }));
    }
    await set('cpus', '16+');
    expect(asked.slice(before).filter(([kind]) => kind === 'match').length).toBe(1);
    expect(last('match').fields.values).toEqual({ cpus: '16+' });
  });

  it('shows what was measured beside the place, and nothing where nothing was', async () => {
    const measured = [
      { about: 'fit on aws p3', facts: ['5 runs, 1 failed (20 %)', 'latest 2 days ago'] },
      { about: 'starts at aws us-east-1 p3', facts: ['3 starts, none failed'] }
    ];
    let place: any = { words: 'would run on aws', measured };
    const { el, last, set } = await drawn({ place: () => place }, [], 'fit(X)');
    const list = el.querySelector('.jsky-Needs-measured dl')!;
    expect(document.getElementById(list.getAttribute('aria-labelledby')!)!.textContent).toBe(
      'Measured so far'
    );
    expect([...list.querySelectorAll('dt')].map(one => one.textContent)).toEqual([
      'fit on aws p3',
      'starts at aws us-east-1 p3'
    ]);
    expect(list.querySelector('dd')!.textContent).toBe('5 runs, 1 failed (20 %) · latest 2 days ago');
    expect(last('place').source).toBe('fit(X)');
    place = { words: 'would run here', measured: [] };
    await set('cpus', '5');
    expect(el.querySelector('.jsky-Needs-measured')!.childElementCount).toBe(0);
  });

  it('shows offers with price, place, date and source; an unknown price is unknown', async () => {
    const places = [PLACE, { ...PLACE, price: null, origin: 'date unknown', origin_detail: '', vcpus: 1, more: 3 }];
    const { el } = await drawn({ match: { ...MATCH, places } });
    const [head, first, second] = [...el.querySelectorAll('tr')].map(row => row.textContent);
    expect(head).toContain('price');
    expect(first).toContain('aws us-east-1');
    expect(first).toContain('$3.06/h');
    expect(first).toContain('price: AWS, 5 Jul 2026');
    expect(second).toContain('and 3 more');
    expect(second).toContain('unknown');
    expect(second).toContain('price: date unknown');
    expect(second).toContain('1 vCPU ·');
    expect(second).not.toContain('$0.00');
    expect(el.querySelector('[role=status]')?.textContent).toBe('2 offers match');
    expect(el.querySelector('.jsky-Needs-where')?.textContent).toBe('Here');
  });

  it('names the field to relax, and relaxes it', async () => {
    const suggestions = [
      { keys: ['gpus'], words: 'the nearest has V100:8', values: { gpus: 'V100:8' } },
      { keys: ['on_demand'], words: 'only spot', values: { on_demand: false, spot: true } },
      { keys: ['yes'], words: 'none', values: { yes: false } }
    ];
    const match = { ...MATCH, count: 0, places: [], suggestions };
    const { el, input, last } = await drawn({ match });
    expect(el.textContent).toContain('Nothing on sale has all of this.');
    const ways = [...el.querySelectorAll('.jsky-Needs-ways li')];
    expect(ways.map(way => way.querySelector('strong')?.textContent)).toEqual(['GPU', 'market', 'yes']);
    expect(input('GPU').getAttribute('aria-invalid')).toBe('true');
    expect(ways.map(way => way.querySelector('button')?.textContent)).toEqual(
      ['Use V100:8', 'Use spot', 'Leave it out']
    );
    ways[0].querySelector('button')!.click();
    await settle();
    expect(last('match').fields.values).toEqual({ gpus: 'V100:8' });
    [...el.querySelectorAll<HTMLButtonElement>('.jsky-Needs-ways button')][1].click();
    await settle();
    expect(last('match').fields.values).toEqual({ gpus: 'V100:8', spot: true });
  });

  it('shows an error at its field and disables actions that need a valid line', async () => {
    const errors = { cpus: { message: '--cpus many: not an amount', hint: 'such as 4' } };
    const match = { ...MATCH, errors, count: 0, summary: 'not an amount' };
    const [apply, remove] = [vi.fn(), vi.fn()];
    const actions = [
      { id: 'apply', label: 'Apply', main: true, act: apply },
      { id: 'remove', label: 'Remove', any: true, act: remove }
    ];
    const { el, input, set } = await drawn({ match }, actions);
    await set('cpus', 'many');
    expect(input('cpus').getAttribute('aria-invalid')).toBe('true');
    const said = document.getElementById(input('cpus').getAttribute('aria-describedby'));
    expect(said?.textContent).toBe('many: not an amount – such as 4');
    const [first, second] = [...el.querySelectorAll<HTMLButtonElement>('[data-action]')];
    expect([first.getAttribute('aria-disabled'), first.title]).toEqual(['true', 'not an amount']);
    first.click();
    second.click();
    await settle(10);
    expect([apply.mock.calls.length, remove.mock.calls.length]).toEqual([0, 1]);
  });

  it('applies the latest values on Enter', async () => {
    const act = vi.fn();
    const told = { match: ({ fields }: any) => ({ ...MATCH, line: `--cpus ${fields.values.cpus}` }) };
    const { input } = await drawn(told, [{ id: 'apply', label: 'Apply', main: true, act }]);
    input('cpus').value = '64';
    const key = { key: 'Enter', bubbles: true, cancelable: true };
    input('cpus').dispatchEvent(new KeyboardEvent('keydown', key));
    await settle(10);
    expect(act.mock.calls[0][0]).toEqual({ fields: { values: { cpus: '64' }, alias: '' }, line: '--cpus 64' });
  });

  it('writes nothing without a server, and says so once', async () => {
    const act = vi.fn();
    const match = vi.fn().mockReturnValueOnce(MATCH).mockRejectedValue(
      new RequestError({ message: 'the token has expired', hint: 'log in again' })
    );
    const { el } = await drawn({ match }, [{ id: 'apply', label: 'Apply', main: true, act }]);
    el.querySelector<HTMLButtonElement>('[data-action]')!.click();
    await settle(10);
    expect(act).not.toHaveBeenCalled();
    expect([...el.querySelectorAll('[role=alert]')].map(one => one.textContent)).toEqual(
      ['the token has expiredlog in again']
    );
  });

  it('shows the line after the magic that is inserted', async () => {
    const { input, asked } = await drawn({ read: { ...READ, line: '' } }, [], '%%sky\n', '%sky up');
    expect(input('Line').value).toBe('%sky up --cpus 4');
    input('Line').value = '%sky up --cpus 8';
    input('Line').dispatchEvent(new Event('change'));
    await settle();
    const read = asked.filter(([kind]) => kind === 'read').at(-1)!;
    expect(read[1].source).toBe('%%sky --cpus 8\n');
  });

  it('keeps an invalid line and lets it be corrected', async () => {
    const error = { message: 'no closing quotation', hint: 'close it' };
    const read = vi
      .fn()
      .mockReturnValueOnce({ ...READ, line: "--cpus 'x", errors: { '': error } })
      .mockReturnValue({ ...READ, line: '--cpus 8', fields: { values: { cpus: '8' }, alias: '' } });
    const { el, input, asked, last } = await drawn({ read }, [], "%%sky --cpus 'x\nbody");
    expect(el.querySelector('[role=alert]')?.textContent).toContain('no closing quotation');
    expect([input('cpus').disabled, input('cpus').title]).toEqual([true, 'mend the line first']);
    expect(asked.some(([kind]) => kind === 'match')).toBe(false);
    expect(input('Line').value).toBe("%%sky --cpus 'x");
    input('Line').value = '%%sky --cpus 8';
    input('Line').dispatchEvent(new Event('change'));
    await settle(10);
    expect(last('read').source).toBe('%%sky --cpus 8\nbody');
    expect([input('cpus').disabled, input('cpus').value]).toEqual([false, '8']);
    expect(el.querySelector('[role=alert]')).toBeNull();
  });

  it('shows a hint without a server', async () => {
    const missing = new RequestError({ message: 'not known here', hint: 'enable it' });
    const { el } = await drawn({ schema: missing });
    expect(el.querySelector('[role=alert]')?.textContent).toBe('not known hereenable it');
  });

  it('offers the names that the cell reads', async () => {
    const { input, el } = await drawn({ read: { ...READ, reads: ['data', 'model'] } });
    input('input').focus();
    input('input').value = 'model, d';
    input('input').dispatchEvent(new Event('input', { bubbles: true }));
    await settle(10);
    const options = [...el.querySelectorAll('[role=option]')].map(one => one.textContent);
    expect(options).toEqual(['datathe cell reads it']);
  });
});

describe('writing into a cell', () => {
  it('replaces only the part that differs', () => {
    const updates: any[] = [];
    let text = '%%sky --cpus 4\nbody';
    const sharedModel = {
      getSource: () => text,
      updateSource: (start: number, end: number, value: string) => {
        updates.push([start, end, value]);
        text = text.slice(0, start) + value + text.slice(end);
      }
    };
    const cell = { model: { sharedModel } };
    for (const next of ['%%sky --cpus 8\nbody', 'body', '', '%%sky\nbody', '%%sky\nbody']) {
      replaceSource(cell, next);
      expect(text).toBe(next);
    }
    expect(updates[0]).toEqual([13, 14, '8']);
    expect(updates.length).toBe(4);
  });
});
