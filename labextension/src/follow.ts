/**
 * What a notebook's runs have printed, in the notebook, whatever became of the page and the kernel.
 *
 * JupyterLab drops what a cell prints while its page is reloaded, and all of it once the kernel is
 * gone. The server has it, in the journal of the cluster: it is put into the cell, in the document,
 * so that it is saved. A cell that the kernel itself feeds in this page is left alone.
 */

import type { IOutput } from '@jupyterlab/nbformat';

import type { IRun } from './api';

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
  /** Whether the kernel's messages reach this cell in this page. */
  readonly fed: boolean;
  /** Whether it was deleted. */
  readonly gone: boolean;
  count: number | null;
}

/** What the server says of a run to who follows it. */
export interface IFollowed {
  /** Whether this page, of those that show the notebook, is the one to save it. */
  writer: boolean;
  over: boolean;
  /** The card while the run goes on, its static form at the end. */
  output: IOutput;
}

/** What a follower asks of the server. */
export interface ISource {
  follow(run: string, fed: boolean): Promise<IFollowed>;
  outputs(run: string, since: number): Promise<{ outputs: unknown[]; next: number }>;
}

/** Whose an output is, and whether it is a card that waits for its end. */
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

/** Whether a cell still is what ran: its body begins with the code of the run. */
export function same(source: string, code: string): boolean {
  const body = source.replace(/\r\n/g, '\n');
  const magic = body.indexOf('%%sky');
  if (magic < 0) return false;
  const below = body.indexOf('\n', magic);
  return below >= 0 && body.slice(below + 1).startsWith(code.trimEnd());
}

/**
 * Whether what a run printed is to be put into its cell.
 *
 * @param saved - when the document was written that this page has opened, unix seconds.
 */
export function lost(run: IRun, cell: ICell, saved: number): boolean {
  if (cell.fed || cell.gone || !same(cell.source, run.code)) return false;
  const found = marked(cell);
  if (found?.run === run.run_id) return found.live;
  return run.ended === null || run.ended > saved;
}

/** One run on its way into one cell. */
export class Follower {
  constructor(
    readonly run: IRun,
    readonly cell: ICell,
    readonly source: ISource
  ) {}

  private next = 0;
  private begun = false;

  /**
   * Brings the cell up to date.
   *
   * @returns whether there is more to come
   */
  async turn(save: (write: () => void, writer: boolean) => void): Promise<boolean> {
    const { run_id: id } = this.run;
    const told = await this.source.follow(id, false);
    const fresh: IOutput[] = [];
    let trouble = '';
    try {
      let answer;
      do {
        answer = await this.source.outputs(id, this.next);
        fresh.push(...(answer.outputs as IOutput[]));
        this.next = answer.next;
      } while (answer.outputs.length && fresh.length < 10_000);
    } catch (error) {
      if (!told.over) throw error;
      trouble = error instanceof Error ? error.message : String(error);
    }
    const { cell } = this;
    const stays = !this.begun || marked(cell)?.run === id;
    if (cell.gone || cell.fed || !stays) return false; // cleared, run again or deleted meanwhile
    save(() => this.write(told, fresh, trouble), told.writer);
    this.begun = true;
    return !told.over;
  }

  private write(told: IFollowed, fresh: IOutput[], trouble: string): void {
    const { outputs } = this.cell;
    if (!this.begun && !trouble) {
      // all of it is written again, whatever was there: so that nothing is there twice
      const now = Array.from({ length: outputs.length }, (_, at) => outputs.get(at).toJSON());
      if (JSON.stringify(now) !== JSON.stringify([told.output, ...fresh])) {
        outputs.fromJSON([told.output, ...fresh]);
      }
      this.cell.count = this.run.cell || this.cell.count;
      return;
    }
    for (const output of fresh) add(outputs, output);
    const place = marked(this.cell);
    if (place && place.live && told.over) outputs.set(place.at, told.output);
  }
}

/** Adds an output as a message of the kernel would: some change what is there already. */
function add(outputs: IOutputs, output: IOutput): void {
  outputs.add(output);
}
