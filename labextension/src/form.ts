/** The form of a cell: opened from its toolbar, written into its first line. */

import type { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { ICommandPalette } from '@jupyterlab/apputils';
import { INotebookTracker, type NotebookPanel } from '@jupyterlab/notebook';

import { h } from '../../jupyter_sky/interfaces/widgets/static/base.js';
import { drawForm, render } from '../../jupyter_sky/interfaces/widgets/static/form.js';
import { LOAD, NEW_CLUSTER } from './actions';
import { FormPanel, type Cell } from './formpanel';
import { cloudIcon } from './icons';
import { replaceSource } from './cellSource';
import { ISky } from './tokens';
import { addView, type Show } from './views';

/** Magic that starts a cluster; the server knows by it that a form is for one. */
const UP = '%sky up';

export const SAY = 'jupyter-sky:say-needs';

/** Answers of the server to requests of a form. */
export function askServer(
  { api }: ISky,
  notebook: () => string
): (kind: string, payload?: any) => Promise<any> {
  return (kind, payload = {}) => api.post(`form/${kind}`, { ...payload, notebook: notebook() });
}

/** Shows `sky.form()` where a notebook has it in an output. */
const shownForm =
  (tracker: INotebookTracker): Show =>
  (state, { host, sky, keep }) => {
    const { _ } = sky;
    let line = String(state.line ?? '');
    const around = (): NotebookPanel | undefined =>
      tracker.find(one => one.content.node.contains(host));
    const insert = ({ line }: { line: string }) => {
      const panel = around();
      if (!panel?.content.model) throw new Error(_('There is no notebook around this form.'));
      const cell = panel.content.widgets.find(one => one.node.contains(host));
      edit(panel, insertBelow(panel, cell, `%%sky ${line}`.trimEnd() + '\n'));
    };
    return render({
      el: host,
      ask: askServer(sky, () => around()?.context.localPath ?? ''),
      _,
      model: { get: () => ({ line }) },
      actions: [{ id: 'insert', label: _('Insert cell'), main: true, act: insert }],
      changed: (now: string, answer: any) => {
        if (now === line || Object.keys(answer.errors).length) return;
        line = now;
        const text = `%%sky ${now}`.trimEnd();
        const html = h('div', null, h('code', { text }), h('div', { text: answer.summary }));
        keep({ ...state, line }, html.outerHTML, `${text}\n${answer.summary}`);
      }
    });
  };

/** Inserts a code cell below another, or at the top; makes it the active cell. */
function insertBelow(panel: NotebookPanel, cell: Cell | undefined, source: string): Cell {
  const at = cell ? panel.content.widgets.indexOf(cell) + 1 : 0;
  panel.content.model!.sharedModel.insertCell(at, { cell_type: 'code', source });
  panel.content.activeCellIndex = at;
  return panel.content.widgets[at];
}

/** Source of a cell that starts a cluster; it loads the extension where no other cell does. */
function upCell(panel: NotebookPanel, line: string): string {
  const sources = panel.content.widgets.map(cell => cell.model.sharedModel.getSource());
  const load = sources.some(source => source.includes(LOAD)) ? '' : `${LOAD}\n`;
  return `${load}${UP} ${line}`.trimEnd();
}

/** Puts the cursor behind the last character of a cell. */
function edit(panel: NotebookPanel, cell: Cell): void {
  panel.content.mode = 'edit';
  panel.content.activate();
  const editor = cell.editor;
  if (editor) editor.setCursorPosition(editor.getPositionAt(cell.model.sharedModel.source.length)!);
}

export const form: JupyterFrontEndPlugin<void> = {
  id: 'jupyter-sky:form',
  description: 'A form for what a cell needs, with matching offers and prices.',
  autoStart: true,
  requires: [ISky, INotebookTracker],
  optional: [ICommandPalette],
  activate: (
    app: JupyterFrontEnd,
    sky: ISky,
    tracker: INotebookTracker,
    palette: ICommandPalette | null
  ): void => {
    const { _ } = sky;
    const ask = askServer(sky, () => tracker.currentWidget?.context.localPath ?? '');
    let opened: FormPanel | null = null;

    const write = async (cell: Cell, fields: unknown) => {
      const source = cell.model.sharedModel.getSource();
      replaceSource(cell, (await ask('write', { source, fields })).source);
    };

    const run = (panel: NotebookPanel, cell: Cell) => {
      panel.content.activeCellIndex = panel.content.widgets.indexOf(cell);
      return app.commands.execute('notebook:run-cell', { activate: false });
    };

    /** Asks the kernel for a dry run; the answer replaces the cell's output. */
    const dryRun = async (panel: NotebookPanel, cell: Cell, fields: any) => {
      const kernel = panel.sessionContext.session?.kernel;
      const area = (cell as any).outputArea;
      if (!kernel || !area) throw new Error(_('A dry run needs a kernel: start one.'));
      const values = { ...fields.values, dry_run: true };
      const source = cell.model.sharedModel.getSource();
      const code = (await ask('write', { source, fields: { ...fields, values } })).source;
      area.future = kernel.requestExecute({ code, stop_on_error: false });
    };

    const open = (panel: NotebookPanel, cell: Cell) => {
      opened?.dispose();
      const source = cell.model.sharedModel.getSource();
      const body = h('div');
      const shown = (opened = new FormPanel({ panel, cell, body, _ }));
      const done = (act: (values: any) => Promise<unknown> | unknown) => async (values: any) => {
        await act(values);
        shown.dispose();
      };
      const apply = async ({ fields }: any) => write(cell, fields);
      const actions: any[] = [
        {
          id: 'apply',
          label: _('Apply'),
          hint: _('Write the line into the cell'),
          main: true,
          act: async (values: any) => {
            await apply(values);
            shown.dispose();
            const text = cell.model.sharedModel.getSource();
            if (/^\s*%%sky[^\n]*\n\s*$/.test(text)) edit(panel, cell); // its code is still to come
          }
        },
        {
          id: 'run',
          label: _('Apply and run'),
          hint: _('Write the line into the cell and run it'),
          act: done(async values => {
            await apply(values);
            void run(panel, cell);
          })
        },
        {
          id: 'dry-run',
          label: _('Dry run'),
          hint: _('Say below the cell where it would run and what it would send; start nothing'),
          act: done(({ fields }) => dryRun(panel, cell, fields))
        }
      ];
      if (/^\s*%%sky( |$)/m.test(source)) {
        actions.push({
          id: 'remove',
          label: _('Remove'),
          hint: _('Take the line away: the cell runs in this kernel again'),
          any: true,
          act: done(() => write(cell, null))
        });
      }
      const drawn = drawForm({ el: body, ask, _, source, actions });
      shown.disposed.connect(() => {
        drawn.dispose();
        if (opened === shown) opened = null;
      });
      drawn.focus();
    };

    /** Asks for the needs of a cluster; the cell that starts it comes below the active one. */
    const openNew = async (panel: NotebookPanel, cell: Cell) => {
      opened?.dispose();
      const body = h('div', null, h('p', { class: 'jsky-Needs-wait', text: _('Loading…') }));
      const shown = (opened = new FormPanel({ panel, cell, body, title: _('New cluster'), _ }));
      const insert = ({ line }: { line: string }) => {
        shown.dispose(); // makes the cell that it stood at the active one
        return insertBelow(panel, cell, upCell(panel, line));
      };
      const actions = [
        {
          id: 'start',
          label: _('Start'),
          hint: _('Insert a cell that starts the cluster, and run it'),
          main: true,
          act: (values: any) => void run(panel, insert(values))
        },
        {
          id: 'insert',
          label: _('Insert cell'),
          hint: _('Insert a cell that starts the cluster'),
          act: (values: any) => edit(panel, insert(values))
        }
      ];
      // beside another cluster of the notebook it needs a name: without, that one would be taken
      const { name } = await ask('new-name').catch(() => ({ name: '' }));
      if (shown.isDisposed) return;
      const source = `${['%%sky', ...(name ? ['-c', name] : [])].join(' ')}\n`;
      const askNew = (kind: string, payload: object = {}) => ask(kind, { ...payload, command: UP });
      const drawn = drawForm({ el: body, ask: askNew, _, source, command: UP, actions });
      shown.disposed.connect(() => {
        drawn.dispose();
        if (opened === shown) opened = null;
      });
      drawn.focus();
    };

    const current = (): [NotebookPanel, Cell] | null => {
      const panel = tracker.currentWidget;
      const cell = panel?.content.activeCell;
      return panel && cell?.model.type === 'code' ? [panel, cell] : null;
    };

    app.commands.addCommand(SAY, {
      label: args =>
        args.toolbar ? '' : args.menu ? _('Say What This Cell Needs…') : _('Say What the Cell Needs'),
      caption: _('Sky: say what this cell needs'),
      icon: args => (args.isPalette ? undefined : cloudIcon),
      describedBy: { args: { type: 'object', properties: { menu: { type: 'boolean' } } } },
      isEnabled: () => current() !== null,
      isVisible: () => current() !== null,
      execute: () => {
        const found = current();
        if (found) open(...found);
      }
    });
    app.commands.addCommand(NEW_CLUSTER, {
      label: _('New Cluster…'),
      icon: args => (args.isPalette ? undefined : cloudIcon),
      isEnabled: () => Boolean(tracker.activeCell),
      execute: () => {
        const panel = tracker.currentWidget;
        const cell = panel?.content.activeCell;
        if (!panel || !cell) return;
        app.shell.activateById(panel.id);
        return openNew(panel, cell);
      }
    });
    tracker.activeCellChanged.connect(() => app.commands.notifyCommandChanged(NEW_CLUSTER));
    palette?.addItem({ command: NEW_CLUSTER, category: _('Sky'), args: { isPalette: true } });
    tracker.activeCellChanged.connect(() => app.commands.notifyCommandChanged(SAY));
    palette?.addItem({ command: SAY, category: _('Sky'), args: { isPalette: true } });
    addView('form', shownForm(tracker));
  }
};
