/** Runs of graphs of tasks: a tab with all of them, and each with its graph in the main area. */

import type { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { ILayoutRestorer } from '@jupyterlab/application';
import { INotebookTracker } from '@jupyterlab/notebook';

import { render } from '../../jupyter_sky/interfaces/widgets/static/run.js';
import { showCellStates } from './cellStates';
import { askServer, pipelineKind } from './pipelineList';
import { addRunTabs } from './runTabs';
import { ISky } from './tokens';
import { addView } from './views';

export const OPEN_PIPELINE = 'jupyter-sky:open-pipeline';

export const pipelines: JupyterFrontEndPlugin<void> = {
  id: 'jupyter-sky:pipelines',
  description: 'Runs of graphs of tasks, with their states, times and costs.',
  autoStart: true,
  requires: [ISky],
  optional: [ILayoutRestorer, INotebookTracker],
  activate: (
    app: JupyterFrontEnd,
    sky: ISky,
    restorer: ILayoutRestorer | null,
    notebooks: INotebookTracker | null
  ): void => {
    const { api, _ } = sky;
    // a run as the last value of a cell
    addView('run', (state, { host }) => render({ el: host, ask: askServer(api, state.run), _ }));
    addRunTabs(app, sky, restorer, {
      id: 'pipelines',
      command: OPEN_PIPELINE,
      label: _('Open a Run of a Pipeline'),
      caption: _('Its graph with states, times and costs'),
      rank: 25,
      list: pipelineKind(api, _),
      title: name => _('Run %1', name),
      focus: '[data-task]',
      mount: (host, name) => render({ el: host, ask: askServer(api, name), _ })
    });
    if (notebooks) showCellStates(notebooks, sky, run => app.commands.execute(OPEN_PIPELINE, { name: run }));
  }
};
