// @ts-check
/** Lines of a log: assembled from nodes' outputs, and searched. */
import { plain, written } from './ansi.js';

/**
 * Piece of a node's output, with its line ends.
 * @typedef {{rank: number, stream: string, text: string, at: number | null}} Printed
 */

/**
 * A line. `row` is where a pane shows it; `open` while more of it may come.
 * @typedef {object} Line
 * @property {number} n Its number, from 0, in the order of arrival.
 * @property {number} rank
 * @property {string} stream `stdout`, `stderr` or `error`.
 * @property {string} text
 * @property {number | null} at Unix seconds.
 * @property {boolean} open
 * @property {HTMLElement | null} row
 */

/** Match of a search. @typedef {{line: Line, start: number}} Hit */

/** Most lines kept in memory; of a longer log the first are let go. */
export const KEPT = 200_000;
/** Most places a search gives. */
export const HITS = 10_000;

/** The lines of one log. */
export class Lines {
  constructor(kept = KEPT) {
    this.kept = kept;
    /** @type {Line[]} */
    this.all = [];
    this.count = 0;
    /** @type {Set<number>} */
    this.ranks = new Set();
    /** @type {Map<string, Line>} */
    this._open = new Map();
  }

  /** How many lines are no longer kept. */
  get dropped() {
    return this.count - this.all.length;
  }

  /**
   * Adds what has been printed.
   * @param {Printed[]} printed
   * @returns {{added: Line[], changed: Set<Line>}} new lines, and lines that more was added to
   */
  add(printed) {
    /** @type {Line[]} */
    const added = [];
    /** @type {Set<Line>} */
    const changed = new Set();
    for (const { rank, stream, text, at } of printed) {
      const key = `${rank} ${stream}`;
      this.ranks.add(rank);
      const parts = text.replace(/\r\n/g, '\n').split('\n');
      parts.forEach((part, place) => {
        const last = place === parts.length - 1;
        if (last && part === '') {
          return; // the text ended with a line
        }
        let line = this._open.get(key);
        if (line) {
          line.text = written(line.text + part) + (part.endsWith('\r') ? '\r' : '');
          changed.add(line);
        } else {
          line = { n: this.count, rank, stream, text: part, at, open: true, row: null };
          line.text = written(part) + (part.endsWith('\r') ? '\r' : '');
          this.count += 1;
          this.all.push(line);
          added.push(line);
        }
        line.open = last;
        if (last) {
          this._open.set(key, line);
        } else {
          this._open.delete(key);
        }
      });
    }
    if (this.all.length > this.kept * 1.1) {
      this.all.splice(0, this.all.length - this.kept);
    }
    return { added, changed };
  }

  /** All that is kept, as text without colours. */
  text() {
    const many = this.ranks.size > 1;
    return this.all.map((line) => (many ? `[${line.rank}] ` : '') + shown(line) + '\n').join('');
  }
}

/** The text of a line, without colours. @param {Line} line */
export const shown = (line) => plain(line.text.replace(/\r$/, ''));

/**
 * Where a text stands in a line, whatever its case.
 * @param {Line} line
 * @param {string} query
 * @returns {number[]}
 */
export function places(line, query) {
  const text = shown(line).toLowerCase();
  const wanted = query.toLowerCase();
  /** @type {number[]} */
  const found = [];
  for (let at = text.indexOf(wanted); at >= 0; at = text.indexOf(wanted, at + wanted.length)) {
    found.push(at);
  }
  return found;
}

/**
 * Where a text stands in lines, up to `most` places.
 * @param {Line[]} lines
 * @param {string} query
 * @returns {Hit[]}
 */
export function find(lines, query, most = HITS) {
  /** @type {Hit[]} */
  const hits = [];
  if (query) {
    for (const line of lines) {
      for (const start of places(line, query)) {
        if (hits.push({ line, start }) >= most) {
          return hits;
        }
      }
    }
  }
  return hits;
}
