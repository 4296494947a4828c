import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';

import { durations, elapsed } from '../../jupyter_sky/interfaces/widgets/static/base.js';
import { drawCard, facts, grown } from '../../jupyter_sky/interfaces/widgets/static/card.js';

const CARD = {
  version: 1,
  run_id: '17-ab',
  stage: 'running',
  seconds: 41,
  at: 1000,
  cluster: 'train',
  place: 'aws us-east-1 g5.xlarge spot',
  price: 3.6,
  price_from: 'aws 2026-11-01',
  cell_usd: 0.06,
  notebook_usd: 0.41,
  detail: '',
  notes: [] as string[]
};

describe('the text of a card', () => {
  it('equals the line of text', () => {
    expect(facts({ ...CARD, detail: '12 MB' })).toEqual([
      '12 MB',
      '$0.06 this cell',
      '$0.41 this notebook',
      'train on aws us-east-1 g5.xlarge spot $3.60/h'
    ]);
    expect([0.26, 1.04, 9.94, 9.96, 41, 3753].map(elapsed)).toEqual([
      ...['0.3 s', '1.0 s', '9.9 s', '0:10', '0:41', '1:02:33']
    ]);
  });

  it('has one way to say how long a run has waited and taken', () => {
    expect(durations(1.04, 4.2)).toBe('boot 4.2 s, run 1.0 s');
    expect(durations(72, 41)).toBe('boot 0:41, run 1:12');
    expect([durations(1.04), durations(1.04, 0.4)]).toEqual(['1.0 s', '1.0 s']);
  });

  it('omits unknown parts and names an unknown price', () => {
    const nothing = { ...CARD, cluster: null, place: null, cell_usd: null, notebook_usd: null };
    expect(facts(nothing)).toEqual([]);
    const unknown = grown({ ...CARD, price: null, cell_usd: 0.06 }, 60);
    expect(unknown.cell_usd).toBeNull();
    expect(facts(unknown).join()).toContain('price unknown');
    expect(facts(unknown).join()).not.toContain('$0');
  });

  it('adds the price: to the cell while it runs, to the notebook once a cluster is up', () => {
    const hour = grown(CARD, 3600);
    expect([hour.seconds, hour.cell_usd, hour.notebook_usd]).toEqual([3641, 3.66, 4.01]);
    const booting = grown({ ...CARD, stage: 'booting', cell_usd: 0 }, 3600);
    expect([booting.cell_usd, booting.notebook_usd]).toEqual([0, 4.01]);
    expect(grown({ ...CARD, cluster: null }, 3600).notebook_usd).toBe(0.41);
  });
});

describe('a card', () => {
  let el: HTMLElement;
  let clock: number;
  const now = () => clock;
  const pass = (seconds: number) => {
    clock += seconds;
    vi.advanceTimersByTime(seconds * 1000);
  };
  const text = () => el.textContent!.replace(/\s+/g, ' ');

  beforeEach(() => {
    vi.useFakeTimers();
    clock = 1000;
    el = document.createElement('div');
    document.body.replaceChildren(el);
  });
  afterEach(() => {
    vi.useRealTimers();
  });

  it('ticks between two messages, time and cost alike', () => {
    const drawn = drawCard({ el, ask: null, now });
    drawn.show(CARD);
    expect(text()).toContain('running 0:41 · $0.06 this cell');
    pass(10);
    expect(text()).toContain('running 0:51 · $0.07 this cell · $0.42 this notebook');
    drawn.show({ ...CARD, seconds: 60, cell_usd: 0.1, at: 1019 });
    expect(text()).toContain('running 1:00 · $0.10 this cell');
    expect(el.querySelector<HTMLElement>('.jsky-Card-facts')!.title).toBe(
      'price from aws 2026-11-01'
    );
    drawn.dispose();
    expect(vi.getTimerCount()).toBe(0);
    expect(el.childElementCount).toBe(0);
  });

  it('stops ticking and says so without messages', () => {
    const drawn = drawCard({ el, ask: null, now });
    drawn.show(CARD);
    pass(19);
    expect(text()).toContain('running 1:00');
    expect(text()).not.toContain('not live');
    pass(2);
    expect(text()).toContain('running 0:41 · $0.06 this cell');
    expect(text()).toContain('not live, as of');
    drawn.show(CARD, now());
    expect(text()).not.toContain('not live');
  });

  it('offers to restart an engine that does not answer, once what is lost is said', async () => {
    const ask = vi.fn(async () => ({}));
    const drawn = drawCard({ el, ask, now });
    drawn.show(CARD);
    const stop = () => el.querySelector<HTMLElement>('button')!;
    stop().click();
    stop().click(); // nothing is said yet
    await vi.advanceTimersByTimeAsync(0);
    expect(ask).toHaveBeenCalledTimes(1);
    const warning = 'engine 0 does not answer: its variables (X) would be lost';
    drawn.show({ ...CARD, stage: 'interrupting', warning, notes: [warning] });
    expect(text()).toContain(warning);
    expect([stop().textContent, stop().title]).toEqual(['Restart engine', warning]);
    expect(stop().getAttribute('aria-disabled')).toBe('false');
    stop().click();
    await vi.advanceTimersByTimeAsync(0);
    expect(ask.mock.calls).toEqual([
      ['stop', { run_id: '17-ab', restart: false }],
      ['stop', { run_id: '17-ab', restart: true }]
    ]);
    drawn.dispose();
  });

  it('has no buttons without a server', () => {
    drawCard({ el, ask: null, now }).show(CARD);
    expect(el.querySelectorAll('button').length).toBe(0);
  });

  it('stops the cell once, shows that it is stopping, and keeps ticking', async () => {
    const ask = vi.fn(async () => ({ message: 'asked to stop' }));
    const drawn = drawCard({ el, ask, now });
    drawn.show(CARD);
    const stop = el.querySelector<HTMLElement>('button[aria-label="Stop this cell"]')!;
    stop.click();
    stop.click();
    await vi.advanceTimersByTimeAsync(0);
    expect(ask.mock.calls).toEqual([['stop', { run_id: '17-ab', restart: false }]]);
    expect(text()).toContain('stopping… 0:41');
    expect(text()).toContain('asked to stop');
    expect(stop.getAttribute('aria-disabled')).toBe('true');
    pass(2);
    expect(text()).toContain('stopping… 0:43');
  });

  it('shows why the cell could not be stopped, and allows another try', async () => {
    const trouble = Object.assign(new Error('the server does not answer'), { hint: 'start it' });
    const ask = vi.fn().mockRejectedValueOnce(trouble).mockResolvedValueOnce({});
    drawCard({ el, ask, now }).show(CARD);
    const stop = el.querySelector<HTMLElement>('button')!;
    stop.click();
    await vi.advanceTimersByTimeAsync(0);
    expect(text()).toContain('could not be stopped: the server does not answer; start it');
    expect(text()).toContain('running 0:41');
    stop.click();
    await vi.advanceTimersByTimeAsync(0);
    expect(ask).toHaveBeenCalledTimes(2);
    expect(text()).toContain('stopping…');
  });

  it('opens the log', () => {
    const ask = vi.fn(async () => null);
    drawCard({ el, ask, now }).show(CARD);
    el.querySelector<HTMLElement>('button[aria-label="Open the log of this cell"]')!.click();
    expect(ask.mock.calls).toEqual([['log', { run_id: '17-ab' }]]);
  });

  it('escapes the text of messages', () => {
    const evil = '<img src=x onerror=alert(1)>';
    const card = { ...CARD, cluster: evil, detail: evil, notes: [evil, 'second'] };
    drawCard({ el, ask: null, now }).show(card);
    expect(el.querySelector('img')).toBeNull();
    expect(el.textContent!.split(evil).length - 1).toBe(3);
    expect(el.querySelectorAll('.jsky-Card-note').length).toBe(3);
  });
});
