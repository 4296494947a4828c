import { describe, expect, it, vi } from 'vitest';

import { drawResult, withLine } from '../src/search';

const LINE = '%%sky --cloud aws --instance-type m5.large';

/** A cell whose text can be edited as a notebook's is. */
function cellWith(text: string) {
  const cell = {
    text,
    model: {
      sharedModel: {
        getSource: () => cell.text,
        updateSource: (start: number, end: number, value: string) => {
          cell.text = cell.text.slice(0, start) + value + cell.text.slice(end);
        }
      }
    }
  };
  return cell;
}

const english = (text: string, ...words: any[]) =>
  words.reduce((found, word, n) => found.replace(`%${n + 1}`, String(word)), text);

vi.mock('@jupyterlab/apputils', () => ({ Sanitizer: class {} }));
vi.mock('@jupyterlab/notebook', () => ({ INotebookTracker: {} }));
vi.mock('@jupyterlab/rendermime', () => import('@jupyterlab/rendermime/lib/tokens'));

describe('the result of a search', () => {
  it('writes the best machines into the line of its cell, and keeps what was edited', () => {
    const cell = cellWith('# mine\n%%sky --search cost \\\n  --cpus 4+\nfit(Y)\n');
    const host = document.createElement('div');
    drawResult(host, '<b>best</b>', LINE, () => cell, english);
    const button = host.querySelector('button')!;
    expect(host.querySelector('b')?.textContent).toBe('best');
    button.click();
    expect(cell.text).toBe(`# mine\n${LINE}\nfit(Y)\n`);
    expect(button.disabled).toBe(true);
    expect(host.textContent).toContain(LINE);
  });

  it('says when the cell has no line any more', () => {
    const cell = cellWith('fit(X)');
    const host = document.createElement('div');
    drawResult(host, '', LINE, () => cell, english);
    host.querySelector('button')!.click();
    expect(cell.text).toBe('fit(X)');
    expect(host.textContent).toContain('no %%sky line');
    expect(host.querySelector('button')!.disabled).toBe(false);
  });

  it('takes $ in a line literally', () => {
    expect(withLine('%%sky\nx', '%%sky -e A=$&')).toBe('%%sky -e A=$&\nx');
  });
});
