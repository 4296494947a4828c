// @ts-check
import { clock, h, money, rate, uid } from './base.js';

/** Result of a match as elements: offers, or fields to relax. */

/** @typedef {import('./base.js').Translate} Translate */
/**
 * @typedef {object} Host
 * @property {Translate} _
 * @property {(key: string) => string} labelOf The words of a field.
 * @property {(values: Record<string, string | boolean>) => void} use Changes fields.
 * @property {any} time The field for the expected time.
 */

/** Cheapest offers with remarks. @param {any} answer @param {Host} host */
export function offersOf(answer, { _, use, time }) {
  const count = answer.count.toLocaleString('en-US');
  const late = answer.errors.time;
  time.placeholder = answer.seconds ? clock(answer.seconds) : _('time');
  time.setAttribute('aria-invalid', String(Boolean(late)));
  const heads = [
    h('th', { scope: 'col' }, _('cheapest')),
    h('th', { scope: 'col', class: 'jsky-number jsky-mod-price' }, _('price')),
    h('th', { scope: 'col', class: 'jsky-number jsky-mod-est' }, _('est. for'), ' ', time)
  ];
  const timed = answer.seconds !== null;
  const rows = answer.places.map((/** @type {any} */ place) => rowOf(place, timed, _));
  const table = h(
    'table',
    { class: 'jsky-Needs-offers' },
    h('caption', { text: answer.count === 1 ? _('1 offer matches') : _('%1 offers match', count) }),
    h('thead', null, h('tr', null, ...heads)),
    h('tbody', null, ...rows)
  );
  const notes = late ? [`${late.message} – ${late.hint}`] : [];
  notes.push(...answer.notes);
  if (answer.seconds_to_limit) {
    notes.push(_('at that price the cell reaches its cost limit after %1', clock(answer.seconds_to_limit)));
  }
  const [first] = answer.places;
  const below = notes.map(text => h('p', { class: 'jsky-Needs-note', text }));
  return [table, ...spotOf(answer.spot, first, _, use), ...below];
}

/** @param {any} place @param {boolean} timed @param {Translate} _ */
function rowOf(place, timed, _) {
  const here = place.cloud === 'local';
  const where = here ? _('on this machine') : `${place.cloud} ${place.region}`;
  const more = place.more ? ` ${_('and %1 more', place.more)}` : '';
  const size = [
    here ? '' : place.machine,
    place.gpu,
    place.vcpus === 1 ? _('1 vCPU') : place.vcpus ? _('%1 vCPUs', place.vcpus) : '',
    place.memory ? _('%1 GiB', Number(place.memory.toFixed(1))) : '',
    place.spot ? _('spot') : ''
  ].filter(Boolean);
  const small = (/** @type {string} */ text, title = '') =>
    text && h('span', { class: 'jsky-Needs-size', title: title || null, text });
  return h(
    'tr',
    null,
    h(
      'td',
      null,
      h('span', { text: where + more }),
      small(size.join(' · ')),
      small(here ? '' : _('price: %1', place.origin), place.origin_detail),
      small(place.note)
    ),
    h('td', { class: 'jsky-number', text: rate(place.price, _) }),
    h('td', { class: 'jsky-number', text: timed ? money(place.estimate, _) : '' })
  );
}

/**
 * A spot machine is not taken unasked, and it may be worth to ask.
 * @param {any} spot
 * @param {any} first
 * @param {Translate} _
 * @param {Host['use']} use
 */
function spotOf(spot, first, _, use) {
  if (!spot || spot.price === null || (first.price !== null && spot.price >= first.price)) {
    return [];
  }
  const [price, where] = [rate(spot.price, _), `${spot.cloud} ${spot.region}`];
  const words = _('Spot from %1 (%2): may be taken back', price, where);
  const button = small(_('Use spot'), () => use({ spot: true }));
  return [h('p', { class: 'jsky-Needs-note' }, `${words} `, button)];
}

/**
 * What own runs have measured where the cell would run; nothing where nothing was measured.
 * @param {{about: string, facts: string[]}[]} measured
 * @param {Translate} _
 */
export function measuredOf(measured, _) {
  if (!measured.length) {
    return [];
  }
  const rows = measured.flatMap(({ about, facts }) => [
    h('dt', { text: about }),
    h('dd', { text: facts.join(' · ') })
  ]);
  const title = h('strong', { id: uid('measured'), text: _('Measured so far') });
  return [title, h('dl', { 'aria-labelledby': title.id }, ...rows)];
}

/** Nothing is possible: which field to loosen, and to what. @param {any} answer @param {Host} host */
export function suggestionsOf(answer, { _, labelOf, use }) {
  const ways = answer.suggestions.map((/** @type {any} */ way) =>
    h(
      'li',
      null,
      h('strong', { text: way.keys.map(labelOf).join(' + ') }),
      `: ${way.words} `,
      small(inWords(way.values, _), () => use(way.values))
    )
  );
  const nothing = h('strong', { text: _('Nothing on sale has all of this.') });
  return [
    h('p', { class: 'jsky-Needs-nothing' }, nothing),
    h('p', { class: 'jsky-Needs-note', text: _('Loosen one of these:') }),
    h('ul', { class: 'jsky-Needs-ways' }, ...ways)
  ];
}

/** @param {Record<string, string | boolean>} values @param {Translate} _ */
function inWords(values, _) {
  const set = Object.values(values).filter(value => typeof value === 'string');
  if (set.length) {
    return _('Use %1', set.join(', '));
  }
  if (values.spot) {
    return _('Use spot');
  }
  return values.on_demand ? _('Use on demand') : _('Leave it out');
}

/** @param {string} label @param {() => void} click */
function small(label, click) {
  const properties = { type: 'button', class: 'jsky-Button jsky-mod-small', on: { click } };
  return h('button', properties, label);
}

/** Error with its hint. @param {any} error */
export function errorOf(error) {
  return h(
    'div',
    { class: 'jsky-Needs-trouble', role: 'alert' },
    h('strong', { text: error?.message ?? String(error) }),
    error?.hint ? h('div', { text: error.hint }) : null
  );
}
