import { Signal } from '@lumino/signaling';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';

import type { IState, SkyError } from '../src/api';
import { CARD } from '../src/runFollower';
import { RenderedCard } from '../src/cardRenderer';
import type { ISky } from '../src/tokens';
import { plain } from '../src/format';

/** What a page knows of a server, which has news when it is told so. */
class StatePoller {
  state: IState | null = null;
  problem: SkyError | null = null;
  changed = new Signal<this, void>(this);
  tell(news: { runs?: object[]; missing?: boolean }) {
    this.state = { at: Date.now() / 1000, runs: news.runs ?? [] } as unknown as IState;
    this.problem = news.missing ? ({ kind: 'missing' } as SkyError) : null;
    this.changed.emit();
  }
}

const model = (more = {}, trusted = true) => ({
  data: {
    [CARD]: {
      ...{ version: 1, run_id: 'r', stage: 'running', seconds: 41, at: Date.now() / 1000 },
      ...{ cluster: 'train', place: 'aws', price: 3.6, cell_usd: 0.06, notebook_usd: 0.41 },
      ...{ detail: '', notes: [], ...more }
    }
  },
  metadata: {},
  trusted,
  setData: () => undefined
});

describe('a card in a notebook', () => {
  let poller: StatePoller;
  let rendered: RenderedCard;
  const act = vi.fn(async () => ({}));
  const text = () => rendered.node.textContent!.replace(/\s+/g, ' ');
  const pass = (seconds: number) => vi.advanceTimersByTime(seconds * 1000);

  beforeEach(() => {
    vi.useFakeTimers();
    poller = new StatePoller();
    rendered = new RenderedCard({ poller, _: plain } as unknown as ISky, act);
  });
  afterEach(() => {
    rendered.dispose();
    expect(vi.getTimerCount()).toBe(0);
    vi.useRealTimers();
  });

  it('follows the server while the kernel is silent', async () => {
    await rendered.renderModel(model());
    for (let n = 0; n < 12; n += 1) {
      pass(5);
      poller.tell({ runs: [{ run_id: 'r', stage: 'running', ended: null }] });
    }
    expect(text()).toContain('running 1:41');
    expect(text()).toContain('$0.12 this cell');
    expect(text()).not.toContain('not live');
    poller.tell({ runs: [{ run_id: 'r', stage: 'interrupting', ended: null }] });
    expect(text()).toContain('interrupting 1:41');
  });

  it('counts to the end of its run and no further', async () => {
    await rendered.renderModel(model());
    const ended = Date.now() / 1000 + 3;
    pass(8);
    poller.tell({ runs: [{ run_id: 'r', stage: 'ok', status: 'ok', ended }] });
    expect(text()).toContain('running 0:44'); // its last outputs have to come first
    pass(10);
    expect(text()).toContain('running 0:44');
  });

  it('is not live when neither the kernel nor the server knows of it', async () => {
    await rendered.renderModel(model());
    for (let n = 0; n < 12; n += 1) {
      pass(5);
      poller.tell({});
    }
    expect(text()).toContain('running 0:41');
    expect(text()).toContain('not live, as of');
  });

  it('is not live in a document saved long ago', async () => {
    await rendered.renderModel(model({ at: Date.now() / 1000 - 3600 }));
    expect(text()).toContain('running 0:41');
    expect(text()).toContain('not live, as of');
  });

  it('has no buttons without our server extension', async () => {
    await rendered.renderModel(model());
    expect(rendered.node.querySelectorAll('button').length).toBe(2);
    poller.tell({ missing: true });
    expect(rendered.node.querySelectorAll('button').length).toBe(0);
    expect(text()).toContain('running 0:41');
  });

  it('has no buttons in a notebook that is not trusted', async () => {
    await rendered.renderModel(model({}, false));
    expect(rendered.node.querySelectorAll('button').length).toBe(0);
    expect(text()).toContain('running 0:41');
    await rendered.renderModel(model());
    expect(rendered.node.querySelectorAll('button').length).toBe(2);
  });
});
