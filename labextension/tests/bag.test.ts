import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';

import { render } from '../../jupyter_sky/interfaces/widgets/static/bag.js';
import { askServer, bagKind } from '../src/bagList';
import { mountList } from '../src/pipelineList';

function told(change: Record<string, any> = {}): any {
  return {
    name: 'ions',
    headline: 'Bag ions: 3 of 10 jobs have ended, 1 failed',
    states: { succeeded: 2, failed: 1, queued: 7 },
    total: 10,
    table: '<table><tbody><tr><td>4</td><td>n=4</td></tr></tbody></table>',
    failures: [{ reason: 'ValueError: <b>', count: 1 }],
    events: [{ at: 0, text: 'bag-ions is up: aws' }],
    over: false,
    carried_out: true,
    ...change
  };
}

describe('the view of a bag', () => {
  let el: HTMLElement;
  let answer: any;
  let asked: [string, any][];
  let dispose: () => void;
  const pass = (ms = 1100) => vi.advanceTimersByTimeAsync(ms);
  const one = (query: string) => el.querySelector<HTMLElement>(query)!;
  const button = (name: string) => [...el.querySelectorAll('button')].find(each => each.textContent === name)!;

  beforeEach(() => {
    vi.useFakeTimers();
    el = document.createElement('div');
    document.body.replaceChildren(el);
    answer = told();
    asked = [];
    const ask = async (kind: string, payload?: any) => {
      asked.push([kind, payload]);
      if (answer instanceof Error) throw answer;
      return kind === 'job' ? { job: 4, log: 'loss 3\n10 %\r20 %' } : answer;
    };
    dispose = render({ el, ask });
  });
  afterEach(() => {
    dispose();
    vi.useRealTimers();
  });

  it('shows states as shares of a bar, and reasons as text', async () => {
    await pass();
    const parts = [...el.querySelectorAll<HTMLElement>('.jsky-Bag-part')];
    expect(parts.map(part => [part.title, part.style.flexGrow])).toEqual([
      ['2 succeeded', '2'],
      ['1 failed', '1'],
      ['7 queued', '7']
    ]);
    expect(one('.jsky-Bag-progress').getAttribute('aria-label')).toBe('2 succeeded, 1 failed, 7 queued');
    expect(one('.jsky-Bag-failures').textContent).toBe('1 × ValueError: <b>');
    expect(one('.jsky-Bag-events').textContent).toBe('bag-ions is up: aws');
  });

  it('shows what a job has printed', async () => {
    await pass();
    button('4').click();
    await pass(50);
    expect(asked.some(([kind, payload]) => kind === 'job' && payload.job === 4)).toBe(true);
    expect(one('.jsky-Live-log').textContent).toBe('loss 3\n20 %');
    button('Close').click();
    expect(one('.jsky-Live-detail').hidden).toBe(true);
  });

  it('offers what can be done, and does it', async () => {
    await pass();
    expect([button('Cancel').hidden, button('Resume').hidden, button('Retry Failed').hidden]).toEqual([false, true, false]);
    answer = told({ over: true, carried_out: false });
    button('Cancel').click();
    await pass(50);
    expect(asked).toContainEqual(['act', { verb: 'cancel' }]);
    expect([button('Cancel').hidden, button('Resume').hidden]).toEqual([true, false]);
  });

  it('stops asking after the end, and goes on after an error', async () => {
    answer = new Error('the server is gone');
    await pass();
    expect(one('[role="alert"]').textContent).toContain('the server is gone');
    answer = told({ over: true });
    await pass(10_000);
    const count = asked.length;
    await pass(10_000);
    expect(asked.length).toBe(count);
  });
});

describe('the list of bags', () => {
  beforeEach(() => void vi.useFakeTimers());
  afterEach(() => void vi.useRealTimers());

  it('says how to begin one, then lists them', async () => {
    const host = document.createElement('div');
    document.body.replaceChildren(host);
    let runs: any[] = [];
    const opened: string[] = [];
    const _ = (text: string) => text;
    const kind = bagKind({ bags: async () => ({ runs, more: 0 }) }, _);
    const dispose = mountList(host, _, kind, name => opened.push(name));
    await vi.advanceTimersByTimeAsync(10);
    expect(host.textContent).toContain('%sky bag submit');
    runs = [{ name: 'ions', made: 0, states: { succeeded: 3 }, usd: 1.5, over: true, carried_out: false }];
    await vi.advanceTimersByTimeAsync(3100);
    host.querySelector<HTMLElement>('li')!.click();
    expect(opened).toEqual(['ions']);
    dispose();
  });

  it('asks the server below the name of the bag', async () => {
    const asked: any[] = [];
    const api: any = {
      get: async (path: string, query: any) => asked.push([path, query]),
      post: async (path: string, body: any) => asked.push([path, body])
    };
    const ask = askServer(api, 'a b');
    await ask('bag');
    await ask('job', { job: 2 });
    await ask('act', { verb: 'retry' });
    expect(asked).toEqual([
      ['bags/a%20b', undefined],
      ['bags/a%20b/log', { job: 2 }],
      ['bags/a%20b/act', { verb: 'retry' }]
    ]);
  });
});
