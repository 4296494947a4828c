// @ts-check
/** One scrolling list of lines. It draws a window of them, so that a log of any length stays smooth. */
import { pieces } from './ansi.js';
import { english, h } from './base.js';
import { places } from './log_lines.js';

/** Most lines drawn at once. */
export const DRAWN = 5000;
/** Lines drawn before the page gets its turn. */
const AT_ONCE = 500;
/** Earlier lines that one press brings. */
const MORE = 1000;
/** How near its end, in pixels, a list counts as scrolled to it. */
const NEAR = 24;
/** How long after a touch, a key or the wheel scrolling is the reader's, in milliseconds. */
const TOUCH = 1000;

/**
 * Parts of a line besides its text.
 * @typedef {{times: boolean, ranks: boolean, query: string}} Look
 */

/** @typedef {import('./log_lines.js').Line} Line */

/** @param {() => void} act */
const frame = (act) => {
  requestAnimationFrame(act);
};

/** A list of lines that is scrolled. */
export class Pane {
  /**
   * @param {object} options
   * @param {string} options.label What a screen reader calls it.
   * @param {Look} options.look Shared with the view that owns it.
   * @param {() => boolean} options.following Whether new lines are scrolled to.
   * @param {(follows: boolean) => void} options.scrolled The user scrolled up, or back to the end.
   * @param {import('./base.js').Translate} [options._]
   * @param {(act: () => void) => void} [options.later] Gives the page its turn first.
   */
  constructor({ label, look, following, scrolled, _ = english, later = frame }) {
    this.look = look;
    this.following = following;
    this.scrolled = scrolled;
    this._ = _;
    this.later = later;
    /** @type {Line[]} */
    this.lines = [];
    this.from = 0;
    this.to = 0;
    this.gone = 0;
    this.drawing = false;
    this.top = 0;
    /** @type {import('./log_lines.js').Hit | null} The match that is gone to. */
    this.current = null;
    this.earlier = h('button', { class: 'jsky-Log-more', on: { click: () => this.showEarlier() } });
    this.newer = h('button', { class: 'jsky-Log-more', on: { click: () => this.toEnd() } });
    this.list = h('div', { class: 'jsky-Log-lines' });
    this.earlier.hidden = this.newer.hidden = true;
    this.el = h(
      'div',
      { class: 'jsky-Log-pane', role: 'log', 'aria-live': 'off', 'aria-label': label, tabindex: '0' },
      this.earlier,
      this.list,
      this.newer
    );
    this.el.addEventListener('scroll', () => this.onScroll());
    this.touchedAt = -Infinity; // the page scrolls as well, when it lays itself out anew
    this.touched = () => (this.touchedAt = performance.now());
    for (const kind of ['wheel', 'touchmove', 'keydown', 'pointerdown']) {
      this.el.addEventListener(kind, this.touched, { passive: true });
    }
    this.size = '';
    if (typeof ResizeObserver !== 'undefined') {
      const observer = new ResizeObserver(() => this.onResize());
      observer.observe(this.el);
      observer.observe(this.list);
    }
  }

  /** Shows lines that have come. @param {Line[]} added */
  add(added) {
    for (const line of added) {
      this.lines.push(line);
    }
    if (this.following() && this.lines.length - this.to > DRAWN) {
      this.window(this.lines.length - DRAWN); // lines before the window are not drawn
    }
    this.schedule();
  }

  /** Lets go of lines at the beginning that are no longer kept. @param {number} count */
  drop(count) {
    this.gone += count;
    const hidden = Math.min(count, this.from);
    this.lines.splice(0, count);
    this.from -= hidden;
    this.to = Math.max(this.from, this.to - count);
    for (let rest = count - hidden; rest > 0 && this.list.firstChild; rest -= 1) {
      this.list.firstChild.remove();
    }
    this.tell();
  }

  schedule() {
    if (!this.drawing) {
      this.drawing = true;
      this.later(() => {
        this.drawing = false;
        this.draw();
      });
    }
  }

  /** Draws some of the lines that are to be seen and are not yet. */
  draw() {
    const follows = this.following();
    const room = follows ? AT_ONCE : Math.min(AT_ONCE, DRAWN - (this.to - this.from));
    const next = this.lines.slice(this.to, this.to + Math.max(0, room));
    if (next.length) {
      this.list.append(...next.map((line) => this.row(line)));
      this.to += next.length;
    }
    const surplus = this.to - this.from - DRAWN;
    for (let left = surplus; left > 0; left -= 1) {
      this.forget(this.lines[this.from]);
      this.from += 1;
    }
    this.tell();
    if (follows) {
      this.scrollToEnd();
    }
    if (next.length && this.to < this.lines.length) {
      this.schedule();
    }
  }

  /** Begins a new window at a line. @param {number} from */
  window(from) {
    for (const line of this.lines.slice(this.from, this.to)) {
      line.row = null;
    }
    this.list.replaceChildren();
    this.from = this.to = Math.max(0, from);
  }

  /** @param {Line | undefined} line */
  forget(line) {
    line?.row?.remove();
    if (line) {
      line.row = null;
    }
  }

  /** Says what is not drawn. */
  tell() {
    const before = this.from + this.gone;
    const after = this.lines.length - this.to;
    this.earlier.hidden = before === 0;
    this.earlier.disabled = this.from === 0;
    const count = before.toLocaleString('en-US');
    this.earlier.textContent = this.from
      ? this._('%1 earlier lines are not drawn: show some', count)
      : this._('%1 earlier lines are no longer kept here', count);
    this.newer.hidden = after === 0 || this.following();
    const more = after.toLocaleString('en-US');
    this.newer.textContent = this._('%1 newer lines: go to the end', more);
  }

  showEarlier() {
    this.scrolled(false);
    const first = Math.max(0, this.from - MORE);
    const height = this.el.scrollHeight;
    const rows = this.lines.slice(first, this.from).map((line) => this.row(line));
    this.list.prepend(...rows);
    this.from = first;
    while (this.to - this.from > DRAWN) {
      this.to -= 1;
      this.forget(this.lines[this.to]);
    }
    this.tell();
    this.el.scrollTop += this.el.scrollHeight - height;
    this.top = this.el.scrollTop;
  }

  /** Goes to the end and follows again. */
  toEnd() {
    this.scrolled(true);
    if (this.lines.length - this.to > DRAWN) {
      this.window(this.lines.length - DRAWN);
    }
    this.draw();
    this.scrollToEnd();
  }

  scrollToEnd() {
    this.el.scrollTop = this.el.scrollHeight;
    this.top = this.el.scrollTop;
    this.size = `${this.el.scrollHeight} ${this.el.clientHeight}`;
  }

  onResize() {
    if (this.following()) {
      this.scrollToEnd();
    }
  }

  onScroll() {
    const { scrollTop, scrollHeight, clientHeight } = this.el;
    const atEnd = scrollTop + clientHeight >= scrollHeight - NEAR;
    const size = `${scrollHeight} ${clientHeight}`;
    const isQuiet = size === this.size;
    this.size = size;
    const byReader = isQuiet && performance.now() - this.touchedAt < TOUCH;
    if (byReader && scrollTop < this.top - 2 && !atEnd) {
      this.touched(); // it may take longer to drag the bar, or to come to rest
      this.scrolled(false);
    } else if (atEnd && this.to === this.lines.length && scrollTop > this.top) {
      this.scrolled(true);
    }
    this.top = scrollTop;
  }

  /** Scrolls to a line, drawn or not, and marks it. @param {Line} line @param {number} start */
  reveal(line, start) {
    const place = this.lines.indexOf(line);
    if (place < 0) {
      return;
    }
    if (!line.row) {
      this.window(place - DRAWN / 4);
      const end = Math.min(this.lines.length, this.from + DRAWN / 2);
      this.list.append(...this.lines.slice(this.from, end).map((other) => this.row(other)));
      this.to = end;
      this.tell();
    }
    const before = this.current?.line;
    this.current = { line, start };
    if (before && before !== line) {
      this.redraw(before);
    }
    this.redraw(line);
    const mark = line.row?.querySelector('.jsky-mod-current') ?? line.row;
    mark?.scrollIntoView?.({ block: 'nearest', inline: 'nearest' });
    this.top = this.el.scrollTop;
  }

  /** Draws a line again that has changed. @param {Line} line */
  redraw(line) {
    const row = line.row;
    if (row) {
      row.replaceWith(this.row(line));
    }
  }

  /** Draws all that is drawn again: something else is to be seen of each line. */
  refresh() {
    this.list.replaceChildren(...this.lines.slice(this.from, this.to).map((line) => this.row(line)));
    this.tell();
  }

  /** @param {Line} line */
  row(line) {
    const { times, ranks, query } = this.look;
    const row = h('div', { class: `jsky-Log-line jsky-mod-${line.stream}` });
    if (times) {
      const date = line.at === null ? null : new Date(line.at * 1000);
      const title = date?.toLocaleString();
      const text = date ? date.toLocaleTimeString([], { hour12: false }) : '';
      row.append(h('span', { class: 'jsky-Log-time', title, text }));
    }
    if (ranks) {
      row.append(h('span', { class: `jsky-Log-rank jsky-mod-${line.rank % 6}`, text: `[${line.rank}]` }));
    }
    const mark = { stderr: this._('err'), error: this._('error') }[line.stream];
    const title = { stderr: this._('Standard error'), error: this._('The cell failed') }[line.stream];
    row.append(
      h('span', { class: 'jsky-Log-mark', title, text: mark ?? '' }),
      h('span', { class: 'jsky-Log-text' }, ...texts(line, query, this.current))
    );
    line.row = row;
    return row;
  }
}

/**
 * Text of a line, coloured, with matches of a search marked.
 * @param {Line} line
 * @param {string} query
 * @param {import('./log_lines.js').Hit | null} current
 */
function texts(line, query, current) {
  const found = query ? places(line, query) : [];
  /** @type {Node[]} */
  const nodes = [];
  let at = 0;
  for (const { text, style, colour } of pieces(line.text.replace(/\r$/, ''))) {
    const end = at + text.length;
    let done = at;
    for (const start of found) {
      const stop = start + query.length;
      if (stop <= done || start >= end) {
        continue;
      }
      const first = Math.max(start, done);
      const last = Math.min(stop, end);
      nodes.push(span(text.slice(done - at, first - at), style, colour));
      const here = current?.line === line && current.start === start;
      const part = span(text.slice(first - at, last - at), style, colour);
      nodes.push(h('mark', { class: here && 'jsky-mod-current' }, part));
      done = last;
    }
    nodes.push(span(text.slice(done - at), style, colour));
    at = end;
  }
  return nodes;
}

/** @param {string} text @param {string} style @param {string} colour */
function span(text, style, colour) {
  if (!style && !colour) {
    return document.createTextNode(text);
  }
  const words = style.split(' ').filter(Boolean).map((word) => `jsky-ansi-${word}`);
  // between the colour and the theme's text, so that it can be read on any background
  const mixed = colour && `color-mix(in oklab, ${colour} 60%, var(--jsky-text))`;
  return h('span', { class: words.join(' ') || null, style: { color: mixed } }, text);
}
