/** The card of a running cell: drawn where its MIME type stands, and kept true by the server. */

import type { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { INotebookTracker } from '@jupyterlab/notebook';
import { IRenderMimeRegistry } from '@jupyterlab/rendermime';
import type { IRenderMime } from '@jupyterlab/rendermime-interfaces';

import { CARD } from './runFollower';
import { followNotebooks } from './notebookRuns';
import { RenderedCard } from './cardRenderer';
import { ISky } from './tokens';

export const card: JupyterFrontEndPlugin<void> = {
  id: 'jupyter-sky:card',
  description: 'The card of a running %%sky cell, and its outputs while no page was connected.',
  autoStart: true,
  requires: [ISky, IRenderMimeRegistry],
  optional: [INotebookTracker],
  activate: (
    app: JupyterFrontEnd,
    sky: ISky,
    registry: IRenderMimeRegistry,
    notebooks: INotebookTracker | null
  ): void => {
    const act = async (kind: string, payload: { run_id: string; restart?: boolean }): Promise<any> => {
      if (kind === 'stop') {
        const answer = await sky.api.stop(payload.run_id, payload.restart);
        void sky.poller.refresh();
        return answer;
      }
      return app.commands.execute('jupyter-sky:open-log', payload);
    };
    const factory: IRenderMime.IRendererFactory = {
      safe: true, // all of it is text
      mimeTypes: [CARD],
      defaultRank: -10, // before HTML
      createRenderer: () => new RenderedCard(sky, act)
    };
    registry.addFactory(factory, -10);
    if (notebooks) followNotebooks(notebooks, sky);
  }
};
