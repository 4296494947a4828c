/** What the server says, asked again and again, and at once when something has changed. */

import type { Event, ServiceManager } from '@jupyterlab/services';
import { Poll } from '@lumino/polling';
import { ISignal, Signal } from '@lumino/signaling';

import { Api, IState, SkyError } from './api';

const CHANGED = 'https://jupyter-sky.dev/events/changed';

/** The state of the server as this page knows it. */
export class Watch {
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
    events?.stream.connect(this.heard, this);
    this.events = events;
  }

  /** The last answer; null before the first. */
  state: IState | null = null;

  /** Why the last question was not answered; null when it was. */
  problem: SkyError | null = null;

  /** Emits after every answer that brought news, and when a problem comes or goes. */
  get changed(): ISignal<this, void> {
    return this.changes;
  }

  /** Seconds between two questions. */
  set seconds(seconds: number) {
    this.poll.frequency = { ...this.poll.frequency, interval: seconds * 1000 };
  }

  async start(): Promise<void> {
    await this.poll.start();
  }

  /** Asks now; the promise is kept when the answer is here. */
  async refresh(): Promise<void> {
    await this.poll.refresh();
    await this.poll.tick;
  }

  dispose(): void {
    this.events?.stream.disconnect(this.heard, this);
    this.poll.dispose();
    Signal.clearData(this);
  }

  private heard(_: unknown, event: Event.Emission): void {
    if (event.schema_id === CHANGED && !document.hidden) void this.poll.refresh();
  }

  private async ask(): Promise<void> {
    const before = this.problem;
    try {
      const state = await this.api.state(this.state === null || before !== null);
      this.problem = null;
      if (state) this.state = state;
      if (state || before) this.changes.emit();
    } catch (error) {
      this.problem =
        error instanceof SkyError ? error : new SkyError(String(error), '', 'server', 0);
      this.changes.emit();
      throw error; // so that the next question waits longer
    }
  }

  private changes = new Signal<this, void>(this);
  private poll: Poll;
  private events?: ServiceManager.IManager['events'];
}
