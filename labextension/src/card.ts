/** The card of a running cell: drawn where its MIME type stands, and kept true by the server. */

import type { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { INotebookTracker } from '@jupyterlab/notebook';
import { IRenderMimeRegistry } from '@jupyterlab/rendermime';
import type { IRenderMime } from '@jupyterlab/rendermime-interfaces';
import { Widget } from '@lumino/widgets';

import { drawCard, grown } from '../../jupyter_sky/widgets/static/card.js';
import type { Card } from '../../jupyter_sky/widgets/static/card.js';
import { CARD } from './follow';
import { followNotebooks } from './notebooks';
import { ISky } from './tokens';

/** Seconds within which what is drawn for the first time counts as new. */
const FRESH = 10;
/** The time of the page's last look at the server, on the server's clock, and on the page's. */
let skew = 0;

const now = () => Date.now() / 1000 + skew;

class RenderedCard extends Widget implements IRenderMime.IRenderer {
  constructor(
    readonly sky: ISky,
    readonly act: (kind: string, payload: any) => Promise<any>
  ) {
    super();
    this.addClass('jsky-RenderedCard');
    sky.watch.changed.connect(this.heard, this);
  }

  async renderModel(model: IRenderMime.IMimeModel): Promise<void> {
    const card = model.data[CARD] as unknown as Card;
    const before = this.card;
    this.card = card;
    if (!this.drawn) {
      const served = this.sky.watch.problem?.kind !== 'missing';
      const ask = served ? (kind: string, payload?: any) => this.act(kind, payload) : null;
      this.drawn = drawCard({ el: this.node, ask, _: this.sky._, now });
    }
    const fresh = before ? before.at !== card.at : Math.abs(now() - card.at) < FRESH;
    this.drawn.show(card, fresh ? now() : card.at);
    this.heard();
  }

  dispose(): void {
    this.sky.watch.changed.disconnect(this.heard, this);
    this.drawn?.dispose();
    super.dispose();
  }

  /** Takes over what the server knows of the run, while it goes on. */
  private heard(): void {
    const { state } = this.sky.watch;
    const card = this.card;
    const run = state?.runs.find(run => run.run_id === card?.run_id);
    if (!state || !card || !run || run.ended !== null) return;
    const later = grown(card, Math.max(0, state.at - card.at));
    const stage = run.stage ?? card.stage;
    this.drawn?.show({ ...later, stage, at: Math.max(card.at, state.at) }, now());
  }

  private card: Card | null = null;
  private drawn: ReturnType<typeof drawCard> | null = null;
}

export const card: JupyterFrontEndPlugin<void> = {
  id: 'jupyter-sky:card',
  description: 'The card of a running %%sky cell, and what it printed while no page listened.',
  autoStart: true,
  requires: [ISky, IRenderMimeRegistry],
  optional: [INotebookTracker],
  activate: (
    app: JupyterFrontEnd,
    sky: ISky,
    registry: IRenderMimeRegistry,
    notebooks: INotebookTracker | null
  ): void => {
    const act = async (kind: string, payload: { run_id: string }): Promise<any> => {
      if (kind === 'stop') {
        const answer = await sky.api.stop(payload.run_id);
        void sky.watch.refresh();
        return answer;
      }
      return app.commands.execute('jupyter-sky:open-log', payload);
    };
    sky.watch.changed.connect(watch => {
      if (watch.state) skew = watch.state.at - Date.now() / 1000;
    });
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
