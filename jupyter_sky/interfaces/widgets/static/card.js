// @ts-check
/**
 * The card of a cell that runs on a cluster: the status line, alive. It looks like the line of HTML
 * that takes its place at the end (`jupyter_sky.interfaces.widgets.status_line`), so that nothing jumps.
 *
 * Kernel and server send the same data (`to_card`). Time and cost count on between two messages;
 * after a while without any the card says so and stops.
 */
import { durations, english, errorText, h, money, timeOf } from './base.js';

/**
 * State of a run, as `to_card` returns it.
 * @typedef {object} Card
 * @property {number} version
 * @property {string} run_id
 * @property {string} stage
 * @property {number} seconds How long it had lasted at `at`, since it was sent once it was.
 * @property {number} [boot] How long it had waited until it was sent.
 * @property {number} at Unix seconds.
 * @property {string | null} cluster
 * @property {string | null} place
 * @property {number | null} price USD/h of the whole cluster; null is unknown.
 * @property {string} [price_from]
 * @property {number | null} cell_usd
 * @property {number | null} notebook_usd
 * @property {string} detail
 * @property {string[]} notes
 * @property {boolean} [over] It has ended; its outputs and its end may still be on their way.
 * @property {string} [warning] Why it goes on although it was stopped, and what a second stop loses.
 */

/** Seconds without news after which a card no longer goes on by itself. */
export const SILENCE = 20;

const COSTS = new Set(['running', 'interrupting']);
const COLOURS = new Map([
  ['running', 'active'],
  ['interrupting', 'warn'],
  ['done', 'good'],
  ['failed', 'bad'],
  ['interrupted', 'warn'],
  ['cancelled', 'warn']
]);

/**
 * State of a card some seconds after its message.
 * @param {Card} card
 * @param {number} [later]
 */
export function grown(card, later = 0) {
  const rest = Math.max(0, later);
  const more = card.price === null ? null : (card.price * rest) / 3600;
  const add = (/** @type {number | null} */ usd, /** @type {boolean} */ grows) =>
    usd === null || !grows ? usd : more === null ? null : usd + more;
  return {
    ...card,
    seconds: card.seconds + rest,
    cell_usd: add(card.cell_usd, COSTS.has(card.stage)),
    notebook_usd: add(card.notebook_usd, card.cluster !== null)
  };
}

/**
 * Parts of the line after stage and time; unknown ones are left out.
 * @param {Card} card
 */
export function facts(card, _ = english) {
  const known = [card.detail];
  if (card.cell_usd !== null) {
    known.push(_('%1 this cell', money(card.cell_usd, _)));
  }
  if (card.notebook_usd !== null) {
    known.push(_('%1 this notebook', money(card.notebook_usd, _)));
  }
  const where = [card.cluster, card.place].filter(Boolean).join(_(' on '));
  if (where) {
    const price = card.price === null ? _('price unknown') : `${money(card.price, _)}/h`;
    known.push(`${where} ${price}`);
  }
  return known.filter(Boolean);
}

/**
 * Draws a card into an element.
 *
 * @param {object} view
 * @param {HTMLElement} view.el
 * @param {import('./base.js').Ask | null} view.ask
 *   Answers `stop` and `log`, each with `{run_id}`, `stop` also with `restart`; null without a server: there are no buttons.
 * @param {import('./base.js').Translate} [view._]
 * @param {() => number} [view.now] Unix seconds.
 * @returns {{show: (card: Card, at?: number) => void, dispose: () => void}}
 *   `show(card, at)` shows the state of the time `at` (by the clock of `now`; default: this moment).
 */
export function drawCard({ el, ask, _ = english, now = () => Date.now() / 1000 }) {
  const dot = h('span', { class: 'jsky-Card-dot', 'aria-hidden': 'true', text: '●' });
  const stage = h('b');
  const time = h('span');
  const quiet = h('span', { class: 'jsky-Card-facts' });
  const said = h('div', { class: 'jsky-Card-note', role: 'status' });
  const notes = h('div');
  /** @type {Card | null} */
  let card = null;
  let heard = 0;
  let stopping = false;

  const button = (/** @type {string} */ text, /** @type {string} */ label, /** @type {any} */ click) =>
    h('button', { class: 'jsky-Card-button', title: label, 'aria-label': label, on: { click } }, text);
  const stop = button(_('Stop'), _('Stop this cell'), async () => {
    if (!ask || !card || stopping) {
      return;
    }
    stopping = true;
    draw();
    try {
      const answer = await ask('stop', { run_id: card.run_id, restart: Boolean(card.warning) });
      said.textContent = answer?.message ?? '';
    } catch (error) {
      stopping = false;
      said.textContent = _('It could not be stopped: %1', errorText(error));
    }
    draw();
  });
  const log = button(_('Log'), _('Open the log of this cell'), () => {
    if (ask && card) {
      ask('log', { run_id: card.run_id }).catch((error) => {
        said.textContent = errorText(error);
      });
    }
  });
  const buttons = ask ? h('span', { class: 'jsky-Card-buttons' }, stop, log) : null;
  const line = h(
    'div',
    { class: 'jsky-Card tex2jax_ignore mathjax_ignore', role: 'group', 'aria-label': _('Cell on a cluster') },
    dot,
    ' ',
    stage,
    ' ',
    time,
    buttons, // here they stay in their place while the figures grow
    quiet,
    said,
    notes
  );
  el.append(line);

  function draw() {
    if (!card) {
      return;
    }
    const silent = now() - heard;
    const live = silent <= SILENCE;
    const seen = grown(card, live && !card.over ? silent : 0);
    const name = stopping && COSTS.has(card.stage) ? 'interrupting' : card.stage;
    dot.className = `jsky-Card-dot jsky-mod-${COLOURS.get(name) ?? 'waiting'}`;
    write(stage, _(stopping ? 'stopping…' : card.stage));
    write(time, durations(seen.seconds, card.boot, _));
    const parts = facts(seen, _);
    if (!live) {
      parts.push(_('not live, as of %1', timeOf(card.at)));
    }
    write(quiet, parts.map((part) => ` · ${part}`).join(''));
    quiet.title = card.price_from ? _('price from %1', card.price_from) : '';
    const told = card.notes.map((text) => h('div', { class: 'jsky-Card-note', text }));
    if (notes.textContent !== card.notes.join('')) {
      notes.replaceChildren(...told);
    }
    write(stop, _(card.warning ? 'Restart engine' : 'Stop'));
    const label = card.warning || _('Stop this cell');
    stop.title = label;
    stop.setAttribute('aria-label', label);
    stop.setAttribute('aria-disabled', String(stopping));
  }

  const timer = setInterval(draw, 1000);
  return {
    show(next, at = now()) {
      if (card && next.run_id !== card.run_id) {
        stopping = false;
        said.textContent = '';
      }
      if (next.warning && !card?.warning) {
        stopping = false; // to ask again is another thing
      }
      card = next;
      heard = at;
      draw();
    },
    dispose() {
      clearInterval(timer);
      line.remove();
    }
  };
}

/** Writes a text only if it differs, so that a selection is kept. @param {any} node @param {string} text */
function write(node, text) {
  if (node.textContent !== text) {
    node.textContent = text;
  }
}
