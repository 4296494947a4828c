/** Views that a kernel has shown, such as `sky.form()`: here the server answers, not the kernel. */

import type { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { IRenderMimeRegistry } from '@jupyterlab/rendermime';
import type { IRenderMime } from '@jupyterlab/rendermime-interfaces';
import { Widget } from '@lumino/widgets';

import { ISky } from './tokens';

/** MIME data of a view: its name and last state. */
export const VIEW = 'application/vnd.jupyter-sky.view+json';

export interface IShown {
  version: number;
  view: string;
  state: Record<string, any>;
}

/** Access of a view to its output in the notebook. */
export interface IPlace {
  host: HTMLElement;
  /** What other front ends show. */
  html: string;
  sky: ISky;
  /** Saves the view's static HTML and text in the notebook. */
  keep(state: Record<string, any>, html: string, text: string): void;
}

/** Shows a view in an empty element; the answer cleans up. */
export type Show = (state: Record<string, any>, place: IPlace) => () => void;

const known = new Map<string, Show>();

/** Says how views of a name are shown; to be called when a plugin is activated. */
export function addView(name: string, show: Show): void {
  known.set(name, show);
}

class RenderedView extends Widget implements IRenderMime.IRenderer {
  constructor(readonly sky: ISky) {
    super();
    this.addClass('jsky-RenderedView');
  }

  async renderModel(model: IRenderMime.IMimeModel): Promise<void> {
    const shown = model.data[VIEW] as unknown as IShown;
    const show = known.get(shown.view);
    if (this.take && shown.view === this.view) return; // it is live, and knows better
    this.take?.();
    this.view = shown.view;
    if (!show || shown.version !== 1 || this.sky.poller.problem?.kind === 'missing') {
      this.node.textContent = String(model.data['text/plain'] ?? '');
      this.node.classList.add('jsky-mod-text');
      return;
    }
    const host = document.createElement('div');
    this.node.replaceChildren(host);
    const keep: IPlace['keep'] = (state, html, text) =>
      model.setData({
        data: {
          ...model.data,
          [VIEW]: { ...shown, state },
          'text/html': html,
          'text/plain': text
        }
      });
    const html = String(model.data['text/html'] ?? '');
    this.take = show(shown.state, { host, html, sky: this.sky, keep });
  }

  dispose(): void {
    if (!this.isDisposed) this.take?.();
    super.dispose();
  }

  private view = '';
  private take: (() => void) | null = null;
}

export const views: JupyterFrontEndPlugin<void> = {
  id: 'jupyter-sky:views',
  description: 'Shows the views of jupyter_sky in outputs, without a kernel.',
  autoStart: true,
  requires: [ISky, IRenderMimeRegistry],
  activate: (_app: JupyterFrontEnd, sky: ISky, registry: IRenderMimeRegistry): void => {
    const factory: IRenderMime.IRendererFactory = {
      // a view asks the server and has buttons: an untrusted notebook gets its static HTML
      safe: false,
      mimeTypes: [VIEW],
      defaultRank: -10, // before HTML, and before widgets, whose models end with their kernel
      createRenderer: () => new RenderedView(sky)
    };
    registry.addFactory(factory, -10);
  }
};
