import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';

import { english, RequestError } from '../../jupyter_sky/interfaces/widgets/static/base.js';
import {
  amountText,
  budgetText,
  grown,
  parseBudget,
  render
} from '../../jupyter_sky/interfaces/widgets/static/cost.js';
import { budgetAlert } from '../src/budgetAlert';

const NOW = 1_800_000_000;

function amount(usd: number, unknown: string[] = [], estimated = false) {
  return { usd, unknown, estimated };
}

function bill(change: Record<string, any> = {}): any {
  return {
    at: NOW,
    notebook: 'a.ipynb',
    by: 'cluster',
    since: null,
    total: amount(9, ['rack'], true),
    here: { ...amount(5, [], true), usd_h: 36 },
    today: amount(7, ['rack'], true),
    rate: { usd_h: 72, unknown: ['rack'] },
    forecast: amount(1.5, ['rack'], true),
    forecasts: [{ cluster: 'train', usd: 1.5, ends: NOW + 3600, basis: 'then its idle limit' }],
    saved: { spot: amount(4), placement: amount(-1) },
    savings: [
      { cluster: 'train', spot: 4, placement: -1, paid: 3, against: 'aws', own: false, estimated: true }
    ],
    default_choice: 'the default choice',
    budget: {
      usd: 10,
      origin: '%config',
      spent: amount(7),
      share: 0.7,
      state: 'ok',
      running: ['train ($72.00/h)'],
      ends: null
    },
    lines: [
      line('train', 7, { estimated: true, price: 72 }),
      line('rack', null, { price: null, origin: '', origin_detail: '' }),
      line('<img src=x onerror=alert(1)>', 0)
    ],
    more: 3,
    ...change
  };
}

function line(what: string, usd: number | null, change: Record<string, any> = {}) {
  const origin = { origin: 'AWS, 5 Jul 2026', origin_detail: 'AWS price list, Jul 2026' };
  const rest = { label: what, seconds: 90, price: 1, estimated: false, ...origin };
  return { what, usd, ...rest, ...change };
}

it('writes the time of a cell as its card does', async () => {
  show(bill({ lines: [line('a', 1, { seconds: 0.31 }), line('b', 1)] }));
  await vi.advanceTimersByTimeAsync(0);
  const times = [...el.querySelectorAll('tbody td:nth-child(2)')].map(cell => cell.textContent);
  expect(times).toEqual(['0.3 s', '1:30']);
});

let el: HTMLElement;
let ask: any;
let dispose: () => void;

function show(first: any, model: any = undefined) {
  ask = vi.fn(async () => first);
  dispose = render({ el, ask, _: english, model });
}

const text = (selector: string) => el.querySelector(selector)?.textContent ?? '';
const button = (label: string) =>
  [...el.querySelectorAll('button')].find(one => one.textContent === label)!;

beforeEach(() => {
  vi.useFakeTimers({ now: NOW * 1000 });
  el = document.createElement('div');
  document.body.append(el);
  // happy-dom lays nothing out
  Object.defineProperty(HTMLElement.prototype, 'offsetParent', { get: () => el, configurable: true });
});

afterEach(() => {
  dispose?.();
  el.remove();
  vi.useRealTimers();
});

describe('formats', () => {
  it('names unknown amounts', () => {
    expect(amountText(amount(0, ['rack']), english)).toBe('unknown (rack)');
    expect(amountText(amount(2, ['rack'], true), english)).toBe('$2.00 est. + unknown (rack)');
    expect(amountText(amount(0), english)).toBe('$0.00');
  });
  it('marks extrapolated amounts as estimates', () => {
    expect(grown(amount(1), 3600, 2)).toEqual(amount(3, [], true));
    expect(grown(amount(1), 0, 2)).toEqual(amount(1));
    expect(grown(amount(1), 3600, -5)).toEqual(amount(1));
  });
  it('accepts only amounts as a budget', () => {
    expect(['20', ' $1,000.50 ', '0'].map(parseBudget)).toEqual([20, 1000.5, 0]);
    expect(['', 'much', '-1', '1e99', 'NaN'].map(parseBudget)).toEqual([null, null, null, null, null]);
  });
  it('describes the state of a budget', () => {
    const { budget } = bill();
    expect(budgetText(budget, amount(7.99), english)).toContain('79 %');
    expect(budgetText(budget, amount(10), english)).toContain('is spent: $10.00 of $10.00');
    expect(budgetText({ ...budget, usd: null }, amount(10), english)).toBe('No daily budget.');
  });
});

describe('the report', () => {
  it('shows the answer to its request', async () => {
    show(bill());
    await vi.advanceTimersByTimeAsync(10);
    expect(ask).toHaveBeenCalledWith('bill', { by: 'cell', since: 'all' });
    expect(text('.jsky-Cost-facts')).toContain('Spent today$7.00 est.+ unknown (rack)');
    expect(text('.jsky-Cost-facts')).toContain('Running$72.00/h');
    const rows = [...el.querySelectorAll('tbody tr')].map(row => row.textContent);
    expect(rows[0]).toContain('$7.00 running, est.');
    expect(rows[1]).toContain('unknown');
    expect(rows[1]).not.toContain('$0.00');
    expect(el.querySelector('img')).toBeNull();
    expect(text('tfoot')).toContain('$9.00 est. + unknown (rack)');
    expect(text('.jsky-Cost-lines')).toContain('3 more');
    expect(el.querySelectorAll('table th[scope="row"]').length).toBe(4);
  });

  it('marks nothing as an estimate where nothing is one', async () => {
    const none = { usd: 0, unknown: [], estimated: false };
    const [saved, rate] = [{ spot: none, placement: none }, { usd_h: 0, unknown: [] }];
    const lines = [line('here', 0, { price: 0, estimated: true })];
    const sums = { total: none, here: null, today: none, forecast: none, saved, rate };
    show(bill({ ...sums, forecasts: [], savings: [], lines }));
    await vi.advanceTimersByTimeAsync(10);
    expect(text('.jsky-Cost-lines')).toContain('running');
    expect(el.textContent).not.toContain('est.');
    expect(el.textContent).not.toContain('Expected');
  });

  it('extrapolates every second at the current rate', async () => {
    show(bill());
    await vi.advanceTimersByTimeAsync(10);
    ask.mockImplementation(() => new Promise(() => undefined)); // the kernel is busy
    await vi.advanceTimersByTimeAsync(10_000);
    expect(text('.jsky-Cost-facts')).toContain('Spent today$7.20 est.');
    expect(text('.jsky-Cost-facts')).toContain('This notebook$5.10 est.');
    expect(text('.jsky-Cost-stamp')).toContain('Counted on since then at $72.00/h');
    await vi.advanceTimersByTimeAsync(300_000);
    expect(text('.jsky-Cost-facts')).toContain('Spent today$7.00'); // too old to count on
  });

  it('shows saved figures first, then current ones', async () => {
    const old = bill({ at: NOW - 86_400, today: amount(1) });
    show(bill(), { get: () => ({ bill: old }) });
    expect(text('.jsky-Cost-facts')).toContain('Spent today$1.00');
    expect(text('.jsky-Cost-stamp')).not.toContain('Counted on');
    await vi.advanceTimersByTimeAsync(10);
    expect(text('.jsky-Cost-facts')).toContain('Spent today$7.00');
  });

  it('keeps its figures without a server, and says why', async () => {
    show(bill());
    await vi.advanceTimersByTimeAsync(10);
    ask.mockRejectedValue(new RequestError({ message: 'no answer', hint: 'wait' }));
    await vi.advanceTimersByTimeAsync(5_100);
    expect(text('.jsky-Cost-problem')).toBe('no answer – wait');
    expect(text('.jsky-Cost-facts')).toContain('Spent today$7.1');
    ask.mockResolvedValue(bill());
    await vi.advanceTimersByTimeAsync(5_000);
    expect(el.querySelector<HTMLElement>('.jsky-Cost-problem')!.hidden).toBe(true);
  });

  it('requests the chosen grouping and time', async () => {
    show(bill());
    await vi.advanceTimersByTimeAsync(10);
    const by = el.querySelector('select')!;
    by.value = 'day';
    by.dispatchEvent(new Event('change'));
    await vi.advanceTimersByTimeAsync(10);
    expect(ask).toHaveBeenLastCalledWith('bill', { by: 'day', since: 'all' });
    dispose();
    const chose = vi.fn();
    dispose = render({ el, ask, _: english, by: 'cloud', since: '7d', chose });
    const [grouping, since] = [...el.querySelectorAll('select')];
    expect([grouping.value, since.value]).toEqual(['cloud', '7d']);
    since.value = '30d';
    since.dispatchEvent(new Event('change'));
    expect(chose).toHaveBeenCalledWith({ by: 'cloud', since: '30d' });
  });

  it('follows updates of the kernel without polling', async () => {
    let heard: () => void = () => undefined;
    let state = { bill: bill() };
    const model = { get: () => state, on: (_: string, call: () => void) => (heard = call), off: vi.fn() };
    show(bill(), model);
    await vi.advanceTimersByTimeAsync(20_000);
    expect(ask).not.toHaveBeenCalled();
    state = { bill: bill({ at: NOW + 20, today: amount(8) }) };
    heard();
    expect(text('.jsky-Cost-facts')).toContain('Spent today$8.00');
    dispose();
    expect(model.off).toHaveBeenCalled();
    expect(el.children.length).toBe(0);
  });
});

describe('the budget', () => {
  it('has a bar with its share', async () => {
    show(bill());
    await vi.advanceTimersByTimeAsync(10);
    const bar = el.querySelector('[role=meter]')!;
    expect(bar.getAttribute('aria-valuenow')).toBe('70');
    expect(text('.jsky-Cost-budgetText')).toContain('It cannot see rack');
  });

  it('has no bar before it is known', async () => {
    show(bill());
    expect(el.querySelector<HTMLElement>('[role=meter]')!.hidden).toBe(true);
    await vi.advanceTimersByTimeAsync(10);
    expect(el.querySelector<HTMLElement>('[role=meter]')!.hidden).toBe(false);
  });

  it('is set after a confirmation of its consequences', async () => {
    show(bill());
    await vi.advanceTimersByTimeAsync(10);
    button('Change…').click();
    const field = el.querySelector<HTMLInputElement>('.jsky-Cost-field')!;
    expect(field.value).toBe('10');
    field.value = 'much';
    field.dispatchEvent(new Event('input'));
    expect(button('Set').getAttribute('aria-disabled')).toBe('true');
    expect(button('Set').title).toContain('amount');
    field.value = '5';
    field.dispatchEvent(new Event('input'));
    button('Set').click();
    await vi.advanceTimersByTimeAsync(1);
    expect(ask).not.toHaveBeenCalledWith('budget', expect.anything());
    expect(text('.jsky-Cost-said')).toContain('train ($72.00/h) will be stopped');
    button('Set it all the same').click();
    await vi.advanceTimersByTimeAsync(1);
    expect(ask).toHaveBeenCalledWith('budget', { by: 'cell', since: 'all', usd: 5 });
    expect(el.querySelector<HTMLElement>('form')!.hidden).toBe(true);
  });

  it('is removed', async () => {
    show(bill());
    await vi.advanceTimersByTimeAsync(10);
    button('Change…').click();
    button('No daily budget').click();
    await vi.advanceTimersByTimeAsync(1);
    expect(ask).toHaveBeenCalledWith('budget', { by: 'cell', since: 'all', usd: null });
  });

  it('shows by shape, text and colour that it is spent', async () => {
    const { budget } = bill();
    show(bill({ today: amount(12), budget: { ...budget, state: 'over', ends: NOW + 30 } }));
    await vi.advanceTimersByTimeAsync(10);
    expect(text('.jsky-Cost-budgetText')).toMatch(/^■ Today's budget is spent/);
    expect(text('.jsky-Cost-budgetText')).toContain('its clusters end at');
    expect(el.querySelector('.jsky-mod-over')).not.toBeNull();
    const words = (change: any) => {
      dispose();
      show(bill(), { get: () => ({ bill: bill({ today: amount(12), ...change }) }) });
      return text('.jsky-Cost-budgetText');
    };
    expect(words({ budget: { ...budget, state: 'over' } })).toContain('is being stopped');
    expect(words({ budget: { ...budget, state: 'over', running: [] } })).toContain('until midnight');
  });

  it('has alerts at 80 % and when it is spent', () => {
    expect(budgetAlert({ usd: 7.9, unknown: 0, budget: 10, over: false }, english)).toBeNull();
    expect(budgetAlert({ usd: 7.9, unknown: 0, budget: null, over: false }, english)).toBeNull();
    expect(budgetAlert({ usd: null, unknown: 1, budget: 10, over: false }, english)).toBeNull();
    const warned = budgetAlert({ usd: 8.2, unknown: 0, budget: 10, over: false }, english)!;
    expect(warned.key).toBe('warn');
    expect(warned.text).toContain('82 %');
    expect(budgetAlert({ usd: 0, unknown: 0, budget: 0, over: true }, english)!.key).toBe('over');
  });
});
