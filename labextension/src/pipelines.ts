/** Runs of graphs of tasks: a tab with all of them, and each with its graph in the main area. */

import type { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { ILayoutRestorer } from '@jupyterlab/application';
import { MainAreaWidget, WidgetTracker } from '@jupyterlab/apputils';
import { Widget } from '@lumino/widgets';

import { render } from '../../jupyter_sky/widgets/static/run.js';
import type { Api } from './api';
import { cloudIcon } from './icons';
import { askServer, mountList } from './pipelineList';
import { ISky } from './tokens';
import { addView } from './views';

export const OPEN_PIPELINE = 'jupyter-sky:open-pipeline';

class PipelineTab extends Widget {
  constructor(api: Api, name: string, _: ISky['_']) {
    super();
    this.addClass('jsky-PipelineTab');
    this.take = render({ el: this.node, ask: askServer(api, name), _ });
  }

  dispose(): void {
    if (!this.isDisposed) this.take();
    super.dispose();
  }

  protected onActivateRequest(): void {
    this.node.querySelector<HTMLElement>('[data-task]')?.focus();
  }

  private take: () => void;
}

export const pipelines: JupyterFrontEndPlugin<void> = {
  id: 'jupyter-sky:pipelines',
  description: 'Runs of graphs of tasks, with their states, times and costs.',
  autoStart: true,
  requires: [ISky],
  optional: [ILayoutRestorer],
  activate: (app: JupyterFrontEnd, sky: ISky, restorer: ILayoutRestorer | null): void => {
    const { api, _ } = sky;
    // a run as the last value of a cell
    addView('run', (state, { host }) => render({ el: host, ask: askServer(api, state.run), _ }));
    const tracker = new WidgetTracker<MainAreaWidget<PipelineTab>>({ namespace: 'jupyter-sky-pipelines' });
    const names = new Map<string, string>();

    async function open(name: string): Promise<void> {
      const id = `jsky-pipeline-${name}`;
      if (!tracker.find(widget => widget.id === id)) {
        const widget = new MainAreaWidget({ content: new PipelineTab(api, name, _) });
        widget.id = id;
        widget.title.label = _('Run %1', name);
        widget.title.caption = widget.title.label;
        widget.title.icon = cloudIcon;
        widget.title.closable = true;
        names.set(id, name);
        app.shell.add(widget, 'main');
        await tracker.add(widget);
      }
      app.shell.activateById(id);
    }

    app.commands.addCommand(OPEN_PIPELINE, {
      label: _('Open a Run of a Pipeline'),
      caption: _('Its graph with states, times and costs'),
      icon: cloudIcon,
      describedBy: { args: { type: 'object', properties: { name: { type: 'string' } }, required: ['name'] } },
      execute: args => open(args.name as string)
    });
    sky.addTab({
      id: 'pipelines',
      label: _('Pipelines'),
      rank: 25,
      mount: host => mountList(host, sky, name => void open(name))
    });
    void restorer?.restore(tracker, {
      command: OPEN_PIPELINE,
      args: widget => ({ name: names.get(widget.id) ?? '' }),
      name: widget => widget.id
    });
  }
};
