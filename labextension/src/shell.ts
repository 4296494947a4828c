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
import { Deeds } from './deeds';
import { warnOfIdle } from './idle';
import { Panel } from './panel';
import { StatusItem } from './statusbar';
import { Tabs } from './tabs';
import { ISky } from './tokens';
import { Watch } from './watch';

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
    const api = new Api(app.serviceManager.serverSettings);
    const watch = new Watch(api, 5, app.serviceManager.events);
    const tabs = new Tabs();
    tabs.add({ id: 'clusters', label: _('Clusters'), rank: 10 });
    tabs.add({ id: 'runs', label: _('Runs'), rank: 20 });
    tabs.add({ id: 'offers', label: _('Offers'), rank: 30 });
    const deeds = new Deeds(app, watch, tracker, _);
    const panel = new Panel(tabs, { watch, deeds, _ });
    const sky: ISky = {
      api,
      watch,
      _,
      addTab: tab => tabs.add(tab),
      open: tab => {
        if (tab) tabs.choose(tab);
        app.shell.activateById(panel.id);
      }
    };
    app.shell.add(panel, 'left', { rank: 501 });
    restorer?.add(panel, panel.id);
    addCommands(app, sky, deeds, palette);
    warnOfIdle(watch, one => deeds.extend(one), _);
    void heed(settings, { watch, tabs, statusBar, sky });
    void app.restored.then(() => watch.start());
    return sky;
  }
};

/** Follows the settings, from the start on and whenever they change. */
async function heed(
  registry: ISettingRegistry | null,
  of: { watch: Watch; tabs: Tabs; statusBar: IStatusBar | null; sky: ISky }
): Promise<void> {
  const { watch, tabs, statusBar, sky } = of;
  const item = { shown: true };
  const changed = new Signal<typeof item, void>(item);
  statusBar?.registerStatusItem('jupyter-sky:clusters', {
    item: new StatusItem(watch, () => sky.open(), sky._),
    align: 'right',
    rank: 90,
    isActive: () => item.shown,
    activeStateChanged: changed
  });
  const settings = await registry?.load(ID).catch(() => undefined);
  if (!settings) return;
  const read = () => {
    watch.seconds = settings.get('refreshSeconds').composite as number;
    tabs.hide(settings.get('hidden').composite as string[]);
    item.shown = settings.get('statusBar').composite as boolean;
    changed.emit();
  };
  settings.changed.connect(read);
  read();
}
