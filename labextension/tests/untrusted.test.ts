import { Sanitizer } from '@jupyterlab/apputils/lib/sanitizer';
import { expect, it } from 'vitest';

it('the dot of a status line keeps its colour in a notebook that is not trusted', () => {
  // as jupyter_sky/interfaces/widgets/status_line.py writes it
  const style = 'color: #3c9a40; color: var(--jp-success-color1, #3c9a40)';
  const kept = new Sanitizer().sanitize(`<span aria-hidden="true" style="${style}">●</span>`);
  expect(kept).toContain('color:#3c9a40');
  expect(kept).not.toContain('var(');
});
