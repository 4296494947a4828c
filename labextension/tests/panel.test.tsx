import { cleanup, fireEvent, render, screen, within } from '@testing-library/react';
import { Signal } from '@lumino/signaling';
import React from 'react';
import { afterEach, describe, expect, it, vi } from 'vitest';

import { IState, SkyError } from '../src/api';
import type { Actions } from '../src/actions';
import { PanelFrame } from '../src/panelFrame';
import { StatusSummary } from '../src/statusItem';
import { Tabs } from '../src/tabs';
import { plain } from '../src/format';
import { StatePoller } from '../src/statePoller';
import { AT, cluster, run, server, state } from './fixtures';

afterEach(cleanup);

const OFFER = {
  cloud: 'aws',
  region: 'eu-west-1',
  instance_type: 'p4d.24xlarge',
  spot: false,
  price: null,
  cpus: 96,
  memory: 1152,
  gpus: 'A100:8',
  source: 'list',
  date: '2026-10-01',
  note: '',
  line: '--instance-type p4d.24xlarge',
  launch: 'account',
  obstacle: '',
  place: 'eu-west-1',
  origin: 'AWS, 1 Oct 2026',
  origin_detail: 'AWS price list, Oct 2026'
};

const MONEY = { kind: 'guide', name: '07-money', title: 'Money', summary: 'Prices and limits.' };
const PLAN = { kind: 'name', name: 'sky.plan', title: 'sky.plan(what)', summary: 'Choose offers.' };
const HELP: Record<string, unknown> = {
  help: { pages: [MONEY, PLAN] },
  'help/guide/07-money': { ...MONEY, text: 'Every cell shows its cost.\n\n    a = 1\n\n    %sky cost\n\nSee `%sky cost`.' },
  'help/name/sky.plan': { ...PLAN, text: 'Parameters\n----------' }
};

function panel(answer: IState | SkyError, why = '') {
  const { api, asked } = server(path =>
    path === 'offers'
      ? [200, { offers: [OFFER], total: 3, at: AT, popular: false, notes: [] }]
      : HELP[path]
        ? [200, HELP[path]]
        : [502, { message: `no ${path}`, hint: 'wait', kind: 'SkyError' }]
  );
  const poller = new StatePoller(api);
  poller.receivedAt = AT;
  vi.spyOn(poller, 'now').mockReturnValue(AT + 60);
  if (answer instanceof SkyError) poller.problem = answer;
  else poller.state = answer;
  const actions = {
    said: null,
    changed: new Signal<object, void>({}),
    isBusy: () => false,
    noCellReason: () => why,
    noNotebookReason: () => '',
    hasLogs: () => false,
    hasForm: () => true,
    newCluster: vi.fn(),
    down: vi.fn(),
    start: vi.fn(),
    extend: vi.fn(),
    stop: vi.fn(),
    insert: vi.fn(),
    insertFor: vi.fn(),
    openRun: vi.fn(),
    launchLog: vi.fn(),
    copySsh: vi.fn(),
    openGuide: vi.fn()
  };
  const tabs = new Tabs();
  tabs.add({ id: 'runs', label: 'Runs', rank: 20 });
  tabs.add({ id: 'clusters', label: 'Clusters', rank: 10 });
  tabs.add({ id: 'offers', label: 'Offers', rank: 30 });
  tabs.add({ id: 'help', label: 'Help', sign: '?', rank: 90 });
  const view = { poller, actions: actions as unknown as Actions, _: plain };
  const memory = {
    open: new Set<string>(),
    asked: { what: '', region: '', spot: false },
    help: { query: '', page: null }
  };
  render(<PanelFrame tabs={tabs} view={view} memory={memory} />);
  return { asked, actions, tabs, poller };
}

const button = (name: string | RegExp) => screen.getByRole('button', { name });

describe('the panel', () => {
  it('has its tabs in order, reached by arrows', () => {
    panel(state());
    const names = () => screen.getAllByRole('tab').map(tab => tab.textContent);
    const chosen = () => screen.getByRole('tab', { selected: true });
    expect(names()).toEqual(['Clusters', 'Runs', 'Offers', '?']);
    fireEvent.keyDown(chosen(), { key: 'ArrowLeft' });
    expect(chosen()).toBe(screen.getByRole('tab', { name: 'Help' }));
    fireEvent.keyDown(chosen(), { key: 'Home' });
    expect(chosen().textContent).toBe('Clusters');
    expect(document.activeElement).toBe(chosen());
  });

  it('omits hidden tabs and mounts tabs of other extensions', () => {
    const { tabs } = panel(state());
    const gone = vi.fn();
    const mount = (host: HTMLElement) => {
      host.textContent = 'spent';
      return gone;
    };
    tabs.hide(['runs']);
    const added = tabs.add({ id: 'cost', label: 'Cost', rank: 40, mount });
    tabs.choose('cost');
    return Promise.resolve().then(async () => {
      await screen.findByText('spent');
      expect(screen.getAllByRole('tab').map(tab => tab.textContent)).toEqual([
        'Clusters',
        'Offers',
        'Cost',
        '?'
      ]);
      added.dispose();
      await screen.findByText('train');
      await vi.waitFor(() => expect(gone).toHaveBeenCalledOnce());
    });
  });

  it('shows an error with its hint', () => {
    panel(new SkyError('The store is of a newer version.', 'Upgrade.', 'SkyStoreError', 503));
    const said = screen.getByRole('alert');
    expect(said.textContent).toContain('newer version');
    expect(said.textContent).toContain('Upgrade.');
    within(said).getByRole('button', { name: 'Try again' });
  });

  it('warns when page and server have different versions', () => {
    panel(state({ version: '9.9.9' }));
    expect(screen.getByText(/the server 9\.9\.9/).textContent).toContain('Reload the page');
  });

  it('shows an example without clusters, and why it cannot be inserted', () => {
    const { actions } = panel(state({ clusters: [] }), 'No notebook is open.');
    const insert = button('Insert cell');
    expect(insert.getAttribute('aria-disabled')).toBe('true');
    expect(insert.getAttribute('title')).toBe('No notebook is open.');
    fireEvent.click(insert);
    expect(actions.insert).not.toHaveBeenCalled();
  });
});

describe('clusters', () => {
  it('are started with the form', () => {
    const { actions } = panel(state());
    fireEvent.click(button('New cluster…'));
    expect(actions.newCluster).toHaveBeenCalledOnce();
  });

  it('show state, place, price, cost and end', () => {
    panel(state());
    const one = screen.getByRole('listitem').textContent!;
    for (const fact of ['train', 'up', 'p3.2xlarge', '$1.80/h', '$2.03 so far', 'ends in 10:40']) {
      expect(one).toContain(fact);
    }
  });

  it('name an unknown price', () => {
    const rate = { usd_h: null, unknown: 1 };
    const today = { usd: null, unknown: 1, budget: null, over: false };
    panel(state({ clusters: [cluster({ price: null, usd: null })], rate, today }));
    const shown = screen.getByRole('tabpanel').textContent!;
    expect(shown).toContain('price unknown');
    expect(shown).toContain('cost unknown');
    expect(shown).not.toContain('$0.00');
  });

  it('open to their actions, with reasons of disabled ones', async () => {
    const { actions } = panel(state({ runs: [] }));
    fireEvent.click(button(/train/));
    const stop = button('Stop cell: train');
    expect(stop.getAttribute('title')).toBe('No cell runs on train.');
    fireEvent.click(stop);
    fireEvent.click(button('End cluster…: train'));
    expect(actions.stop).not.toHaveBeenCalled();
    expect(actions.down).toHaveBeenCalledOnce();
    await screen.findByText('no clusters/train/metrics');
  });
});

describe('stopped clusters', () => {
  const stopped = {
    since: AT - 7200,
    usd_h: 0.0068,
    usd_month: 5,
    disk_gib: 50,
    under_way: ''
  };
  const off = (change = {}) =>
    cluster({
      state: 'stopped',
      price: 0.0068,
      lease_end: AT + 3660,
      idle_left: null,
      note: 'stopped in a.ipynb',
      stopped: { ...stopped, ...change }
    });

  it('show what they cost, since when, and when they end', () => {
    panel(state({ clusters: [off()], rate: { usd_h: 0.0068, unknown: 0 } }));
    const head = button(/train/).textContent!;
    expect(head).toContain('stopped');
    expect(head).toContain('$0.0068/h');
    expect(head).toContain('disk of 50 GiB: $5.00 a month');
    expect(head).toContain('stopped for 2 h 01 min');
    expect(head).toContain('deleted in 1 h 00 min unless started');
    expect(screen.queryByText('No cost now')).toBeNull();
  });

  it('say that they may cost in full until they are seen off', () => {
    panel(state({ clusters: [off({ under_way: 'Amazon is stopping it' })] }));
    const head = button(/train/).textContent!;
    expect(head).toContain('Amazon is stopping it');
    expect(head).not.toContain('a month');
  });

  it('are started and deleted, and nothing else', () => {
    const { actions } = panel(state({ clusters: [off()], runs: [] }));
    fireEvent.click(button(/train/));
    const group = screen.getByRole('group', { name: 'What can be done with train' });
    const names = within(group)
      .getAllByRole('button')
      .map(one => one.getAttribute('aria-label'));
    expect(names).toEqual(['Start: train', 'Launch log: train', 'Delete…: train']);
    fireEvent.click(button('Start: train'));
    expect(actions.start).toHaveBeenCalledOnce();
    fireEvent.click(button('Delete…: train'));
    expect(actions.down).toHaveBeenCalledOnce();
    expect(screen.queryByText(/Asking its nodes/)).toBeNull();
  });
});

describe('runs', () => {
  it('are grouped by phase, with time and cost', () => {
    const runs = [
      run({ run_id: 'w', stage: 'placing', cluster: null, usd: null, code: 'wait()' }),
      run(),
      run({ run_id: 'd', status: 'ok', ended: AT - 40, stoppable: false, code: 'done()' })
    ];
    const { actions, tabs } = panel(state({ runs }));
    tabs.choose('runs');
    return screen.findByText('Waiting (1)').then(() => {
      const rows = screen.getAllByRole('listitem').map(row => row.textContent ?? '');
      const of = (text: string) => rows.find(row => row.includes(text))!;
      expect(of('wait()')).toContain('cost unknown');
      expect(of('model.fit')).toContain('2:40');
      expect(of('done()')).toContain('1:00');
      expect(of('done()')).toContain('$0.05');
      expect(screen.getAllByRole('button', { name: 'Stop: [7]' })).toHaveLength(2);
      fireEvent.click(screen.getByRole('button', { name: /model\.fit/ }));
      expect(actions.openRun).toHaveBeenLastCalledWith(runs[1]);
      const ended = screen.getByRole('list', { name: 'Ended' });
      fireEvent.click(within(ended).getByText('$0.05')); // anywhere in its row
      expect(actions.openRun).toHaveBeenLastCalledWith(runs[2]);
      expect(actions.openRun).toHaveBeenCalledTimes(2);
    });
  });
});

describe('offers', () => {
  it('follow every change of every field', async () => {
    const { asked, tabs } = panel(state());
    tabs.choose('offers');
    const what = (await screen.findByLabelText('GPU or instance type')) as HTMLInputElement;
    const region = screen.getByLabelText('Region') as HTMLInputElement;
    const spot = screen.getByLabelText(/Spot/) as HTMLInputElement;
    for (const value of ['T', 'T4', 'T4:', 'T4:1']) {
      fireEvent.change(what, { target: { value } });
      expect(what.value).toBe(value);
    }
    for (const value of ['e', 'eu']) {
      fireEvent.change(region, { target: { value } });
      expect(region.value).toBe(value);
    }
    fireEvent.click(spot);
    expect(spot.checked).toBe(true);
    await vi.waitFor(() =>
      expect(asked[asked.length - 1].url).toMatch(/what=T4%3A1&region=eu&spot=true/)
    );
    fireEvent.click(spot);
    await vi.waitFor(() => expect(asked[asked.length - 1].url).toContain('spot=false'));
  });

  it('are searched for and inserted', async () => {
    const { asked, actions, tabs } = panel(state());
    tabs.choose('offers');
    fireEvent.change(await screen.findByLabelText('GPU or instance type'), {
      target: { value: 'A100:8' }
    });
    fireEvent.click(await screen.findByRole('button', { name: /Insert cell: p4d/ }));
    expect(actions.insert).toHaveBeenCalledWith('%%sky --instance-type p4d.24xlarge');
    const row = screen.getByRole('listitem');
    expect(row.textContent).toContain('price unknown');
    for (const fact of ['A100:8', 'aws eu-west-1', '96 vCPUs', 'AWS price list, Oct 2026']) {
      expect(row.title).toContain(fact); // the whole of what a narrow panel cuts short
    }
    screen.getByText('1 of 3 offers');
    screen.getByText('Prices: AWS, 1 Oct 2026'); // once, not in every row
    await vi.waitFor(() => expect(asked[asked.length - 1].url).toContain('what=A100%3A8'));
  });
});

describe('help', () => {
  it('is searched, and shows a page and its notebook', async () => {
    const { asked, actions, tabs } = panel(state());
    tabs.choose('help');
    const field = await screen.findByLabelText('Search guide, verbs and functions');
    fireEvent.change(field, { target: { value: ' budget day ' } });
    await vi.waitFor(() => expect(asked[asked.length - 1].url).toMatch(/help\?q=budget\+day\b/));
    fireEvent.click(await screen.findByRole('button', { name: /Money/ }));
    await screen.findByText('Every cell shows its cost.');
    expect(document.querySelector('pre')!.textContent).toBe('a = 1\n\n%sky cost');
    expect(document.querySelector('p > code')!.textContent).toBe('%sky cost');
    fireEvent.click(button('Open the notebook: Money'));
    expect(actions.openGuide).toHaveBeenCalledWith('07-money');
    fireEvent.click(button('Back'));
    fireEvent.click(await screen.findByRole('button', { name: /sky\.plan/ }));
    await screen.findByText('sky.plan(what)');
    expect(screen.queryByRole('button', { name: /Open the notebook/ })).toBeNull();
    tabs.choose('clusters');
    await screen.findByText('train');
    tabs.choose('help'); // it is where it was left
    await screen.findByText('sky.plan(what)');
  });

  it('is where an error leads', async () => {
    const { actions, tabs } = panel(state());
    Object.assign(actions, { message: { text: 'Too dear.', hint: '', failed: true, guide: '07-money' } });
    actions.changed.emit();
    fireEvent.click(await screen.findByRole('button', { name: 'Guide' }));
    await screen.findByText('Every cell shows its cost.');
    expect(tabs.current?.id).toBe('help');
    fireEvent.click(button('Back'));
    expect(document.activeElement).toBe(screen.getByLabelText(/Search/));
    fireEvent.click(button('Guide')); // also while the tab is open
    await screen.findByText('Every cell shows its cost.');
  });

  it('says when nothing was found, and why nothing is shown', async () => {
    HELP.help = { pages: [] };
    const { tabs } = panel(state());
    tabs.choose('help');
    await screen.findByText('No page has these words.');
    delete HELP.help;
    fireEvent.change(screen.getByLabelText(/Search/), { target: { value: 'spot' } });
    expect((await screen.findByRole('alert')).textContent).toContain('no help');
  });
});

describe('the item in the status bar', () => {
  const item = (answer: IState | SkyError) => {
    const poller = new StatePoller(server(() => [200, '']).api);
    if (answer instanceof SkyError) poller.problem = answer;
    else poller.state = answer;
    const open = vi.fn();
    render(<StatusSummary poller={poller} open={open} _={plain} />);
    fireEvent.click(screen.getByRole('button'));
    expect(open).toHaveBeenCalledOnce();
    return screen.getByRole('button');
  };

  it('is red past the budget', () => {
    const over = { usd: 6, unknown: 0, budget: 5, over: true };
    expect(item(state({ today: over })).className).toContain('jsky-mod-over');
    expect(screen.getByRole('button').textContent).toContain('over budget');
  });

  it('is not red within it', () => {
    expect(item(state()).className).not.toContain('jsky-mod-over');
    expect(screen.getByRole('button').textContent).toContain('1 up · $1.80/h');
  });

  it('shows that the server does not answer', () => {
    const shown = item(new SkyError('The server does not answer.', 'Start it.', 'offline', 0));
    expect(shown.textContent).toContain('no answer');
    expect(shown.title).toContain('Start it.');
  });
});
