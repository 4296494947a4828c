/** Logs of runs and of launches, each in a tab of its own. */

import type { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { ILayoutRestorer } from '@jupyterlab/application';
import { ICommandPalette, MainAreaWidget, WidgetTracker } from '@jupyterlab/apputils';
import { Widget } from '@lumino/widgets';

import { render } from '../../jupyter_sky/interfaces/widgets/static/logs.js';
import type { Source } from '../../jupyter_sky/interfaces/widgets/static/logs.js';
import type { Api } from './api';
import { askServer, label } from './logClient';
import { cloudIcon } from './icons';
import { ISky } from './tokens';
import { addView } from './views';

export const OPEN_LOG = 'jupyter-sky:open-log';

class Log extends Widget {
  constructor(api: Api, source: Source, _: ISky['_']) {
    super();
    this.addClass('jsky-LogTab');
    this.take = render({ el: this.node, ask: askServer(api), _, source });
  }

  dispose(): void {
    if (!this.isDisposed) this.take();
    super.dispose();
  }

  protected onActivateRequest(): void {
    this.node.querySelector<HTMLElement>('.jsky-Log-pane')?.focus();
  }

  private take: () => void;
}

export const logs: JupyterFrontEndPlugin<void> = {
  id: 'jupyter-sky:logs',
  description: 'Logs of runs, with search, side by side for several nodes.',
  autoStart: true,
  requires: [ISky],
  optional: [ICommandPalette, ILayoutRestorer],
  activate: (
    app: JupyterFrontEnd,
    { api, _, poller }: ISky,
    palette: ICommandPalette | null,
    restorer: ILayoutRestorer | null
  ): void => {
    // sky.logs() in an output
    addView('logs', (source, { host }) =>
      render({ el: host, ask: askServer(api), _, source })
    );
    const tracker = new WidgetTracker<MainAreaWidget<Log>>({ namespace: 'jupyter-sky-logs' });
    const opened = new Map<string, Source>();

    async function named(source: Source): Promise<string> {
      if (source.cluster) return _('Launch of %1', source.cluster);
      const known = poller.state?.runs.find(run => run.run_id === source.run_id);
      const run = known ?? (await api.run(source.run_id!).catch(() => null));
      return run ? label(run, _) : _('Log of a run');
    }

    async function open(args: Source): Promise<MainAreaWidget<Log>> {
      const id = `jsky-log-${args.run_id ?? `launch-${args.cluster}`}`;
      const there = tracker.find(widget => widget.id === id);
      if (there) {
        app.shell.activateById(id);
        return there;
      }
      const title = args.title ?? (await named(args));
      const source = { run_id: args.run_id, cluster: args.cluster, title };
      const widget = new MainAreaWidget({ content: new Log(api, source, _) });
      widget.id = id;
      widget.title.label = title;
      widget.title.caption = title;
      widget.title.icon = cloudIcon;
      widget.title.closable = true;
      opened.set(id, source);
      app.shell.add(widget, 'main');
      await tracker.add(widget);
      app.shell.activateById(id);
      return widget;
    }

    app.commands.addCommand(OPEN_LOG, {
      label: args =>
        args.cluster ? _('Open the Launch Log of %1', args.cluster) : _('Open the Log of a Run'),
      caption: _('The output of a run, with search; a live run is followed'),
      icon: cloudIcon,
      describedBy: {
        args: {
          type: 'object',
          properties: { run_id: { type: 'string' }, cluster: { type: 'string' } }
        }
      },
      execute: args => {
        const source = args as Source;
        const run_id = source.run_id ?? poller.state?.runs[0]?.run_id;
        return source.cluster || run_id ? open({ ...source, run_id }) : undefined;
      }
    });
    palette?.addItem({ command: OPEN_LOG, category: _('Sky') });
    void restorer?.restore(tracker, {
      command: OPEN_LOG,
      args: widget => ({ ...opened.get(widget.id) }),
      name: widget => widget.id
    });
  }
};
