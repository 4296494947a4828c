/** Bags of jobs: a tab with all of them, and each with its progress in the main area. */

import type { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { ILayoutRestorer } from '@jupyterlab/application';

import { render } from '../../jupyter_sky/interfaces/widgets/static/bag.js';
import { askServer, bagKind } from './bagList';
import { addRunTabs } from './runTabs';
import { ISky } from './tokens';
import { addView } from './views';

export const OPEN_BAG = 'jupyter-sky:open-bag';

export const bags: JupyterFrontEndPlugin<void> = {
  id: 'jupyter-sky:bags',
  description: 'Bags of jobs, with their progress, expected end and cost.',
  autoStart: true,
  requires: [ISky],
  optional: [ILayoutRestorer],
  activate: (app: JupyterFrontEnd, sky: ISky, restorer: ILayoutRestorer | null): void => {
    const { api, _ } = sky;
    // a bag as the last value of a cell
    addView('bag', (state, { host }) => render({ el: host, ask: askServer(api, state.bag), _ }));
    addRunTabs(app, sky, restorer, {
      id: 'jobs',
      command: OPEN_BAG,
      label: _('Open a Bag of Jobs'),
      caption: _('Its progress, expected end and cost'),
      rank: 27,
      list: bagKind(api, _),
      title: name => _('Bag %1', name),
      focus: 'button',
      mount: (host, name) => render({ el: host, ask: askServer(api, name), _ })
    });
  }
};
