import { afterEach, describe, expect, it, vi } from 'vitest';

import { Watch } from '../src/watch';
import { AT, server, state } from './fixed';

afterEach(() => vi.useRealTimers());

describe('the watch', () => {
  it('keeps the last state, and goes by the clock of the server', async () => {
    const { api } = server(() => [200, state({ at: Date.now() / 1000 + 3600 }), { ETag: '"1"' }]);
    const watch = new Watch(api);
    await watch.start();
    await watch.refresh();
    expect(watch.state?.version).toBe('0.1.0');
    expect(watch.now() - Date.now() / 1000).toBeCloseTo(3600, 0);
    watch.dispose();
  });

  it('asks for all again after a while, and after a problem, not only for news', async () => {
    vi.useFakeTimers({ toFake: ['Date'], now: AT * 1000 });
    let down = false;
    const { api, asked } = server(() =>
      down ? [0, ''] : [200, state({ at: Date.now() / 1000 }), { ETag: '"1"' }]
    );
    const watch = new Watch(api);
    const tags = () => asked.map(request => request.headers.get('If-None-Match'));
    await watch.refresh();
    await watch.refresh();
    vi.setSystemTime((AT + 60) * 1000);
    await watch.refresh();
    down = true;
    await watch.refresh();
    expect(watch.problem?.kind).toBe('offline');
    expect(watch.state).not.toBeNull();
    down = false;
    await watch.refresh();
    expect(watch.problem).toBeNull();
    expect(tags()).toEqual([null, '"1"', null, '"1"', null]);
    watch.dispose();
  });

  it('tells of news and of problems that come and go, and of nothing else', async () => {
    const answers: [number, unknown, Record<string, string>?][] = [
      [200, state({ at: Date.now() / 1000 }), { ETag: '"1"' }],
      [304, ''],
      [503, { message: 'newer store', hint: 'upgrade', kind: 'SkyStoreError' }],
      [200, state({ at: Date.now() / 1000 }), { ETag: '"1"' }]
    ];
    const { api } = server(() => answers.shift()!);
    const watch = new Watch(api);
    const told: (string | null)[] = [];
    watch.changed.connect(() => told.push(watch.problem?.message ?? null));
    for (let asked = 0; asked < 4; asked++) await watch.refresh();
    expect(told).toEqual([null, 'newer store', null]);
    watch.dispose();
  });
});
