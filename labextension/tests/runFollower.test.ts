import type { IOutput } from '@jupyterlab/nbformat';
import { describe, expect, it } from 'vitest';

import { IRun, SkyError } from '../src/api';
import {
  CARD,
  followerRole,
  Follower,
  ICell,
  IFollowResponse,
  lost,
  mark,
  marked,
  same
} from '../src/runFollower';

const RUN = {
  run_id: 'r1',
  cell: 7,
  cell_id: 'c',
  code: 'print(1)\n',
  started: 100,
  ended: null
} as unknown as IRun;
const SOURCE = '%%sky --gpus V100\nprint(1)\nprint(2)';

const live = (run = 'r1', stage = 'running'): IOutput => ({
  output_type: 'display_data',
  data: { [CARD]: { run_id: run, stage }, 'text/plain': '☁ running' },
  metadata: { jupyter_sky: { run_id: run } }
});
const static_ = (run = 'r1', text = '☁ done'): IOutput => ({
  output_type: 'display_data',
  data: { 'text/plain': text },
  metadata: { jupyter_sky: { run_id: run } }
});
const stream = (text: string): IOutput => ({ output_type: 'stream', name: 'stdout', text });

/** A cell as the notebook has it, without JupyterLab. */
class Cell implements ICell {
  constructor(outputs: IOutput[] = [], readonly source = SOURCE) {
    this.list = outputs;
  }
  id = 'c';
  feed: object | null = null;
  gone = false;
  count: number | null = 3;
  state: 'running' | 'idle' = 'idle';
  list: IOutput[];
  written = 0;
  get outputs() {
    const cell = this;
    return {
      get length() {
        return cell.list.length;
      },
      get: (at: number) => ({ toJSON: () => cell.list[at] }),
      set(at: number, value: IOutput) {
        cell.written += 1;
        cell.list[at] = value;
      },
      add(value: IOutput) {
        cell.written += 1;
        const last = cell.list.at(-1);
        if (value.output_type !== 'stream' || last?.name !== value.name) return cell.list.push(value);
        last!.text = `${last!.text}${value.text}`; // as JupyterLab does
        return cell.list.length;
      },
      remove(at: number) {
        cell.written += 1;
        cell.list.splice(at, 1);
      },
      fromJSON(values: IOutput[]) {
        cell.written += 1;
        cell.list = [...values];
      }
    };
  }
}

/** A cell that a kernel feeds. */
function fed(...outputs: IOutput[]): Cell {
  const cell = new Cell(outputs);
  cell.feed = {};
  return cell;
}

/** A server that knows a journal and lets its run end. */
class Server {
  journal: IOutput[] = [];
  over = false;
  writer = true;
  /** Status of its refusal to give outputs; 0 without one. */
  broken = 0;
  cleared = false;
  final = static_();
  async follow(): Promise<IFollowResponse> {
    return { writer: this.writer, over: this.over, output: this.over ? this.final : live() };
  }
  async outputs(_: string, since: number) {
    if (this.broken) throw new SkyError('its journal is no longer kept', '', 'NotFound', this.broken);
    const cleared = this.cleared && since < this.journal.length;
    return { outputs: this.journal.slice(since), cleared, next: this.journal.length };
  }
}

const save = (write: () => void) => write();

describe('the recovery of outputs', () => {
  it('is not needed while the kernel sends outputs', () => {
    const cell = new Cell([live()]);
    expect(followerRole(RUN, cell, 0)).toBe('follow');
    cell.feed = {};
    expect(followerRole(RUN, cell, 0)).toBe('claim');
  });

  it('is needed as soon as the server knows that the kernel is gone', () => {
    const cell = fed(live()); // the page does not know it yet
    const unwatched = { ...RUN, unwatched: true };
    expect(followerRole(unwatched, cell, 0)).toBe('follow');
    expect(followerRole({ ...unwatched, ended: 120 }, cell, 0)).toBe('follow');
  });

  it('waits for the kernel to show an end that the server knows', () => {
    const cell = fed(live());
    const ended = { ...RUN, ended: 120 };
    expect(followerRole(ended, cell, 0)).toBe('wait');
    cell.feed = null; // it has died instead
    expect(followerRole(ended, cell, 0)).toBe('follow');
  });

  it('is refused for a cell that was edited or deleted', () => {
    expect(lost(RUN, new Cell([], '%%sky\nprint(3)'), 0)).toBe(false);
    expect(lost(RUN, new Cell([], 'print(1)\nprint(2)'), 0)).toBe(false);
    expect(lost(RUN, Object.assign(new Cell(), { gone: true }), 0)).toBe(false);
    expect(same('# note\n%%sky -c x\r\nprint(1)\r\nmore', 'print(1)\n')).toBe(true);
    expect(same('%%sky', '')).toBe(false);
  });

  it('is needed for a live card, however old the run is', () => {
    const ended = { ...RUN, ended: 120 };
    expect(lost(ended, new Cell([live()]), 500)).toBe(true);
    expect(lost(ended, new Cell([static_()]), 0)).toBe(false);
  });

  it('is needed if the run ended after the last save', () => {
    const ended = { ...RUN, ended: 120 };
    for (const outputs of [[], [static_('older'), stream('old')]]) {
      expect(lost(ended, new Cell(outputs), 110)).toBe(true);
      expect(lost(ended, new Cell(outputs), 130)).toBe(false);
    }
  });

  it('is not needed once the kernel has shown the end', () => {
    const ended = { ...RUN, ended: 120 };
    const cell = fed(static_());
    expect([followerRole(RUN, cell, 0), followerRole(ended, cell, 0)]).toEqual(['claim', 'leave']);
    cell.feed = null; // its kernel was restarted
    expect([followerRole(RUN, cell, 0), followerRole(ended, cell, 0)]).toEqual(['wait', 'leave']);
    cell.list = [live()];
    expect(followerRole(RUN, cell, 0)).toBe('follow');
  });

  it('knows the run of an output', () => {
    expect(mark(live('x'))).toEqual({ run: 'x', live: true });
    expect(mark(static_('x'))).toEqual({ run: 'x', live: false });
    expect(mark(stream('x'))).toBeNull();
    expect(marked(new Cell([live('old'), stream('a'), live('new')]))).toMatchObject({
      run: 'new',
      at: 2
    });
  });
});

describe('a run that is followed', () => {
  it('is restored in its cell, continues, and ends as plain HTML', async () => {
    const cell = new Cell([static_('older'), stream('old')]);
    const server = new Server();
    server.journal = [stream('one\n')];
    const follower = new Follower(RUN, cell, server);
    expect(await follower.turn(save)).toBe(true);
    expect(cell.list).toEqual([live(), stream('one\n')]);
    expect([cell.count, cell.state]).toEqual([7, 'running']);
    server.journal.push(stream('two\n'));
    expect(await follower.turn(save)).toBe(true);
    expect(cell.list).toEqual([live(), stream('one\ntwo\n')]);
    server.journal.push(stream('three\n'));
    server.over = true;
    expect(await follower.turn(save)).toBe(false);
    expect(cell.list).toEqual([static_(), stream('one\ntwo\nthree\n')]);
    expect([cell.count, cell.state]).toEqual([7, 'idle']);
  });

  it('duplicates no output that the document already has', async () => {
    const cell = new Cell([live(), stream('one\n')]);
    const server = new Server();
    server.journal = [stream('one\n'), stream('two\n')];
    server.over = true;
    await new Follower(RUN, cell, server).turn(save);
    await new Follower(RUN, cell, server).turn(save); // another page's, or after a reload
    expect(cell.list).toEqual([static_(), stream('one\ntwo\n')]);
    expect(cell.written).toBe(2); // the card, and the text that has grown
  });

  it('stops writing once the user has run or edited the cell', async () => {
    for (const act of [
      (cell: Cell) => (cell.list = []), // cleared
      (cell: Cell) => (cell.feed = {}), // run again
      (cell: Cell) => (cell.gone = true) // deleted
    ]) {
      const cell = new Cell();
      const server = new Server();
      const follower = new Follower(RUN, cell, server);
      expect(await follower.turn(save)).toBe(true);
      act(cell);
      const before = [...cell.list];
      server.journal.push(stream('more'));
      expect(await follower.turn(save)).toBe(false);
      expect(cell.list).toEqual(before);
    }
  });

  it('keeps present outputs when the journal is gone', async () => {
    const cell = new Cell([live(), stream('one\n')]);
    const server = Object.assign(new Server(), { broken: 404 });
    await expect(new Follower(RUN, cell, server).turn(save)).rejects.toThrow('no longer kept');
    expect(cell.list).toEqual([live(), stream('one\n')]);
    server.over = true;
    expect(await new Follower(RUN, cell, server).turn(save)).toBe(false);
    expect(cell.list).toEqual([static_(), stream('one\n')]);
  });

  it('asks again for outputs that the server could not give', async () => {
    const cell = new Cell([live(), stream('one\n')]);
    const server = Object.assign(new Server(), { broken: 502, over: true });
    const follower = new Follower(RUN, cell, server);
    await expect(follower.turn(save)).rejects.toThrow();
    expect(cell.list[0]).toEqual(live());
    server.broken = 0;
    server.journal = [stream('one\n'), stream('two\n')];
    expect(await follower.turn(save)).toBe(false);
    expect(cell.list).toEqual([static_(), stream('one\ntwo\n')]);
  });

  it('takes the place of a kernel of which the page does not know that it is gone', async () => {
    const cell = fed(live(), stream('one\n'));
    const server = Object.assign(new Server(), { over: true });
    server.journal = [stream('one\n'), stream('two\n')];
    expect(await new Follower(RUN, cell, server).turn(save)).toBe(false);
    expect(cell.list).toEqual([static_(), stream('one\ntwo\n')]);
  });

  it('updates displays by id, clears outputs, and saves no ids', async () => {
    const picture = (text: string, type = 'display_data'): IOutput => ({
      output_type: type,
      data: { 'text/plain': text },
      metadata: {},
      transient: { display_id: 'bar' }
    });
    const cell = new Cell();
    const server = new Server();
    server.journal = [stream('one\n'), picture('10%')];
    const follower = new Follower(RUN, cell, server);
    await follower.turn(save);
    server.journal.push(picture('20%', 'update_display_data'), picture('0', 'update_display_data'));
    await follower.turn(save);
    const { transient: _, ...kept } = picture('0');
    expect(cell.list).toEqual([live(), stream('one\n'), kept]);
    server.journal.push(stream('anew\n'));
    server.cleared = true;
    await follower.turn(save);
    expect(cell.list).toEqual([live(), stream('anew\n')]);
  });

  it('overwrites a progress bar, as a terminal does', async () => {
    const cell = new Cell();
    const server = new Server();
    server.journal = [stream('a\n10%\r')];
    const follower = new Follower(RUN, cell, server);
    await follower.turn(save);
    expect(cell.list[1]).toEqual(stream('a\n10%'));
    server.journal.push(stream('20%\r'), stream('30%\nb\n'));
    await follower.turn(save);
    expect(cell.list[1]).toEqual(stream('a\n30%\nb\n'));
  });

  it('is read again at the end if several nodes print', async () => {
    const cell = new Cell();
    const server = new Server();
    server.journal = [stream('a\n')];
    const follower = new Follower({ ...RUN, nodes: 2 }, cell, server);
    await follower.turn(save);
    server.journal = [stream('[0] a\n'), stream('[1] b\n')];
    server.over = true;
    await follower.turn(save);
    expect(cell.list).toEqual([static_(), stream('[0] a\n[1] b\n')]);
  });

  it('truncates very long output, and says so', async () => {
    const cell = new Cell();
    const server = new Server();
    server.journal = [stream('x'.repeat(3e6)), stream('y'.repeat(3e6)), stream('z')];
    await new Follower(RUN, cell, server).turn(save);
    expect(cell.list.map(output => [output.name, String(output.text ?? '').length])).toEqual([
      [undefined, 0],
      ['stdout', 3e6],
      ['stderr', 47]
    ]);
  });

  it('knows which page is to save', async () => {
    const server = Object.assign(new Server(), { writer: false });
    const said: boolean[] = [];
    await new Follower(RUN, new Cell(), server).turn((_, writer) => said.push(writer));
    expect(said).toEqual([false]);
  });
});
