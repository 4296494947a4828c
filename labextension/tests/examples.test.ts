import type { JupyterFrontEnd } from '@jupyterlab/application';
import { describe, expect, it, vi } from 'vitest';

import { openExamples } from '../src/examples';
import type { ISky } from '../src/tokens';
import { server } from './fixtures';

vi.mock('@jupyterlab/apputils', () => ({ ICommandPalette: {}, showErrorMessage: vi.fn() }));
vi.mock('@jupyterlab/launcher', () => ({ ILauncher: {} }));

describe('the example notebooks', () => {
  it('are copied by the server, and the first one is opened', async () => {
    const paths = ['sky-examples/01-first-cell.ipynb', 'sky-examples/02-b.ipynb'];
    const { api, asked } = server(() => [200, { paths }]);
    const opened: unknown[] = [];
    const widget = {};
    const commands = {
      execute: async (id: string, args: object) => {
        opened.push([id, args]);
        return widget;
      }
    };
    const found = await openExamples({ commands } as unknown as JupyterFrontEnd, { api } as ISky);
    expect(found).toBe(widget); // the launcher gives its place to it
    expect(asked[0].method).toBe('POST');
    expect(new URL(asked[0].url).pathname).toMatch(/jupyter-sky\/examples$/);
    expect(opened).toEqual([['docmanager:open', { path: paths[0] }]]);
  });
});
