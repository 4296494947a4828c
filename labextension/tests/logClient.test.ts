import { describe, expect, it } from 'vitest';

import type { Api, IRun } from '../src/api';
import { askServer, label } from '../src/logClient';
import { plain } from '../src/format';

/** A server that launches a cluster and has one run. */
class Server {
  text = '';
  state_ = 'starting';
  async log(id: string, since: number) {
    return { lines: [], next: since, run: { run_id: id } };
  }
  async launchLog() {
    return { text: this.text };
  }
  async state() {
    return { clusters: [{ name: 'train', state: this.state_ }] };
  }
}

describe('requests of a log', () => {
  it('reads the log of a run from a position on', async () => {
    const ask = askServer(new Server() as unknown as Api);
    expect(await ask('log', { run_id: 'r', since: 7 })).toEqual({
      lines: [],
      next: 7,
      run: { run_id: 'r' }
    });
    await expect(ask('else')).rejects.toThrow('not known');
  });

  it('reads the log of a launch until the cluster is up', async () => {
    const server = new Server();
    const ask = askServer(server as unknown as Api);
    server.text = '0.0 s slot\n';
    const first = await ask('log', { cluster: 'train', since: 0 });
    expect(first.lines.map((line: any) => line.text)).toEqual(['0.0 s slot\n']);
    expect(first.run).toEqual({ stage: 'starting', ended: null });
    server.text += '0.6 s packages\n';
    server.state_ = 'up';
    const second = await ask('log', { cluster: 'train', since: first.next });
    expect(second.lines.map((line: any) => line.text)).toEqual(['0.6 s packages\n']);
    expect(second.run.ended).not.toBeNull();
    expect((await ask('log', { cluster: 'train', since: second.next })).lines).toEqual([]);
  });

  it('are titled by the name of the run, or by its cell', () => {
    const run = { name: null, cell: 7, notebook: '/home/ada/train.ipynb' };
    expect(label(run as IRun, plain)).toBe('Log of cell 7 of train.ipynb');
    expect(label({ ...run, name: 'forest' } as unknown as IRun, plain)).toBe('Log of forest');
  });
});
