import { afterEach, describe, expect, it, vi } from 'vitest';

import { StatePoller } from '../src/statePoller';
import { AT, server, state } from './fixtures';

afterEach(() => vi.useRealTimers());

describe('the state poller', () => {
  it('keeps the last state and uses the clock of the server', async () => {
    const { api } = server(() => [200, state({ at: Date.now() / 1000 + 3600 }), { ETag: '"1"' }]);
    const poller = new StatePoller(api);
    await poller.start();
    await poller.refresh();
    expect(poller.state?.version).toBe('0.1.0');
    expect(poller.now() - Date.now() / 1000).toBeCloseTo(3600, 0);
    poller.dispose();
  });

  it('requests the whole state after a while and after a problem', async () => {
    vi.useFakeTimers({ toFake: ['Date'], now: AT * 1000 });
    let down = false;
    const { api, asked } = server(() =>
      down ? [0, ''] : [200, state({ at: Date.now() / 1000 }), { ETag: '"1"' }]
    );
    const poller = new StatePoller(api);
    const tags = () => asked.map(request => request.headers.get('If-None-Match'));
    await poller.refresh();
    await poller.refresh();
    vi.setSystemTime((AT + 60) * 1000);
    await poller.refresh();
    down = true;
    await poller.refresh();
    expect(poller.problem?.kind).toBe('offline');
    expect(poller.state).not.toBeNull();
    down = false;
    await poller.refresh();
    expect(poller.problem).toBeNull();
    expect(tags()).toEqual([null, '"1"', null, '"1"', null]);
    poller.dispose();
  });

  it('emits for changes and problems only', async () => {
    const answers: [number, unknown, Record<string, string>?][] = [
      [200, state({ at: Date.now() / 1000 }), { ETag: '"1"' }],
      [304, ''],
      [503, { message: 'newer store', hint: 'upgrade', kind: 'SkyStoreError' }],
      [200, state({ at: Date.now() / 1000 }), { ETag: '"1"' }]
    ];
    const { api } = server(() => answers.shift()!);
    const poller = new StatePoller(api);
    const told: (string | null)[] = [];
    poller.changed.connect(() => told.push(poller.problem?.message ?? null));
    for (let asked = 0; asked < 4; asked++) await poller.refresh();
    expect(told).toEqual([null, 'newer store', null]);
    poller.dispose();
  });
});
