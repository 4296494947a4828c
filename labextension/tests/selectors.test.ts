import { describe, expect, it } from 'vitest';

import {
  ending,
  endingSoon,
  endsSoon,
  codeSummary,
  phase,
  ratePlus,
  runMark,
  serverPath,
  spentBy,
  summary,
  todayLine,
  disabledReason
} from '../src/selectors';
import { describeSeries, polylines } from '../src/sparkline';
import { plain as _ } from '../src/format';
import { AT, cluster, run, state } from './fixtures';

describe('the cost of a cluster', () => {
  it('extrapolates the server’s figure at its price', () => {
    expect(spentBy(cluster(), AT, AT + 1800)).toBeCloseTo(2.9);
    expect(spentBy(cluster({ state: 'down' }), AT, AT + 1800)).toBe(2);
    expect(spentBy(cluster({ usd: null }), AT, AT + 1800)).toBeNull();
    expect(spentBy(cluster({ price: null }), AT, AT + 1800)).toBeNull();
  });
  it('makes the sum unknown if a price is', () => {
    const of = (usd_h: number | null, unknown: number) =>
      ratePlus(state({ rate: { usd_h, unknown } }), _);
    expect(of(1.8, 0)).toBe('$1.80/h');
    expect(of(1.8, 1)).toBe('$1.80/h + 1 of unknown price');
    expect(of(null, 1)).toBe('price unknown');
    expect(of(0, 2)).toBe('price unknown');
  });
  it('is shown for today with the budget, in words once that is passed', () => {
    const today = (usd: number | null, unknown: number, budget: number | null, over = false) =>
      todayLine(state({ today: { usd, unknown, budget, over } }), _);
    expect(today(2.5, 0, null)).toBe('Today $2.50');
    expect(today(2.5, 1, 5)).toBe('Today $2.50 of $5.00 and 1 of unknown price');
    expect(today(6, 0, 5, true)).toBe('Today $6.00 of $5.00 – over budget');
    expect(today(null, 2, null)).toBe('Today unknown');
  });
});

describe('the status bar', () => {
  it('shows clusters, price, and a warning past the budget', () => {
    const clusters = [cluster(), cluster({ name: 'b', state: 'starting' })];
    const over = { usd: 6, unknown: 0, budget: 5, over: true };
    expect(summary(state({ clusters }), _)).toBe('1 up · 1 starting · $1.80/h');
    expect(summary(state({ clusters: [], runs: [] }), _)).toBe('0 up');
    const rate = { usd_h: 0.0068, unknown: 0 };
    const kept = { clusters: [cluster({ state: 'stopped' })], rate };
    expect(summary(state(kept), _)).toBe('0 up · 1 stopped · $0.0068/h');
    expect(summary(state({ today: over }), _)).toBe('1 up · $1.80/h · over budget');
  });
});

describe('the end of a cluster', () => {
  it('is counted down while it is idle', () => {
    expect(ending(cluster(), AT, AT + 10, _)).toBe('idle, ends in 11:30');
    expect(ending(cluster(), AT, AT + 800, _)).toBe('idle, ends now');
    expect(ending(cluster({ running: 2 }), AT, AT + 10, _)).toBe('2 cells run');
    expect(ending(cluster({ running: 1, lease_end: AT + 7200 }), AT, AT, _)).toBe(
      '1 cell runs · at the latest in 2 h 00 min'
    );
    expect(ending(cluster({ state: 'starting' }), AT, AT, _)).toBe('');
  });

  it('names its users', () => {
    const used = cluster({ users: ['2 calls of a.ipynb', 'login of ada (vim)'] });
    expect(ending(used, AT, AT + 10, _)).toBe('used by 2 calls of a.ipynb, login of ada (vim)');
  });

  it('has a warning in the last fifth of the idle limit, at most two minutes', () => {
    expect(endsSoon(cluster(), AT, AT + 579)).toBe(false);
    expect(endsSoon(cluster(), AT, AT + 581)).toBe(true);
    const short = cluster({ idle: 100, idle_left: 50 });
    expect(endsSoon(short, AT, AT + 29)).toBe(false);
    expect(endsSoon(short, AT, AT + 31)).toBe(true);
    expect(endsSoon(cluster({ users: ['1 call of a.ipynb'] }), AT, AT + 690)).toBe(false);
    expect(endsSoon(cluster({ running: 1 }), AT, AT + 690)).toBe(false);
    expect(endsSoon(cluster({ idle_left: null }), AT, AT)).toBe(false);
  });
});

describe('a disabled action', () => {
  it('has its reason', () => {
    expect(disabledReason('stop', cluster(), _)).toBe('No cell runs on train.');
    expect(disabledReason('stop', cluster({ running: 1 }), _)).toBe('');
    expect(disabledReason('ssh', cluster({ cloud: 'local' }), _)).toContain('this machine');
    expect(disabledReason('extend', cluster({ state: 'starting' }), _)).toContain('not up yet');
    expect(disabledReason('down', cluster({ state: 'starting' }), _)).toBe('');
    const stopped = cluster({ state: 'stopped' });
    expect(disabledReason('start', stopped, _)).toBe('');
    expect(disabledReason('down', stopped, _)).toBe('');
    expect(disabledReason('insert', stopped, _)).toContain('start it first');
    expect(disabledReason('start', cluster(), _)).toContain('not stopped');
    expect(disabledReason('down', cluster({ state: 'ending' }), _)).toContain('being ended');
    expect(disabledReason('insert', cluster({ state: 'lost' }), _)).toContain('has ended');
  });
});

describe('a run', () => {
  it('is waiting, running or ended', () => {
    expect(phase(run({ stage: 'placing' }))).toBe('waiting');
    expect(phase(run())).toBe('running');
    expect(phase(run({ status: 'ok', ended: AT }))).toBe('ended');
    expect(runMark(run({ stage: 'placing' }), _).word).toBe('placing');
    expect(runMark(run({ status: 'error', ended: AT }), _).word).toBe('failed');
  });
  it('is labelled by its first line of code', () => {
    expect(codeSummary(run().code)).toBe('model.fit(X, y)');
    expect(codeSummary('%%sky -n x\n# nothing')).toBe('%%sky -n x');
  });

  it.each([
    ['import time\nfrom pathlib import Path\ntrain(10)', 'train(10)'],
    ['import time; time.sleep(9)', 'time.sleep(9)'],
    ['from torch import (\n  nn,\n  optim\n)\nnet = nn.Linear(2, 1)', 'net = nn.Linear(2, 1)'],
    ['%pip install torch\n!nvidia-smi\nimport torch\nprint(1)', 'print(1)'],
    ['import time', 'import time'],
    ['important = 1', 'important = 1'],
    ['from_here = 2', 'from_here = 2']
  ])('is not named for its imports: %j', (code, summary) => {
    expect(codeSummary(code)).toBe(summary);
  });
});

describe('the path of a notebook on this server', () => {
  it.each([
    ['/home/ada/work/a.ipynb', '/home/ada/work', 'a.ipynb'],
    ['/home/ada/work/sub/a.ipynb', '~/work', 'sub/a.ipynb'],
    ['/root/a.ipynb', '~', 'a.ipynb'],
    ['/home/ada/worker/a.ipynb', '/home/ada/work', null],
    ['python:1234', '/home/ada', null],
    ['C:\\Users\\ada\\a.ipynb', '~', 'a.ipynb'],
    ['/a.ipynb', '/', 'a.ipynb']
  ])('%s below %s is %s', (notebook, root, path) => {
    expect(serverPath(notebook, root)).toBe(path);
  });
});

describe('a chart', () => {
  it('has gaps at missing values', () => {
    expect(polylines([0, 50, null, 100], 100)).toEqual(['0.0,15.0 20.0,8.0', '60.0,1.0']);
    expect(polylines([], 100)).toEqual([]);
  });
  it('has a text alternative', () => {
    const say = (value: number) => `${value} %`;
    expect(describeSeries('CPU', [10, null, 90], say, 120)).toBe(
      'CPU: 90 % now, 10 % to 90 % in the last 2 min'
    );
    expect(describeSeries('CPU', [null, null], say, 120)).toBe('CPU: not known yet');
  });
});

describe('the warning of an idle cluster', () => {
  it('is for idle clusters that cost and end soon', () => {
    const clusters = [
      cluster({ name: 'soon', idle_left: 100 }),
      cluster({ name: 'later', idle_left: 700 }),
      cluster({ name: 'free', idle_left: 100, price: 0 }),
      cluster({ name: 'unknown', idle_left: 100, price: null }),
      cluster({ name: 'used', idle_left: 100, users: ['1 call of a.ipynb'] })
    ];
    const names = (now: number) => endingSoon(state({ clusters }), now).map(one => one.name);
    expect(names(AT)).toEqual(['soon', 'unknown']);
    expect(names(AT + 600)).toEqual(['soon', 'later', 'unknown']);
    expect(endingSoon(null, AT)).toEqual([]);
  });
});
