import { cleanup, fireEvent, render, screen } from '@testing-library/react';
import React from 'react';
import { afterEach, describe, expect, it } from 'vitest';

import type { Actions } from '../src/actions';
import { above, clusterOf, Files, RunFiles } from '../src/files';
import { plain } from '../src/format';
import { StatePoller } from '../src/statePoller';
import { AT, cluster, run, server, state } from './fixtures';

afterEach(cleanup);

const TOP = [
  { name: 'out', kind: 'folder', size: 4096, modified: AT },
  { name: 'a b.txt', kind: 'file', size: 1500, modified: AT }
];

function files(change = {}) {
  const { api, asked } = server((_path, request) => {
    const at = new URL(request.url).searchParams.get('path') ?? '';
    if (at === 'out/gone') return [400, { message: 'gone: No such file', hint: '', kind: 'SkyUsageError' }];
    const entries = at === '' ? TOP : at === 'out' ? [{ ...TOP[0], name: 'gone' }] : [];
    return [200, { path: at, entries, more: 0 }];
  });
  const view = { poller: new StatePoller(api), actions: {} as Actions, _: plain };
  render(<Files cluster={cluster(change)} view={view} />);
  return asked;
}

const open = () => fireEvent.click(screen.getByRole('button', { name: 'Files: train' }));

describe('files of a cluster', () => {
  it('are asked for when they are opened, each with its download', async () => {
    const asked = files();
    expect(asked).toHaveLength(0);
    open();
    const file = await screen.findByRole('link', { name: 'Download a b.txt' });
    expect(file.getAttribute('href')).toBe(
      'http://lab.test/hub/user/ada/jupyter-sky/clusters/train/download?path=a+b.txt'
    );
    expect(file.getAttribute('download')).toBe('a b.txt');
    expect(screen.getByRole('link', { name: 'Download out' }).getAttribute('download')).toBe('out.zip');
    expect(screen.getByText(/1\.5 kB/)).toBeTruthy();
  });

  it('are walked folder by folder, and back', async () => {
    files();
    open();
    fireEvent.click(await screen.findByRole('button', { name: 'out/' }));
    fireEvent.click(await screen.findByRole('button', { name: 'gone/' }));
    expect(await screen.findByText('gone: No such file')).toBeTruthy();
    fireEvent.click(screen.getByRole('button', { name: 'Up: train/out/gone' }));
    fireEvent.click(await screen.findByRole('button', { name: 'Up: train/out' }));
    expect(await screen.findByText('a b.txt')).toBeTruthy();
  });

  it('are those of clusters that are up', () => {
    files({ state: 'down' });
    expect(screen.queryByRole('button')).toBeNull();
  });

  it('have a folder above', () => {
    expect([above('a/b/c'), above('a'), above('')]).toEqual(['a/b', '', '']);
  });
});

describe('files of a run', () => {
  const ended = run({ ended: AT });

  function runFiles(entries: object[]) {
    const { api, asked } = server(() => [200, { path: '', entries, more: 0 }]);
    const poller = new StatePoller(api);
    poller.state = state();
    const view = { poller, actions: {} as Actions, _: plain };
    render(<RunFiles run={ended} view={view} />);
    return asked;
  }

  it('are those that it has written, each with its download', async () => {
    const asked = runFiles([{ name: 'out/model.pt', kind: 'file', size: 1500, modified: AT }]);
    const file = await screen.findByRole('link', { name: 'Download out/model.pt' });
    expect(file.getAttribute('href')).toContain('/clusters/train/download?path=out%2Fmodel.pt');
    expect(asked[0].url).toContain('/runs/r1/files');
  });

  it('may be none', async () => {
    runFiles([]);
    expect(await screen.findByText('It has written no files.')).toBeTruthy();
  });

  it('are gone with their cluster', () => {
    expect(clusterOf(ended, [cluster()])?.name).toBe('train');
    expect(clusterOf(ended, [cluster({ state: 'down' })])).toBeUndefined();
    expect(clusterOf(ended, [cluster({ created: AT + 60 })])).toBeUndefined();
    expect(clusterOf(ended, [])).toBeUndefined();
  });
});
