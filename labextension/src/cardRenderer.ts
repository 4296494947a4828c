/** The card of a running cell where a notebook shows it: fed by the kernel, and by the server. */

import type { IRenderMime } from '@jupyterlab/rendermime-interfaces';
import { Widget } from '@lumino/widgets';

import { drawCard, grown } from '../../jupyter_sky/interfaces/widgets/static/card.js';
import type { Card } from '../../jupyter_sky/interfaces/widgets/static/card.js';
import type { IState } from './api';
import { CARD } from './runFollower';
import type { ISky } from './tokens';

/** Age up to which a card counts as new when it is first drawn [s]. */
const FRESH = 10;

/** By how much the server's clock is ahead of the page's, seconds. */
let skew = 0;

const now = () => Date.now() / 1000 + skew;

export class RenderedCard extends Widget implements IRenderMime.IRenderer {
  constructor(
    readonly sky: ISky,
    readonly act: (kind: string, payload: any) => Promise<any>
  ) {
    super();
    this.addClass('jsky-RenderedCard');
    this.lastState = sky.poller.state;
    sky.poller.changed.connect(this.onChanged, this);
  }

  async renderModel(model: IRenderMime.IMimeModel): Promise<void> {
    this.trusted = model.trusted;
    const card = model.data[CARD] as unknown as Card;
    const before = this.card;
    this.card = card;
    const fresh = before ? before.at !== card.at : Math.abs(now() - card.at) < FRESH;
    this.draw().show(card, fresh ? now() : card.at);
    this.onChanged();
  }

  /**
   * The card, without buttons where the server has none of ours to answer them, and in a notebook
   * that is not trusted: its author may have written another run's id into it.
   */
  private draw(): ReturnType<typeof drawCard> {
    const served = this.trusted && this.sky.poller.problem?.kind !== 'missing';
    if (this.drawn && served === this.served) return this.drawn;
    this.drawn?.dispose();
    this.served = served;
    const ask = served ? (kind: string, payload?: any) => this.act(kind, payload) : null;
    return (this.drawn = drawCard({ el: this.node, ask, _: this.sky._, now }));
  }

  dispose(): void {
    this.sky.poller.changed.disconnect(this.onChanged, this);
    this.drawn?.dispose();
    super.dispose();
  }

  /** Takes over the server's state of a live run. */
  private onChanged(): void {
    const { state } = this.sky.poller;
    if (state && state !== this.lastState) skew = state.at - Date.now() / 1000;
    this.lastState = state;
    const { card, drawn } = this;
    if (!card) return;
    if (this.draw() !== drawn) this.drawn?.show(card, card.at);
    const run = state?.runs.find(run => run.run_id === card.run_id);
    if (!state || !run) return;
    if (run.ended !== null) {
      // the line that takes the card's place comes after the last outputs
      const seconds = Math.max(0, card.seconds + run.ended - card.at);
      this.drawn?.show({ ...card, seconds, over: true }, now());
      return;
    }
    const later = grown(card, Math.max(0, state.at - card.at));
    const stage = run.stage ?? card.stage;
    const warning = run.warning || card.warning || '';
    const notes = card.notes.filter(note => note !== warning).concat(warning || []);
    const at = Math.max(card.at, state.at);
    this.drawn?.show({ ...later, stage, warning, notes, at }, now());
  }

  private card: Card | null = null;
  private served = true;
  private trusted = false;
  /** The last state that was looked at: the clocks are compared when a new one comes. */
  private lastState: IState | null;
  private drawn: ReturnType<typeof drawCard> | null = null;
}
