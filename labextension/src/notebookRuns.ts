/** Runs of open notebooks: which page writes which outputs into which cell. */

import { CodeCell, ICodeCellModel } from '@jupyterlab/cells';
import type { INotebookTracker, NotebookPanel } from '@jupyterlab/notebook';

import type { IRun } from './api';
import { followerRole, Follower, ICell, IFollowResponse, IRunClient } from './runFollower';
import type { ISky } from './tokens';

/** Milliseconds between two looks at a run that is followed. */
const PERIOD = 1000;
const PAGE = crypto.randomUUID?.() ?? String(Math.random());

export function followNotebooks(notebooks: INotebookTracker, sky: ISky): void {
  const look = (panel: NotebookPanel) => {
    void panel.context.ready.then(() => {
      if (!panel.isDisposed) new NotebookFollower(panel, sky);
    });
  };
  notebooks.forEach(look);
  notebooks.widgetAdded.connect((_, panel) => look(panel));
}

/** Keeps the runs of one open notebook in its cells. */
class NotebookFollower {
  constructor(
    readonly panel: NotebookPanel,
    readonly sky: ISky
  ) {
    const { context } = panel;
    this.saved = Date.parse(context.contentsModel?.last_modified ?? '') / 1000 || 0;
    sky.poller.changed.connect(this.look, this);
    context.sessionContext.statusChanged.connect(this.onStatus, this);
    panel.disposed.connect(this.dispose, this);
    void this.look();
  }

  /** A dead kernel sends no outputs; the page notices that a moment later. */
  private onStatus(_: unknown, status: string): void {
    if (status === 'busy' || status === 'idle') return;
    void this.look();
    window.setTimeout(() => void this.look(), PERIOD);
  }

  private dispose(): void {
    this.sky.poller.changed.disconnect(this.look, this);
    clearTimeout(this.timer);
  }

  /** Checks whether a run of this notebook has to be followed. */
  private async look(): Promise<void> {
    this.wanted = true;
    if (this.looking || this.sky.poller.problem) return;
    this.looking = true;
    while (this.wanted && !this.panel.isDisposed) {
      this.wanted = false;
      try {
        const path = this.panel.context.localPath;
        const { runs } = await this.sky.api.get<{ runs: IRun[] }>('notebook', { path });
        for (const run of runs) this.consider(run);
        this.schedule();
      } catch {
        // the panel shows the server's error; the next change of state asks again
      }
    }
    this.looking = false;
  }

  private consider(run: IRun): void {
    const cell = run.cell_id ? find(this.panel, run.cell_id) : null;
    if (!cell || this.left.has(run.run_id) || this.followed.has(run.run_id)) return;
    switch (followerRole(run, cell, this.saved)) {
      case 'claim':
        void this.source.follow(run.run_id, true).catch(() => undefined);
        break;
      case 'follow':
        this.followed.set(run.run_id, new Follower(run, cell, this.source, this.sky._));
        break;
      case 'leave':
        this.left.add(run.run_id);
    }
  }

  private schedule(): void {
    if (this.followed.size && this.timer === undefined) {
      this.timer = window.setTimeout(() => void this.turn(), 0);
    }
  }

  private async turn(): Promise<void> {
    for (const [id, follower] of [...this.followed]) {
      let more = true;
      try {
        more = await follower.turn((write, writer) => this.save(write, writer));
        this.failed.delete(id);
      } catch {
        const times = (this.failed.get(id) ?? 0) + 1;
        this.failed.set(id, times);
        more = times < 60;
      }
      if (!more || this.panel.isDisposed) {
        this.followed.delete(id);
        this.left.add(id);
      }
    }
    this.timer = undefined;
    if (this.followed.size && !this.panel.isDisposed) {
      this.timer = window.setTimeout(() => void this.turn(), document.hidden ? 5 * PERIOD : PERIOD);
    }
  }

  /** Writes into the document; where another page saves it, this one does not ask to. */
  private save(write: () => void, writer: boolean): void {
    const { model } = this.panel.context;
    const dirty = model.dirty;
    write();
    if (!writer) model.dirty = dirty;
  }

  private readonly source: IRunClient = {
    follow: (run, fed) =>
      this.sky.api.post<IFollowResponse>(`runs/${encodeURIComponent(run)}/follow`, { page: PAGE, fed }),
    outputs: (run, since) => this.sky.api.outputs(run, since)
  };
  private readonly saved: number;
  private looking = false;
  /** Whether something has changed since the last question. */
  private wanted = false;
  private timer: number | undefined;
  private followed = new Map<string, Follower>();
  private failed = new Map<string, number>();
  private left = new Set<string>();
}

/** The code cell of an id, if the notebook has it. */
function find(panel: NotebookPanel, id: string): ICell | null {
  const found = panel.content.widgets.find(cell => cell.model.id === id);
  if (!(found instanceof CodeCell)) return null;
  const model = found.model as ICodeCellModel;
  return {
    id,
    get source() {
      return model.sharedModel.getSource();
    },
    get outputs() {
      return model.outputs;
    },
    get feed() {
      const future = found.isDisposed ? null : found.outputArea?.future;
      return future && !future.isDisposed ? future : null;
    },
    get gone() {
      return found.isDisposed || model.isDisposed;
    },
    get count() {
      return model.executionCount;
    },
    set count(count: number | null) {
      model.executionCount = count;
    },
    get state() {
      return model.executionState;
    },
    set state(state: 'running' | 'idle') {
      if (model.executionState !== state) model.executionState = state;
    }
  };
}
