/** Results of searches of machines: a click writes the best of them into the line of their cell. */

import type { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { INotebookTracker } from '@jupyterlab/notebook';

import { h } from '../../jupyter_sky/interfaces/widgets/static/base.js';
import { replaceSource } from './cellSource';
import type { IEditableCell } from './cellSource';
import type { Translate } from './format';
import { ISky } from './tokens';
import { addView } from './views';

/** The line of a cell that runs it on machines, with the lines that it goes on in. */
const LINE = /^%%sky\b(?:[^\n]*\\\n)*[^\n]*/m;

/** The cell with another line; null where it has none any more. */
export function withLine(source: string, line: string): string | null {
  return LINE.test(source) ? source.replace(LINE, () => line) : null;
}

/** Draws a result, with a button where its cell can be written. */
export function drawResult(
  host: HTMLElement,
  html: string,
  line: string,
  find: () => IEditableCell | null,
  _: Translate
): void {
  const result = h('div');
  result.innerHTML = html; // made by Python, and shown in trusted notebooks alone
  const root = h('div', { class: 'jsky-View jsky-Search' });
  const said = h('span', { role: 'status' });
  const button = h(
    'button',
    { class: 'jsky-Button', type: 'button', title: line, on: { click: write } },
    _('Write the Best Machines into the Cell')
  ) as HTMLButtonElement;
  root.append(button, ' ', said, result);
  host.append(root);

  function write(): void {
    const cell = find();
    const next = cell && withLine(cell.model.sharedModel.getSource(), line);
    if (!cell || next === null) {
      said.textContent = _('The cell has no %%sky line any more.');
      return;
    }
    replaceSource(cell, next);
    button.disabled = true;
    said.textContent = _('The line is written: %1', line);
  }
}

export const search: JupyterFrontEndPlugin<void> = {
  id: 'jupyter-sky:search',
  description: 'Writes the best machines of a search into its cell.',
  autoStart: true,
  requires: [ISky, INotebookTracker],
  activate: (_app: JupyterFrontEnd, sky: ISky, tracker: INotebookTracker): void => {
    addView('search', (state, { host, html }) => {
      const find = () => {
        const panel = tracker.find(each => each.content.node.contains(host));
        return panel?.content.widgets.find(each => each.node.contains(host)) ?? null;
      };
      drawResult(host, html, String(state.line), find, sky._);
      return () => host.replaceChildren();
    });
  }
};
