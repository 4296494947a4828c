/** The plugin that everything else builds on: client, panel, status bar, commands. */

import {
  ILayoutRestorer,
  JupyterFrontEnd,
  JupyterFrontEndPlugin
} from '@jupyterlab/application';
import { ICommandPalette } from '@jupyterlab/apputils';
import { INotebookTracker } from '@jupyterlab/notebook';
import { ISettingRegistry } from '@jupyterlab/settingregistry';
import { IStatusBar } from '@jupyterlab/statusbar';
import { ITranslator, nullTranslator } from '@jupyterlab/translation';
import { Signal } from '@lumino/signaling';

import { Api } from './api';
import { addCommands } from './commands';
import { Actions } from './actions';
import { FocusMemory } from './focusMemory';
import { warnOfIdle } from './idleWarning';
import { Panel } from './panel';
import { StatusItem } from './statusbar';
import { Tabs } from './tabs';
import { ISky } from './tokens';
import { StatePoller } from './statePoller';

const ID = 'jupyter-sky:plugin';

export const shell: JupyterFrontEndPlugin<ISky> = {
  id: ID,
  description: 'Clusters, runs, offers and costs of jupyter_sky.',
  autoStart: true,
  provides: ISky,
  // None is required: Notebook 7 has no status bar, and its pages differ in what they have.
  optional: [
    INotebookTracker,
    ICommandPalette,
    IStatusBar,
    ILayoutRestorer,
    ISettingRegistry,
    ITranslator
  ],
  activate: (
    app: JupyterFrontEnd,
    tracker: INotebookTracker | null,
    palette: ICommandPalette | null,
    statusBar: IStatusBar | null,
    restorer: ILayoutRestorer | null,
    settings: ISettingRegistry | null,
    translator: ITranslator | null
  ): ISky => {
    const trans = (translator ?? nullTranslator).load('jupyter_sky');
    const _: ISky['_'] = (text, ...values) => trans.__(text, ...(values as string[]));
    const api = new Api(app.serviceManager.serverSettings, _);
    const poller = new StatePoller(api, 5, app.serviceManager.events);
    const tabs = new Tabs();
    tabs.add({ id: 'clusters', label: _('Clusters'), rank: 10 });
    tabs.add({ id: 'runs', label: _('Runs'), rank: 20 });
    tabs.add({ id: 'offers', label: _('Offers'), rank: 30 });
    tabs.add({ id: 'help', label: _('Help'), sign: '?', rank: 90 });
    const actions = new Actions(app, poller, tracker, _);
    const panel = new Panel(tabs, { poller, actions, _ });
    const focus = new FocusMemory(panel.node, () => {
      const { currentWidget } = app.shell;
      if (currentWidget) app.shell.activateById(currentWidget.id);
    });
    const sky: ISky = {
      api,
      poller,
      _,
      addTab: tab => tabs.add(tab),
      open: tab => {
        focus.remember();
        if (tab) tabs.choose(tab);
        app.shell.activateById(panel.id);
      },
      hasFocus: () => focus.isInside(),
      giveFocusBack: () => focus.giveBack()
    };
    app.shell.add(panel, 'left', { rank: 501 });
    restorer?.add(panel, panel.id);
    addCommands(app, sky, actions, palette);
    warnOfIdle(poller, one => actions.extend(one), _);
    void applySettings(settings, { poller, tabs, statusBar, sky });
    void app.restored.then(() => poller.start());
    return sky;
  }
};

/** Follows the settings, from the start on and whenever they change. */
async function applySettings(
  registry: ISettingRegistry | null,
  of: { poller: StatePoller; tabs: Tabs; statusBar: IStatusBar | null; sky: ISky }
): Promise<void> {
  const { poller, tabs, statusBar, sky } = of;
  const item = { shown: true };
  const changed = new Signal<typeof item, void>(item);
  statusBar?.registerStatusItem('jupyter-sky:clusters', {
    item: new StatusItem(poller, () => sky.open(), sky._),
    align: 'right',
    rank: 90,
    isActive: () => item.shown,
    activeStateChanged: changed
  });
  const settings = await registry?.load(ID).catch(() => undefined);
  if (!settings) return;
  const read = () => {
    poller.seconds = settings.get('refreshSeconds').composite as number;
    tabs.hide(settings.get('hidden').composite as string[]);
    item.shown = settings.get('statusBar').composite as boolean;
    changed.emit();
  };
  settings.changed.connect(read);
  read();
}
