/** Actions on clusters, runs and notebooks, shared by the panel and the commands. */

import type { JupyterFrontEnd } from '@jupyterlab/application';
import { Dialog, InputDialog, Notification, showDialog } from '@jupyterlab/apputils';
import { PageConfig } from '@jupyterlab/coreutils';
import { INotebookTracker, NotebookActions, NotebookPanel } from '@jupyterlab/notebook';
import { ISignal, Signal } from '@lumino/signaling';
import { Widget } from '@lumino/widgets';

import { ICluster, IRun, SkyError } from './api';
import { cellLine, fileName, serverPath } from './selectors';
import { gib, rate, Translate } from './format';
import type { StatePoller } from './statePoller';

export const LOAD = '%load_ext jupyter_sky';
const MESSAGE_SECONDS = 15;

export const OPEN_LOG = 'jupyter-sky:open-log';
export const NEW_CLUSTER = 'jupyter-sky:new-cluster';

/** Result of the last action, for the line at the top of the panel. */
export interface IMessage {
  text: string;
  hint: string;
  failed: boolean;
  /** Page of the guide that treats the failure; empty without one. */
  guide: string;
}

export class Actions {
  constructor(
    private app: JupyterFrontEnd,
    private poller: StatePoller,
    private tracker: INotebookTracker | null,
    private _: Translate
  ) {
    tracker?.currentChanged.connect(() => this.changes.emit());
  }

  message: IMessage | null = null;

  /** Emits when something is being done, was done, or can be done no more. */
  get changed(): ISignal<this, void> {
    return this.changes;
  }

  /** Whether an action is under way: `down train`. */
  isBusy(action: string): boolean {
    return this.busy.has(action);
  }

  /** Why no cell can be inserted; empty when it can. */
  noCellReason(): string {
    if (this.tracker?.currentWidget) return '';
    return this._('No notebook is open: open one first.');
  }

  hasLogs(): boolean {
    return this.app.commands.hasCommand(OPEN_LOG);
  }

  /** Adds a cell below the active cell, after a cell that loads the extension if there is none. */
  async insert(text: string): Promise<void> {
    const panel = this.tracker?.currentWidget;
    if (!panel) return this.say(this.noCellReason(), '', true);
    await panel.context.ready;
    const add = (source: string) => {
      NotebookActions.insertBelow(panel.content);
      panel.content.activeCell?.model.sharedModel.setSource(source);
    };
    const sources = panel.content.widgets.map(cell => cell.model.sharedModel.getSource());
    if (!sources.some(source => source.includes(LOAD))) add(LOAD);
    add(text.includes('\n') ? text : `${text}\n`);
    this.app.shell.activateById(panel.id);
    panel.content.mode = 'edit';
    const editor = panel.content.activeCell?.editor;
    editor?.focus();
    editor?.setCursorPosition({ line: 1, column: 0 });
  }

  hasForm(): boolean {
    return this.app.commands.hasCommand(NEW_CLUSTER);
  }

  newCluster(): void {
    void this.app.commands.execute(NEW_CLUSTER);
  }

  insertFor(cluster: ICluster): Promise<void> {
    return this.insert(cellLine(cluster));
  }

  /** Ends a cluster after asking. */
  async down(cluster: ICluster): Promise<void> {
    if (cluster.state === 'stopped') return this.discard(cluster);
    const _ = this._;
    const words = [_('%1 on %2 ends, and with it its %3.', cluster.name, cluster.where, rate(cluster.price, _))];
    if (cluster.running === 1) words.push(_('One cell runs on it and will be stopped.'));
    if (cluster.running > 1) words.push(_('%1 cells run on it and will be stopped.', cluster.running));
    words.push(_('Variables and files that are only there are lost.'));
    if (!(await this.confirm(_('End the cluster %1?', cluster.name), words, _('End it')))) return;
    await this.perform(`down ${cluster.name}`, _('%1 has ended.', cluster.name), () =>
      this.poller.api.down(cluster.name)
    );
  }

  /** Starts a stopped cluster; it costs its full price from then on, which its row says. */
  async start(cluster: ICluster): Promise<void> {
    await this.perform(`start ${cluster.name}`, this._('%1 is being started.', cluster.name), () =>
      this.poller.api.start(cluster.name)
    );
  }

  private async discard(cluster: ICluster): Promise<void> {
    const _ = this._;
    const disk = gib(cluster.stopped?.disk_gib, _);
    const words = [
      _('Its disk of %1 is deleted, with all files on it, and costs nothing any more.', disk),
      _('It cannot be started again.')
    ];
    if (!(await this.confirm(_('Delete the stopped cluster %1?', cluster.name), words, _('Delete it')))) return;
    await this.perform(`down ${cluster.name}`, _('%1 was deleted.', cluster.name), () =>
      this.poller.api.down(cluster.name)
    );
  }

  async extend(cluster: ICluster): Promise<void> {
    const _ = this._;
    const asked = await InputDialog.getItem({
      title: _('Keep %1 for how long?', cluster.name),
      label: _('From now on, used or not, at %1. Such as 30m or 1h30m.', rate(cluster.price, _)),
      items: ['30m', '1h', '2h', '4h', '8h'],
      current: '1h',
      editable: true,
      okLabel: _('Keep it')
    });
    const time = asked.value?.trim();
    if (!asked.button.accept || !time) return;
    const message = _('%1 is kept for %2 from now on.', cluster.name, time);
    await this.perform(`extend ${cluster.name}`, message, () =>
      this.poller.api.extend(cluster.name, time)
    );
  }

  async copySsh(cluster: ICluster): Promise<void> {
    const message = this._('The line that logs in to %1 is in the clipboard.', cluster.name);
    await this.perform(`ssh ${cluster.name}`, message, async () => {
      const { command } = await this.poller.api.ssh(cluster.name);
      try {
        await navigator.clipboard.writeText(command);
      } catch {
        // no clipboard on a page that is not secure: let the person copy
        await this.showText(this._('Log in to %1', cluster.name), command);
      }
    });
  }

  async launchLog(cluster: ICluster): Promise<void> {
    await this.perform(`log ${cluster.name}`, '', async () => {
      const { text } = await this.poller.api.launchLog(cluster.name);
      const nothing = this._('Nothing was noted of its launch.');
      await this.showText(this._('How %1 was launched', cluster.name), text || nothing);
    });
  }

  /**
   * Stops runs without a question: a stopped run can be started again. It is asked before an engine
   * is restarted that does not answer, as its variables are lost.
   */
  async stop(runs: readonly IRun[]): Promise<void> {
    const _ = this._;
    for (const run of runs) {
      const cell = _('cell [%1] of %2', run.cell, fileName(run.notebook));
      const message = _('Cell [%1] of %2 is being stopped.', run.cell, fileName(run.notebook));
      const title = _('Restart the engine of %1?', cell);
      const restart = Boolean(run.warning);
      if (restart && !(await this.confirm(title, [run.warning!], _('Restart engine')))) continue;
      await this.perform(`stop ${run.run_id}`, message, () =>
        this.poller.api.stop(run.run_id, restart)
      );
    }
  }

  /** Why a run's notebook cannot be opened; empty when it can. */
  noNotebookReason(run: IRun): string {
    if (this.openNotebook(run) || serverPath(run.notebook, PageConfig.getOption('serverRoot'))) {
      return '';
    }
    return this._('%1 is not below the folder of this server.', run.notebook || this._('It'));
  }

  /** Opens a run's notebook at its cell. */
  async openRun(run: IRun): Promise<void> {
    const path = serverPath(run.notebook, PageConfig.getOption('serverRoot'));
    let panel = this.openNotebook(run);
    if (!panel && path !== null) {
      const opened = await this.app.commands
        .execute('docmanager:open', { path })
        .catch(() => undefined);
      panel = opened instanceof NotebookPanel ? opened : this.openNotebook(run);
    }
    if (!panel) return; // it is in a page of its own, as in Notebook 7, or cannot be opened
    this.app.shell.activateById(panel.id);
    await panel.context.ready;
    await panel.revealed;
    const cells = panel.content.widgets;
    let at = cells.findIndex(cell => run.cell_id && cell.model.id === run.cell_id);
    if (at < 0) {
      at = cells.findIndex(cell => (cell.model as any).executionCount === run.cell && run.cell > 0);
    }
    if (at < 0) {
      return this.say(this._('The cell is no longer in %1.', fileName(run.notebook)), '', true);
    }
    panel.content.activeCellIndex = at;
    await panel.content.scrollToItem(at, 'smart').catch(() => undefined);
    panel.content.activate(); // the keyboard follows
  }

  /** Opens a page of the guide in a copy below the server's folder, which is made if need be. */
  async openGuide(name: string): Promise<void> {
    await this.perform(`guide ${name}`, '', async () => {
      const { paths } = await this.poller.api.copyExamples();
      const path = paths.find(each => each.endsWith(`/${name}.ipynb`));
      await this.app.commands.execute('docmanager:open', { path });
    });
  }

  openLog(run: IRun): void {
    void this.app.commands.execute(OPEN_LOG, { run_id: run.run_id });
  }

  say(text: string, hint = '', failed = false, guide = ''): void {
    const message = text ? { text, hint, failed, guide } : null;
    this.message = message;
    this.changes.emit();
    if (message && !failed) {
      // a success disappears after a while; a failure stays until the next action
      setTimeout(() => this.message === message && this.say(''), MESSAGE_SECONDS * 1000);
    }
    if (failed && !this.isPanelVisible()) Notification.error(hint ? `${text} ${hint}` : text);
  }

  /** Whether the panel, with its line at the top, is visible. */
  isPanelVisible: () => boolean = () => false;

  private openNotebook(run: IRun): NotebookPanel | null {
    const path = run.notebook.replace(/\\/g, '/');
    return (
      this.tracker?.find(panel => {
        const one = panel.context.localPath;
        return path === one || path.endsWith(`/${one}`);
      }) ?? null
    );
  }

  private async perform(action: string, message: string, act: () => Promise<unknown>): Promise<void> {
    if (this.busy.has(action)) return;
    this.busy.add(action);
    this.say('');
    try {
      await act();
      if (message) this.say(message);
    } catch (error) {
      if (error instanceof SkyError) this.say(error.message, error.hint, true, error.guide);
      else this.say(String(error), '', true);
    } finally {
      this.busy.delete(action);
      this.changes.emit();
      void this.poller.refresh();
    }
  }

  private async confirm(title: string, words: string[], action: string): Promise<boolean> {
    const body = new Widget();
    for (const text of words) {
      body.node.appendChild(document.createElement('p')).textContent = text;
    }
    body.addClass('jsky-Panel-dialog');
    const buttons = [
      Dialog.cancelButton({ label: this._('Keep it') }),
      Dialog.warnButton({ label: action })
    ];
    return (await showDialog({ title, body, buttons, defaultButton: 0 })).button.accept;
  }

  private async showText(title: string, text: string): Promise<void> {
    const body = new Widget({ node: document.createElement('pre') });
    body.node.textContent = text;
    body.node.tabIndex = 0;
    body.addClass('jsky-Panel-text');
    await showDialog({ title, body, buttons: [Dialog.okButton({ label: this._('Close') })] });
  }

  private busy = new Set<string>();
  private changes = new Signal<this, void>(this);
}
