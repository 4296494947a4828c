/** The newest run of each open notebook as a graph: the state of each task below its cell. */

import type { INotebookTracker, NotebookPanel } from '@jupyterlab/notebook';

import { h } from '../../jupyter_sky/interfaces/widgets/static/base.js';
import type { ICellState, ICellStates } from './api';
import type { Translate } from './format';
import type { ISky } from './tokens';

/** Milliseconds between two looks while a run goes on, and while there is none. */
const PERIOD = 2000;
const REST = 15_000;

/** Words below a cell: its state in the run, and whether its text is not what runs any more. */
export function cellWords(state: ICellState, source: string, _: Translate): string {
  return source === state.source ? state.words : [state.words, _('edited since')].join(' · ');
}

export function showCellStates(notebooks: INotebookTracker, sky: ISky, open: (run: string) => unknown): void {
  const look = (panel: NotebookPanel) => {
    void panel.context.ready.then(() => {
      if (!panel.isDisposed) new CellStates(panel, sky, open);
    });
  };
  notebooks.forEach(look);
  notebooks.widgetAdded.connect((_, panel) => look(panel));
}

class CellStates {
  constructor(
    private panel: NotebookPanel,
    private sky: ISky,
    private open: (run: string) => unknown
  ) {
    panel.disposed.connect(() => clearTimeout(this.timer));
    void this.turn();
  }

  private async turn(): Promise<void> {
    let over = true;
    try {
      if (!document.hidden) {
        const path = this.panel.context.localPath;
        const states = await this.sky.api.get<ICellStates>('pipelines-of', { path });
        if (this.panel.isDisposed) return;
        this.show(states);
        over = states.over;
      }
    } catch {
      // the panel shows the server's error; the next look asks again
    }
    if (!this.panel.isDisposed) this.timer = window.setTimeout(() => void this.turn(), over ? REST : PERIOD);
  }

  private show({ run, cells }: ICellStates): void {
    const states = new Map(cells.map(state => [state.id, state]));
    for (const { model, node } of this.panel.content.widgets) {
      const state = states.get(model.id);
      const old = node.querySelector<HTMLElement>(':scope > .jsky-CellState');
      const words = state && cellWords(state, model.sharedModel.getSource(), this.sky._);
      if (!state || !words) {
        old?.remove();
      } else if (old?.textContent !== words || old.dataset.run !== run) {
        old?.remove();
        const title = this.sky._('Run %1: click to see its graph', run!);
        const line = h('button', {
          type: 'button',
          class: 'jsky-CellState',
          title,
          text: words,
          'data-run': run,
          'data-phase': state.phase,
          on: { click: () => void this.open(run!) }
        });
        node.querySelector(':scope > .jp-Cell-inputWrapper')?.after(line);
      }
    }
  }

  private timer: number | undefined;
}
