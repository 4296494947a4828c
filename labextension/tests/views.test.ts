import { RenderMimeRegistry } from '@jupyterlab/rendermime/lib/registry';
import { describe, expect, it, vi } from 'vitest';

import { VIEW, views } from '../src/views';

// the registry is JupyterLab's own; the toolkit beside it needs a real browser
vi.mock('@jupyterlab/apputils', () => ({ Sanitizer: class {} }));
vi.mock('@jupyterlab/rendermime', () => import('@jupyterlab/rendermime/lib/tokens'));

const html = { safe: true, mimeTypes: ['text/html'], createRenderer: () => null as never };
const text = { ...html, mimeTypes: ['text/plain'] };

const bundle = {
  [VIEW]: { version: 1, view: 'cost', state: { budget: { usd: 10 } } },
  'text/html': '<b>$9 in all</b>',
  'text/plain': '$9 in all'
};

describe('a view in a notebook', () => {
  const registry = new RenderMimeRegistry({ initialFactories: [html, text] });
  void views.activate({} as never, { watch: {} }, registry);

  it('is live where the notebook is trusted', () => {
    expect(registry.preferredMimeType(bundle, 'any')).toBe(VIEW);
  });

  it('is static where the notebook is not trusted', () => {
    expect(registry.preferredMimeType(bundle, 'ensure')).toBe('text/html');
    expect(registry.preferredMimeType({ [VIEW]: bundle[VIEW] }, 'ensure')).toBe(undefined);
  });
});
