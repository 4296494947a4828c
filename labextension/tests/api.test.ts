import { describe, expect, it } from 'vitest';

import { SkyError } from '../src/api';
import { server } from './fixtures';

/** A server that gives these answers, one after the other. */
function answering(...answers: [number, unknown, Record<string, string>?][]) {
  return server(() => answers.shift()!);
}

async function failure(promise: Promise<unknown>): Promise<SkyError> {
  const error = await promise.then(
    () => null,
    caught => caught
  );
  expect(error).toBeInstanceOf(SkyError);
  return error;
}

describe('the client', () => {
  it('asks below the base URL and keeps the tag of the state', async () => {
    const { api, asked } = answering(
      [200, { version: '1', clusters: [] }, { ETag: '"7"' }],
      [304, ''],
      [200, { version: '1', clusters: [] }]
    );
    expect((await api.state())?.version).toBe('1');
    expect(await api.state()).toBeNull();
    expect((await api.state(true))?.version).toBe('1');
    expect(asked.map(request => request.headers.get('If-None-Match'))).toEqual([null, '"7"', null]);
    expect(asked[0].url).toContain('http://lab.test/hub/user/ada/jupyter-sky/state');
  });

  it('omits empty parameters and escapes names', async () => {
    const { api, asked } = answering([200, { offers: [] }], [200, { command: 'ssh' }]);
    await api.offers({ what: 'A100:8', region: '', limit: 20 });
    await api.ssh('my cluster/1');
    const [offers, ssh] = asked.map(request => new URL(request.url));
    expect([...offers.searchParams.keys()].filter(name => !/^\d+$/.test(name))).toEqual([
      'what',
      'limit'
    ]);
    expect(ssh.pathname).toContain('clusters/my%20cluster%2F1/ssh');
  });

  it('throws the error of the server with its hint', async () => {
    const { api } = answering([
      409,
      { message: 'train ends already', hint: 'wait', kind: 'SkyUsageError' }
    ]);
    const error = await failure(api.down('train'));
    expect([error.message, error.hint, error.kind, error.status]).toEqual([
      'train ends already',
      'wait',
      'SkyUsageError',
      409
    ]);
  });

  it.each([
    [403, { message: 'Forbidden', reason: null }, 'expired'],
    [404, '<html>404</html>', 'missing'],
    [500, '<html>oops</html>', 'server'],
    [0, '', 'offline']
  ])('says what %i without a reason of ours means', async (status, body, kind) => {
    const { api } = answering([status, body]);
    const error = await failure(api.state());
    expect(error.kind).toBe(kind);
    expect(error.message).not.toBe('');
    expect(error.hint).not.toBe('');
  });
});
