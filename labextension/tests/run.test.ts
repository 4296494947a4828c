import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';

import { render } from '../../jupyter_sky/interfaces/widgets/static/run.js';
import { mountList, pipelineKind } from '../src/pipelineList';

function told(change: Record<string, any> = {}): any {
  return {
    name: 'nightly',
    headline: 'Run nightly: 0 of 1 tasks have ended',
    graph: '<div><svg role="img"><g data-task="fit"><text>fit</text></g></svg></div>',
    chart: '',
    table: '<table></table>',
    over: false,
    paused: false,
    carried_out: true,
    ...change
  };
}

describe('the view of a run', () => {
  let el: HTMLElement;
  let answer: any;
  let asked: [string, any][];
  let dispose: () => void;
  const pass = (ms = 1100) => vi.advanceTimersByTimeAsync(ms);
  const one = (query: string) => el.querySelector<HTMLElement>(query)!;
  const button = (name: string) =>
    [...el.querySelectorAll('button')].find(each => each.textContent === name)!;

  beforeEach(() => {
    vi.useFakeTimers();
    el = document.createElement('div');
    document.body.replaceChildren(el);
    answer = told();
    asked = [];
    const ask = async (kind: string, payload?: any) => {
      asked.push([kind, payload]);
      if (answer instanceof Error) throw answer;
      if (kind !== 'task') return answer;
      const facts = [{ name: 'fit', words: 'running' }];
      return { task: 'fit', facts, log: '\x1b[31mloss\x1b[0m\n10 %\r20 %' };
    };
    dispose = render({ el, ask });
  });
  afterEach(() => {
    dispose();
    vi.useRealTimers();
  });

  it('shows tasks as buttons whose log follows', async () => {
    await pass();
    const task = one('[data-task="fit"]');
    expect(task.getAttribute('role')).toBe('button');
    expect(one('svg').getAttribute('role')).toBe('group');
    task.dispatchEvent(new KeyboardEvent('keydown', { key: 'Enter', bubbles: true }));
    await pass(50);
    expect(one('.jsky-Live-log').textContent).toBe('loss\n20 %');
    const before = asked.filter(([kind]) => kind === 'task').length;
    await pass(3000);
    expect(asked.filter(([kind]) => kind === 'task').length).toBeGreaterThan(before);
    one('[data-task="fit"]').dispatchEvent(new MouseEvent('click', { bubbles: true }));
    expect(one('.jsky-Live-detail').hidden).toBe(true);
  });

  it('asks for what its buttons say', async () => {
    await pass();
    expect(button('Resume').hidden).toBe(true);
    answer = told({ paused: true });
    button('Pause').click();
    await pass(10);
    expect(asked).toContainEqual(['act', { verb: 'pause' }]);
    expect(button('Resume').hidden).toBe(false);
    expect(one('.jsky-RunGraph-note').textContent).toContain('nothing new begins');
  });

  it('keeps the focus when the graph is drawn anew', async () => {
    await pass();
    one('[data-task="fit"]').focus();
    answer = told({ graph: answer.graph.replace('>fit<', '>fit: done<') });
    await pass();
    expect(document.activeElement?.getAttribute('data-task')).toBe('fit');
    expect(document.activeElement?.textContent).toBe('fit: done');
  });

  it('says that nobody carries the run out, and that nobody answers', async () => {
    answer = told({ carried_out: false });
    await pass();
    expect(one('.jsky-RunGraph-note').textContent).toContain('%sky pipeline resume nightly');
    answer = new Error('the server does not answer');
    await pass();
    expect(one('.jsky-Live-trouble').textContent).toContain('does not answer');
    answer = told();
    await pass(20_000);
    expect(one('.jsky-Live-trouble').textContent).toBe('');
  });

  it('asks no more once the run is over', async () => {
    answer = told({ over: true });
    await pass(5000);
    const count = asked.length;
    await pass(60_000);
    expect(asked.length).toBe(count);
    expect(button('Cancel').hidden).toBe(true);
  });
});

describe('the list of runs', () => {
  it('names states, opens a run, and shows how to begin one', async () => {
    vi.useFakeTimers();
    const host = document.createElement('div');
    const opened: string[] = [];
    let runs: any[] = [];
    const api: any = { pipelines: async () => ({ runs, more: 0 }) };
    const _ = (text: string) => text;
    const dispose = mountList(host, _, pipelineKind(api, _), name => opened.push(name));
    await vi.advanceTimersByTimeAsync(10);
    expect(host.textContent).toContain('%sky pipeline run');
    const rest = { made: 0, usd: 0.5, over: false };
    runs = [{ name: '<b>x', states: { succeeded: 2, running: 1 }, carried_out: false, ...rest }];
    await vi.advanceTimersByTimeAsync(3100);
    const row = host.querySelector<HTMLElement>('li')!;
    expect(row.querySelector('b b')).toBeNull();
    expect(row.textContent).toContain('2 succeeded, 1 running, its process has ended');
    row.click();
    expect(opened).toEqual(['<b>x']);
    dispose();
    vi.useRealTimers();
  });
});
