/**
 * Outputs of a notebook's runs, in the notebook, also after a reload or a kernel restart.
 *
 * JupyterLab drops what a cell prints while its page is reloaded, and all of it once the kernel is
 * gone. The server has it, in the journal of the cluster: it is put into the cell, in the document,
 * so that it is saved. A cell that the kernel itself feeds in this page is left alone.
 */

import type { IOutput } from '@jupyterlab/nbformat';

import { written } from '../../jupyter_sky/interfaces/widgets/static/ansi.js';
import { IRun, SkyError } from './api';

export const CARD = 'application/vnd.jupyter-sky.run+json';

/** The outputs of a cell in the document. */
export interface IOutputs {
  readonly length: number;
  get(index: number): { toJSON(): IOutput };
  set(index: number, value: IOutput): void;
  add(value: IOutput): number;
  fromJSON(values: IOutput[]): void;
}

/** A code cell of an open notebook. */
export interface ICell {
  readonly id: string;
  readonly source: string;
  readonly outputs: IOutputs;
  /** By which the kernel's messages reach this cell in this page; null if they do not. */
  readonly feed: object | null;
  /** Whether it was deleted. */
  readonly gone: boolean;
  count: number | null;
  /** What its prompt shows: `[*]`, or its count. */
  state: 'running' | 'idle';
}

/** Server's answer to a follower of a run. */
export interface IFollowResponse {
  /** Whether this page, of those that show the notebook, is the one to save it. */
  writer: boolean;
  over: boolean;
  /** The card while the run goes on, its static form at the end. */
  output: IOutput;
}

/** Outputs of a run since a position in its journal. */
export interface IOutputsResponse {
  outputs: unknown[];
  /** Whether the cell has cleared what it had shown before the first of these. */
  cleared?: boolean;
  next: number;
}

/** Requests of a follower to the server. */
export interface IRunClient {
  follow(run: string, fed: boolean): Promise<IFollowResponse>;
  outputs(run: string, since: number): Promise<IOutputsResponse>;
}

/** Most characters of text put into a cell; the log has everything. */
export const MAX_TEXT = 4e6;

/** Run of an output, and whether the output is a card of a live run. */
export function mark(output: IOutput): { run: string; live: boolean } | null {
  const metadata = output.metadata as { jupyter_sky?: { run_id?: string } } | undefined;
  const data = output.data as { [mime: string]: any } | undefined;
  const run = metadata?.jupyter_sky?.run_id ?? data?.[CARD]?.run_id;
  return run ? { run, live: Boolean(data && CARD in data) } : null;
}

/** The last status line of a cell, with its place among the outputs. */
export function marked(cell: ICell): { run: string; live: boolean; at: number } | null {
  for (let at = cell.outputs.length - 1; at >= 0; at -= 1) {
    const found = mark(cell.outputs.get(at).toJSON());
    if (found) return { ...found, at };
  }
  return null;
}

/** Whether a cell is unchanged: its body begins with the code of the run. */
export function same(source: string, code: string): boolean {
  const body = source.replace(/\r\n/g, '\n');
  const magic = body.indexOf('%%sky');
  if (magic < 0) return false;
  const below = body.indexOf('\n', magic);
  return below >= 0 && body.slice(below + 1).startsWith(code.trimEnd());
}

/**
 * Whether the outputs of a run are to be written into its cell, which no kernel feeds.
 *
 * @param saved - when the document was written that this page has opened, unix seconds.
 */
export function lost(run: IRun, cell: ICell, saved: number): boolean {
  if (cell.gone || !same(cell.source, run.code)) return false;
  const found = marked(cell);
  if (found?.run === run.run_id) return found.live;
  return run.ended === null || run.ended > saved;
}

/**
 * What a page has to do for a run: `claim` it, as it is to save what the kernel feeds it; `follow`
 * it; `wait`, as it may have to be followed later; `leave` it for good, whatever the user does with the
 * outputs from then on.
 *
 * A page notices seconds after the server that a kernel is gone: until then it takes the cell for fed.
 */
export function followerRole(run: IRun, cell: ICell, saved: number): 'claim' | 'follow' | 'wait' | 'leave' {
  if (cell.feed && !run.unwatched) {
    if (run.ended === null) return 'claim';
    const found = marked(cell);
    return found?.run === run.run_id && found.live ? 'wait' : 'leave';
  }
  if (lost(run, cell, saved)) return 'follow';
  return run.ended === null ? 'wait' : 'leave';
}

/** One run on its way into one cell. */
export class Follower {
  /** @param _ - translates the sentence that stands where text is left out. */
  constructor(
    readonly run: IRun,
    readonly cell: ICell,
    readonly source: IRunClient,
    readonly _: (text: string) => string = text => text
  ) {
    this.deadFeed = cell.feed;
  }

  /**
   * Brings the cell up to date.
   *
   * @param save - called with a function that writes into the document, and whether this page is to save it
   * @returns whether there is more to come
   */
  async turn(save: (write: () => void, writer: boolean) => void): Promise<boolean> {
    const status = await this.source.follow(this.run.run_id, false);
    const { cell, buffer } = this;
    let trouble = false;
    try {
      // lines say whose they are once several nodes print: known only of the whole
      if (status.over && (this.run.nodes ?? 1) > 1) this.restart();
      await this.read();
    } catch (error) {
      const isGone = error instanceof SkyError && error.status === 404;
      if (!status.over || !isGone) throw error;
      trouble = true; // the journal is no longer kept: present outputs stay
    }
    const stays = !this.begun || marked(cell)?.run === this.run.run_id;
    const again = cell.feed !== null && cell.feed !== this.deadFeed;
    if (cell.gone || again || !stays) return false; // deleted, run again or cleared meanwhile
    save(() => {
      this.showState(status.over);
      if (trouble && !buffer.length) this.settle(status.output);
      else this.write([status.output, ...buffer.seen()]);
    }, status.writer);
    this.begun = true;
    return !status.over;
  }

  private restart(): void {
    this.buffer.clear();
    this.next = 0;
  }

  /** Reads new entries of the journal. */
  private async read(): Promise<void> {
    for (;;) {
      const answer = await this.source.outputs(this.run.run_id, this.next);
      if (answer.cleared) this.buffer.clear();
      for (const output of answer.outputs) this.buffer.add(output as IOutput, this._);
      if (answer.next <= this.next) return;
      this.next = answer.next;
    }
  }

  /** Shows that the cell is busy until its run is over, as if the kernel had never gone. */
  private showState(over: boolean): void {
    const { cell } = this;
    if (!this.begun) cell.count = this.run.cell || cell.count;
    cell.state = over ? 'idle' : 'running';
  }

  /** Replaces the cell's outputs that differ. */
  private write(wanted: IOutput[]): void {
    const { outputs } = this.cell;
    const there = Array.from({ length: outputs.length }, (_, at) => outputs.get(at).toJSON());
    const fits = there.length <= wanted.length && there.every((one, at) => alike(one, wanted[at]));
    if (!fits) {
      outputs.fromJSON(wanted);
      return;
    }
    there.forEach((one, at) => {
      if (JSON.stringify(one) === JSON.stringify(wanted[at])) return;
      const more = longer(one, wanted[at]);
      // text that has grown at the end is added to: the page does not draw it all again
      if (more !== null && at === there.length - 1) outputs.add({ ...wanted[at], text: more });
      else if (!waiting(one, wanted[at])) outputs.set(at, wanted[at]);
    });
    for (const output of wanted.slice(there.length)) outputs.add(output);
  }

  /** Ends the card, whatever stands below it. */
  private settle(output: IOutput): void {
    const place = marked(this.cell);
    if (place?.live) this.cell.outputs.set(place.at, output);
  }

  /** That of the kernel that is gone, as long as the page has not noticed. */
  private readonly deadFeed: object | null;
  private next = 0;
  private begun = false;
  private buffer = new OutputBuffer();
}

/** Outputs in the notebook format, assembled from messages. */
class OutputBuffer {
  private outputs: IOutput[] = [];

  get length(): number {
    return this.outputs.length;
  }

  /** The outputs, their text as a terminal would show it in the end. */
  seen(): IOutput[] {
    return this.outputs.map(output => {
      const text = output.output_type === 'stream' ? String(output.text) : '';
      if (!text.includes('\r')) return output;
      const lines = text.replace(/\r\n/g, '\n').split('\n');
      return { ...output, text: lines.map(written).join('\n') };
    });
  }

  clear(): void {
    this.outputs = [];
    this.names.clear();
    this.text = 0;
  }

  add(output: IOutput, _: (text: string) => string): void {
    const { transient, ...kept } = output as IOutput & { transient?: { display_id: string } };
    const name = transient?.display_id;
    if (output.output_type === 'update_display_data') {
      for (const at of (name && this.names.get(name)) || []) {
        this.outputs[at] = { ...kept, output_type: 'display_data' };
      }
      return;
    }
    if (output.output_type === 'stream') {
      this.stream(kept as IOutput, _);
      return;
    }
    this.outputs.push(kept as IOutput);
    if (name) this.names.set(name, [...(this.names.get(name) ?? []), this.length - 1]);
  }

  private stream(output: IOutput, _: (text: string) => string): void {
    if (this.text > MAX_TEXT) return;
    let { name, text } = output as { name: string; text: string };
    this.text += text.length;
    if (this.text > MAX_TEXT) {
      text = _('… more than fits here: the log has everything');
      [name, text] = ['stderr', `\n${text}\n`];
    }
    const last = this.outputs[this.length - 1];
    if (last?.output_type === 'stream' && last.name === name) {
      this.outputs[this.length - 1] = { ...last, text: `${last.text}${text}` };
    } else {
      this.outputs.push({ output_type: 'stream', name, text });
    }
  }

  private names = new Map<string, number[]>();
  private text = 0;
}

/** Whether an output may become another without those around it being drawn again. */
function alike(one: IOutput, other: IOutput): boolean {
  return one.output_type === other.output_type && one.name === other.name;
}

/** Rest of a stream after a prefix; null if it begins otherwise. */
function longer(one: IOutput, other: IOutput): string | null {
  if (one.output_type !== 'stream') return null;
  const [before, after] = [joined(one.text), joined(other.text)];
  return after.length > before.length && after.startsWith(before)
    ? after.slice(before.length)
    : null;
}

/** Whether both are the card of a run that goes on: it ticks by itself. */
function waiting(one: IOutput, other: IOutput): boolean {
  const [before, after] = [mark(one), mark(other)];
  return Boolean(before?.live && after?.live && before.run === after.run) && stage(one) === stage(other);
}

const stage = (output: IOutput) => (output.data as { [mime: string]: any })[CARD]?.stage;

const joined = (text: unknown) => (Array.isArray(text) ? text.join('') : String(text ?? ''));
