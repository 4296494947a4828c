// @ts-check
/**
 * Cost report: spending, current rate, forecast, savings, and the day's budget.
 *
 * It shows `jupyter_sky.knowledge.ledger.report.CostReport.to_dict`, polls it every few seconds while visible,
 * and extrapolates at the current rate in between; extrapolated figures are marked
 * as an estimate. Questions: `bill {by, since}`, `csv {by, since}` and `budget {by, since, usd}`.
 */

import { disable, elapsed, h, liveRegion, money, rate, span, timeOf, uid, widget } from './base.js';

/**
 * @typedef {{usd: number, unknown: string[], estimated: boolean}} Amount
 * @typedef {{what: string, label: string, seconds: number, price: number | null,
 *   usd: number | null, estimated: boolean, origin: string, origin_detail: string}} Line
 * @typedef {{usd: number | null, origin: string, spent: Amount, share: number | null,
 *   state: 'none' | 'ok' | 'warn' | 'over', running: string[], ends: number | null}} Budget
 * @typedef {{at: number, notebook: string | null, by: string, since: number | null, total: Amount,
 *   here: (Amount & {usd_h: number}) | null, today: Amount, rate: {usd_h: number, unknown: string[]},
 *   forecast: Amount, forecasts: any[], saved: {spot: Amount, placement: Amount}, savings: any[],
 *   default_choice: string, budget: Budget, lines: Line[], more: number}} Bill
 */

const FRESH_SECONDS = 120; // figures older than that are not counted on
const ASK_MS = 5000;
const GRACE_SECONDS = 30;

/**
 * An amount, its unknown parts named.
 * @param {Amount} amount
 * @param {import('./base.js').Translate} _
 */
export function amountText(amount, _) {
  const known = amount.estimated ? _('%1 est.', money(amount.usd, _)) : money(amount.usd, _);
  if (!amount.unknown.length) {
    return known;
  }
  const missing = _('unknown (%1)', amount.unknown.join(', '));
  return amount.usd ? `${known} + ${missing}` : missing;
}

/**
 * Increase of an amount by the rate, some seconds after its message.
 * @param {Amount} amount
 * @param {number} usdPerHour
 * @param {number} seconds
 * @returns {Amount}
 */
export function grown(amount, usdPerHour, seconds) {
  if (!usdPerHour || seconds <= 0) {
    return amount;
  }
  return { ...amount, usd: amount.usd + (usdPerHour * seconds) / 3600, estimated: true };
}

/**
 * How a budget stands, in words and as a share.
 * @param {Budget} budget
 * @param {Amount} spent
 * @param {import('./base.js').Translate} _
 */
export function budgetText(budget, spent, _) {
  if (budget.usd === null) {
    return _('No daily budget.');
  }
  const words = [money(spent.usd, _), money(budget.usd, _)];
  if (spent.usd >= budget.usd) {
    return _("Today's budget is spent: %1 of %2.", ...words);
  }
  const share = Math.floor((100 * spent.usd) / budget.usd + 1e-6);
  return _("%3 % of today's budget is spent: %1 of %2.", ...words, share);
}

/** Budget from typed text; null if it is not an amount. @param {string} text */
export function parseBudget(text) {
  const plain = text.trim().replace(/^\$/, '').replace(/,/g, '');
  const usd = Number(plain);
  return plain && Number.isFinite(usd) && usd >= 0 && usd < 1e9 ? usd : null;
}

/**
 * Shows the bill.
 *
 * @param {object} view
 * @param {HTMLElement} view.el
 * @param {import('./base.js').Ask} view.ask
 * @param {import('./base.js').Translate} view._
 * @param {any} [view.model] Holds the first figures, and tells of new ones, where there is a kernel.
 * @param {string} [view.by] Initial grouping: `cell`, `notebook`...
 * @param {string} [view.since] And since when: `today`, `7d`, `30d` or `all`.
 * @param {(chosen: {by: string, since: string}) => void} [view.chose] Called after another choice.
 * @returns {() => void}
 */
export function render({ el, ask, _, model, by, since, chose }) {
  const state = model?.get?.('state') ?? {};
  const compact = Boolean(state.compact);
  /** @type {Bill | null} */
  let bill = state.bill ?? null;
  const chosen = { by: bill?.by ?? by ?? 'cell', since: since ?? state.since ?? 'all' };
  let receivedAt = bill?.at ?? 0; // time of the figures, by the local clock
  let trouble = '';

  const root = h('div', { class: `jsky-View jsky-Cost${compact ? ' jsky-mod-compact' : ''}` });
  el.append(root);
  const head = h('dl', { class: 'jsky-Cost-facts' });
  const live = liveRegion(root);
  root.append(head);
  const parts = compact ? null : furnish();

  // -- figures ----------------------------------------------------------------------------------

  /** @param {Bill} next */
  function show(next) {
    bill = next;
    receivedAt = Math.min(Date.now() / 1000, next.at + FRESH_SECONDS);
    trouble = '';
    draw();
  }

  /** Seconds for which the figures are counted on; none once they are old. */
  function later() {
    if (!bill) {
      return 0;
    }
    const seconds = Date.now() / 1000 - bill.at;
    return seconds > 0 && Date.now() / 1000 - receivedAt < FRESH_SECONDS ? seconds : 0;
  }

  function drawFacts() {
    if (!bill) {
      return;
    }
    const seconds = later();
    const grows = bill.rate.usd_h;
    const today = grown(bill.today, grows, seconds);
    const facts = [fact(_('Spent today'), today, _('all notebooks'))];
    if (bill.here) {
      const here = grown(bill.here, bill.here.usd_h, seconds);
      facts.push(fact(_('This notebook'), here, _('since its first cluster')));
    }
    facts.push(fact(_('Running'), { usd: grows, unknown: bill.rate.unknown, estimated: false }, '', '/h'));
    if (bill.forecast.usd || bill.forecast.unknown.length) {
      facts.push(fact(_('Expected'), bill.forecast, _('until everything ends')));
    }
    if (bill.savings.some(one => !one.own) && !compact) {
      const { spot, placement } = bill.saved;
      if (spot.usd || spot.unknown.length) {
        facts.push(fact(_('Saved by spot'), spot, _('against on demand')));
      }
      facts.push(fact(_('Saved by place'), placement, placement.usd < 0
        ? _('dearer than the default choice') : _('against the default choice')));
    }
    head.replaceChildren(...facts);
    parts?.budget(bill.budget, today);
    parts?.stamp(bill, seconds > 0);
  }

  function draw() {
    drawFacts();
    if (bill) {
      parts?.table(bill);
      parts?.details(bill);
    }
    parts?.problem(trouble);
  }

  /** @param {string} name @param {Amount} amount @param {string} note @param {string} [per] */
  function fact(name, amount, note, per = '') {
    const { usd, unknown, estimated } = amount;
    const known = `${money(usd, _)}${per}`;
    const missing = _('unknown (%1)', unknown.join(', '));
    const lead = usd || !unknown.length ? (estimated ? _('%1 est.', known) : known) : missing;
    const notes = [usd && unknown.length ? `+ ${missing}` : '', compact ? '' : note];
    return h('div', { class: 'jsky-Cost-fact' },
      h('dt', { text: name }),
      h('dd', null, h('b', { text: lead }),
        ...notes.filter(Boolean).map(text => h('small', { text }))));
  }

  // -- asking -----------------------------------------------------------------------------------

  let asking = false;
  async function refresh() {
    if (asking) {
      return;
    }
    asking = true;
    try {
      const question = { ...chosen };
      const answer = await ask('bill', question);
      if (question.by === chosen.by && question.since === chosen.since) {
        show(answer);
      }
    } catch (error) {
      trouble = words(error);
      parts?.problem(trouble);
    } finally {
      asking = false;
    }
  }

  /** @param {any} error */
  function words(error) {
    return [error?.message ?? String(error), error?.hint].filter(Boolean).join(' – ');
  }

  async function save() {
    try {
      const { text, name } = await ask('csv', { ...chosen });
      const url = URL.createObjectURL(new Blob([text], { type: 'text/csv' }));
      const link = h('a', { href: url, download: name });
      document.body.append(link);
      link.click();
      link.remove();
      setTimeout(() => URL.revokeObjectURL(url), 10_000);
      live.say(_('%1 was saved.', name));
    } catch (error) {
      parts?.problem(words(error));
    }
  }

  /** @param {number | null} usd */
  async function setBudget(usd) {
    show(await ask('budget', { ...chosen, usd }));
    live.say(usd === null ? _('There is no budget now.') : _('The budget is %1 a day.', money(usd, _)));
  }

  // -- notes ------------------------------------------------------------------------------------

  function furnish() {
    const bar = budgetBar(_, setBudget);
    const grouping = choice(_('By'), [
      ['cell', _('cell')], ['notebook', _('notebook')], ['cluster', _('cluster')],
      ['cloud', _('cloud')], ['day', _('day')]
    ], chosen.by, value => {
      chosen.by = value;
      chose?.({ ...chosen });
      void refresh();
    });
    const when = choice(_('Since'), [
      ['today', _('today')], ['7d', _('7 days ago')], ['30d', _('30 days ago')],
      ['all', _('the beginning')],
      ...(chosen.since && !['today', '7d', '30d', 'all'].includes(chosen.since)
        ? [[chosen.since, bill?.since ? timeOf(bill.since) : chosen.since]] : [])
    ], chosen.since, value => {
      chosen.since = value;
      chose?.({ ...chosen });
      void refresh();
    });
    const csv = h('button', { class: 'jsky-Button', type: 'button', text: _('Save as CSV'),
      on: { click: () => void save() } });
    // it scrolls sideways where it is narrow: by keys, too
    const table = h('div', {
      class: 'jsky-Cost-lines', role: 'region', tabindex: '0', 'aria-label': _('Cost')
    });
    const details = h('div', { class: 'jsky-Cost-details' });
    const problem = h('p', { class: 'jsky-Cost-problem', role: 'alert' });
    const stamp = h('p', { class: 'jsky-Cost-stamp' });
    problem.hidden = true;
    root.append(bar.element, h('div', { class: 'jsky-Cost-choices' }, grouping, when, csv),
      problem, table, details, stamp);
    return {
      budget: bar.show,
      /** @param {Bill} now */
      table: now => table.replaceChildren(...lines(now, _)),
      /** @param {Bill} now */
      details(now) {
        const open = [...details.children].map(one => /** @type {any} */ (one).open);
        details.replaceChildren(...explained(now, _));
        [...details.children].forEach((one, at) => {
          /** @type {any} */ (one).open = open[at] ?? false;
        });
      },
      /** @param {string} text */
      problem(text) {
        problem.hidden = !text;
        if (problem.textContent !== text) {
          problem.textContent = text;
        }
      },
      /** @param {Bill} now @param {boolean} counted */
      stamp(now, counted) {
        const said = [_('As of %1.', clockTime(now.at))];
        if (counted && now.rate.usd_h) {
          said.push(_('Counted on since then at %1.', rate(now.rate.usd_h, _)));
        }
        if (counted && now.rate.usd_h || hasEstimate(now)) {
          said.push(_('est.: it still runs, or is expected.'));
        }
        stamp.textContent = said.join(' ');
      }
    };
  }

  // -- life -------------------------------------------------------------------------------------

  const heard = () => {
    const next = model.get('state')?.bill;
    if (next && next.by === chosen.by) {
      show(next);
    } else {
      void refresh(); // another view of the same model may differ
    }
  };
  model?.on?.('change:state', heard);
  const isSeen = () => !document.hidden && root.isConnected && root.offsetParent !== null;
  let counted = false;
  const counting = setInterval(() => {
    if (isSeen() && (later() > 0 || counted)) {
      drawFacts();
      counted = later() > 0; // old figures are drawn once more without extrapolation
    }
  }, 1000);
  const asks = setInterval(() => isSeen() && !model?.on && void refresh(), ASK_MS);
  draw();
  if (!bill || Date.now() / 1000 - bill.at > 2) {
    void refresh();
  }
  return () => {
    clearInterval(counting);
    clearInterval(asks);
    model?.off?.('change:state', heard);
    root.remove();
  };
}

/** Whether a figure of the report is marked as an estimate. @param {Bill} bill */
function hasEstimate({ today, here, total, forecast, saved, lines }) {
  return [today, here, total, forecast, saved.spot, saved.placement].some(one => one?.estimated) ||
    lines.some(line => line.estimated && line.price !== 0);
}

/** The time of day with seconds. @param {number} at */
function clockTime(at) {
  const time = new Date(at * 1000).toLocaleTimeString();
  return new Date(at * 1000).toDateString() === new Date().toDateString()
    ? time : `${timeOf(at).replace(/ .*/, '')} ${time}`;
}

/**
 * @param {string} label
 * @param {string[][]} options
 * @param {string} value
 * @param {(value: string) => void} take
 */
function choice(label, options, value, take) {
  const id = uid('choice');
  const select = h('select', { id, class: 'jsky-Cost-select',
    on: { change: (/** @type {any} */ event) => take(event.target.value) } },
    ...options.map(([key, text]) => h('option', { value: key, text })));
  select.value = value;
  return h('span', { class: 'jsky-Cost-choice' }, h('label', { for: id, text: label }), select);
}

/**
 * Table of spending.
 * @param {Bill} bill
 * @param {import('./base.js').Translate} _
 */
function lines(bill, _) {
  if (!bill.lines.length) {
    return [h('p', { class: 'jsky-Cost-empty', text: _('Nothing has run in this time.') })];
  }
  const most = Math.max(...bill.lines.map(line => line.usd ?? 0));
  const names = { cell: _('cell'), notebook: _('notebook'), cluster: _('cluster'),
    cloud: _('cloud'), day: _('day') };
  const heads = [/** @type {any} */ (names)[bill.by] ?? bill.by, _('time'), _('price'), _('cost')];
  const rows = bill.lines.map(line => {
    const cost = money(line.usd, _);
    const share = most ? Math.round((100 * (line.usd ?? 0)) / most) : 0;
    return h('tr', null,
      h('th', { scope: 'row', title: line.what },
        h('span', { class: 'jsky-Cost-name', text: line.label }),
        h('span', { class: 'jsky-Cost-share', 'aria-hidden': 'true', style: { width: `${share}%` } }),
        line.origin
          ? h('span', { class: 'jsky-Cost-origin', text: line.origin, title: line.origin_detail || null })
          : null),
      h('td', { class: 'jsky-number', text: elapsed(line.seconds) }),
      h('td', { class: 'jsky-number', text: rate(line.price, _) }),
      h('td', { class: 'jsky-number' }, h('b', { text: cost }),
        line.estimated ? h('small', { text: ` ${line.price === 0 ? _('running') : _('running, est.')}` }) : null));
  });
  const total = h('tr', { class: 'jsky-Cost-total' },
    h('th', { scope: 'row', text: _('in all') }),
    h('td', { class: 'jsky-number', colspan: '3' }, h('b', { text: amountText(bill.total, _) })));
  const addsUp = ['cluster', 'cloud', 'day'].includes(bill.by);
  const table = h('table', { class: 'jsky-Cost-table tex2jax_ignore mathjax_ignore' },
    h('caption', { class: 'jsky-hidden', text: _('What was spent, by %1', heads[0]) }),
    h('thead', null, h('tr', null, ...heads.map((text, at) =>
      h('th', { scope: 'col', class: at ? 'jsky-number' : '', text })))),
    h('tbody', null, ...rows),
    addsUp ? h('tfoot', null, total) : null);
  const more = bill.more ? h('p', { class: 'jsky-Cost-empty',
    text: _('%1 more are in the CSV file.', bill.more) }) : null;
  return [table, ...(more ? [more] : [])];
}

/**
 * Bases of estimates, and the baseline of savings.
 * @param {Bill} bill
 * @param {import('./base.js').Translate} _
 */
function explained(bill, _) {
  const found = [];
  const list = (/** @type {any[]} */ items) => h('ul', null, ...items);
  const coming = bill.forecasts.filter(one => one.usd !== 0);
  if (coming.length) {
    const now = bill.at;
    found.push(h('details', null,
      h('summary', { text: _('Expected costs: assumptions') }),
      list(coming.map(one => h('li', null, h('b', { text: one.cluster }),
        ` ${one.usd === null ? _('unknown') : _('%1 est.', money(one.usd, _))}`,
        one.ends ? ` ${_('gone in %1', span(one.ends - now))}` : '',
        h('small', { text: one.basis }))))));
  }
  const compared = bill.savings.filter(one => !one.own);
  if (compared.length) {
    found.push(h('details', null,
      h('summary', { text: _('Savings: comparison') }),
      h('p', { text: _('Against %1. By spot: against the same machine on demand.',
        bill.default_choice) }),
      list(compared.map(one => h('li', null, h('b', { text: one.cluster }),
        ` ${_('paid %1, saved %2 by spot, %3 by place', money(one.paid, _), money(one.spot, _),
          money(one.placement, _))}${one.estimated ? ` ${_('est.')}` : ''}`,
        h('small', { text: one.against }))))));
  }
  const sources = new Map(bill.lines.map(line => [line.origin, line.origin_detail]));
  sources.delete('');
  if (sources.size) {
    found.push(h('details', null,
      h('summary', { text: _('Sources and assumptions') }),
      list([...sources].map(([origin, detail]) =>
        h('li', null, origin, detail ? h('small', { text: detail }) : null))),
      h('p', { text: _('The price in force is kept with every stretch of time. Costs are prices ' +
        'of these lists by the time that is billed, not invoices.') })));
  }
  return found;
}

/**
 * The budget: a bar, words, and a way to set it.
 * @param {import('./base.js').Translate} _
 * @param {(usd: number | null) => Promise<void>} set
 */
function budgetBar(_, set) {
  /** @type {Budget | null} */
  let known = null;
  let spentNow = 0;
  const id = uid('budget');
  const text = h('span', { id: `${id}-text`, class: 'jsky-Cost-budgetText' });
  const fill = h('span', { class: 'jsky-Cost-fill' });
  const bar = h('span', { class: 'jsky-Cost-bar', role: 'meter', 'aria-valuemin': '0',
    'aria-valuemax': '100', 'aria-labelledby': `${id}-text` }, fill);
  bar.hidden = true; // until there is a budget: before that it has no name
  const field = h('input', { id, class: 'jsky-Cost-field', inputmode: 'decimal', size: '8',
    autocomplete: 'off', 'aria-describedby': `${id}-said` });
  const said = h('p', { id: `${id}-said`, class: 'jsky-Cost-said', role: 'status' });
  const button = (/** @type {string} */ label, /** @type {() => void} */ act, main = false) =>
    h('button', { type: 'button', class: `jsky-Button${main ? ' jsky-mod-main' : ''}`, text: label,
      on: { click: (/** @type {any} */ event) => {
        if (event.currentTarget.getAttribute('aria-disabled') !== 'true') { act(); }
      } } });
  const change = button(_('Set budget…'), () => (form.hidden ? open() : close()));
  change.setAttribute('aria-expanded', 'false');
  const ok = button(_('Set'), () => void take(parseBudget(field.value)), true);
  const none = button(_('No daily budget'), () => void take(null, true));
  const form = h('form', { class: 'jsky-Cost-form', 'aria-label': _('Budget of a day'), on: {
    submit: (/** @type {Event} */ event) => { event.preventDefault(); ok.click(); },
    keydown: (/** @type {KeyboardEvent} */ event) => {
      if (event.key === 'Escape') { event.stopPropagation(); close(); change.focus(); }
    } } },
    h('label', { for: id, text: _('Daily limit in USD, all notebooks') }),
    h('span', { class: 'jsky-Cost-row' }, field, ok, none,
      button(_('Cancel'), () => { close(); change.focus(); })),
    said);
  form.hidden = true;
  let sure = /** @type {number | null} */ (null);

  function open() {
    field.value = known?.usd === null || known?.usd === undefined ? '' : String(known.usd);
    form.hidden = false;
    change.setAttribute('aria-expanded', 'true');
    said.textContent = _('At 80 % there is a warning. At 100 % cells are stopped and clusters ' +
      'ended that cost anything, in every notebook.');
    check();
    field.focus();
    field.select();
  }
  function close() {
    form.hidden = true;
    sure = null;
    change.setAttribute('aria-expanded', 'false');
  }
  function check() {
    sure = null;
    said.classList.remove('jsky-mod-warn');
    ok.textContent = _('Set');
    disable(ok, parseBudget(field.value) === null ? _('Give an amount in USD, such as 20.') : '');
    disable(none, known?.usd === null ? _('There is no daily budget now.') : '');
  }
  field.addEventListener('input', check);

  /** @param {number | null} usd @param {boolean} [unlimited] */
  async function take(usd, unlimited = false) {
    if (usd === null && !unlimited) {
      return;
    }
    const stops = usd !== null && usd <= spentNow && (known?.running.length ?? 0) > 0;
    if (stops && sure !== usd) {
      sure = usd;
      ok.textContent = _('Set it all the same');
      said.classList.add('jsky-mod-warn');
      said.textContent = _('Spent today already: %1. What runs on %2 will be stopped, and that ' +
        'will have ended %3 s later.', money(spentNow, _), known?.running.join(', '), GRACE_SECONDS);
      return;
    }
    try {
      await set(usd);
      close();
      change.focus();
    } catch (/** @type {any} */ error) {
      said.textContent = [error.message, error.hint].filter(Boolean).join(' – ');
    }
  }

  const element = h('div', { class: 'jsky-Cost-budget' },
    h('div', { class: 'jsky-Cost-row' }, text, change), bar, form);
  return {
    element,
    /** @param {Budget} budget @param {Amount} spent */
    show(budget, spent) {
      known = budget;
      spentNow = spent.usd;
      const over = budget.usd !== null && spent.usd >= budget.usd;
      const share = budget.usd ? Math.min(100, (100 * spent.usd) / budget.usd) : over ? 100 : 0;
      const mode = over ? 'over' : share >= 80 ? 'warn' : 'ok';
      const sentences = [budgetText(budget, spent, _)];
      if (over && budget.ends) {
        sentences.push(_('What costs is being stopped; its clusters end at %1.',
          clockTime(budget.ends)));
      } else if (over && budget.running.length) {
        sentences.push(_('What costs is being stopped, and its clusters end.'));
      } else if (over) {
        sentences.push(_('Nothing that costs starts until midnight, or until it is raised.'));
      } else if (mode === 'warn' && budget.usd !== null) {
        sentences.push(_('At 100 % cells are stopped and clusters ended.'));
      }
      const blind = [...new Set(spent.unknown)];
      if (budget.usd !== null && blind.length) {
        sentences.push(_('It cannot see %1: the price is not known.', blind.join(', ')));
      }
      const sign = budget.usd === null ? '' : { over: '■ ', warn: '▲ ', ok: '' }[mode];
      text.textContent = sign + sentences.join(' ');
      element.className = `jsky-Cost-budget jsky-mod-${budget.usd === null ? 'none' : mode}`;
      bar.hidden = budget.usd === null;
      fill.style.width = `${share}%`;
      bar.setAttribute('aria-valuenow', share.toFixed(0));
      bar.setAttribute('aria-valuetext', budgetText(budget, spent, _));
      change.textContent = budget.usd === null ? _('Set a budget…') : _('Change…');
    }
  };
}

export default widget(render);
