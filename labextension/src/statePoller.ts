/** State of the server, polled periodically and after every change. */

import type { Event, ServiceManager } from '@jupyterlab/services';
import { Poll } from '@lumino/polling';
import { ISignal, Signal } from '@lumino/signaling';

import { Api, IState, SkyError } from './api';

const FULL_REFRESH_SECONDS = 30;
const CHANGED = 'https://jupyter-sky.dev/events/changed';

/** The state of the server as this page knows it. */
export class StatePoller {
  constructor(
    readonly api: Api,
    seconds = 5,
    events?: ServiceManager.IManager['events']
  ) {
    this.poll = new Poll({
      auto: false,
      factory: () => this.ask(),
      frequency: { interval: seconds * 1000, backoff: true, max: 60_000 },
      name: 'jupyter-sky:state',
      standby: 'when-hidden'
    });
    events?.stream.connect(this.onChanged, this);
    this.events = events;
  }

  /** The last answer; null before the first. */
  state: IState | null = null;

  /** Why the last question was not answered; null when it was. */
  problem: SkyError | null = null;

  /** Time of the last answer of the server [Unix s of this computer]. */
  receivedAt = 0;

  /** Emits after every answer that brought news, and when a problem comes or goes. */
  get changed(): ISignal<this, void> {
    return this.changes;
  }

  /** Unix seconds by the server's clock, which need not agree with the one here. */
  now(): number {
    return Date.now() / 1000 + this.ahead;
  }

  /** Seconds between two questions. */
  set seconds(seconds: number) {
    const { backoff, max } = this.poll.frequency;
    this.poll.frequency = { backoff, interval: seconds * 1000, max: Math.max(max, seconds * 1000) };
  }

  get seconds(): number {
    return this.poll.frequency.interval / 1000;
  }

  async start(): Promise<void> {
    await this.poll.start();
  }

  /** Asks now; the promise is kept when the answer is here, whatever it is. */
  async refresh(): Promise<void> {
    await this.poll.refresh();
    await this.poll.tick.catch(() => undefined);
  }

  dispose(): void {
    this.events?.stream.disconnect(this.onChanged, this);
    this.poll.dispose();
    Signal.clearData(this);
  }

  private onChanged(_: unknown, event: Event.Emission): void {
    if (event.schema_id === CHANGED && !document.hidden) void this.poll.refresh();
  }

  private async ask(): Promise<void> {
    const before = this.problem;
    try {
      // Heartbeats alone are no news, but the idle countdown goes by them: look at it now and then.
      const old = this.now() - (this.state?.at ?? 0) > FULL_REFRESH_SECONDS;
      const state = await this.api.state(old || before !== null);
      this.problem = null;
      this.receivedAt = Date.now() / 1000;
      if (state) {
        this.state = state;
        this.ahead = state.at - this.receivedAt;
      }
      if (state || before) this.changes.emit();
    } catch (error) {
      this.problem =
        error instanceof SkyError ? error : new SkyError(String(error), '', 'server', 0);
      this.changes.emit();
      throw error; // so that the next question waits longer
    }
  }

  private ahead = 0;
  private changes = new Signal<this, void>(this);
  private poll: Poll;
  private events?: ServiceManager.IManager['events'];
}
