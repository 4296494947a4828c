/** The plugin that everything else builds on: client, panel, status bar, commands. */

import {
  ILayoutRestorer,
  JupyterFrontEnd,
  JupyterFrontEndPlugin
} from '@jupyterlab/application';
import { ISettingRegistry } from '@jupyterlab/settingregistry';
import { ITranslator, nullTranslator } from '@jupyterlab/translation';

import { Api } from './api';
import { Panel } from './panel';
import { Tabs } from './tabs';
import { ISky } from './tokens';
import { Watch } from './watch';

export const shell: JupyterFrontEndPlugin<ISky> = {
  id: 'jupyter-sky:plugin',
  description: 'Clusters, runs, offers and costs of jupyter_sky.',
  autoStart: true,
  provides: ISky,
  optional: [ITranslator, ISettingRegistry, ILayoutRestorer],
  activate: (
    app: JupyterFrontEnd,
    translator: ITranslator | null,
    settings: ISettingRegistry | null,
    restorer: ILayoutRestorer | null
  ): ISky => {
    const trans = (translator ?? nullTranslator).load('jupyter_sky');
    const _ = trans.__.bind(trans) as ISky['_'];
    const api = new Api(app.serviceManager.serverSettings);
    const watch = new Watch(api, 5, app.serviceManager.events);
    const tabs = new Tabs();
    const panel = new Panel(tabs, watch, _);
    app.shell.add(panel, 'left', { rank: 501 });
    restorer?.add(panel, panel.id);
    void app.restored.then(() => watch.start());
    const open = (tab?: string) => {
      if (tab) tabs.choose(tab);
      app.shell.activateById(panel.id);
    };
    void settings;
    return { api, watch, _, open, addTab: tab => tabs.add(tab) };
  }
};
