// @ts-check
/** Log of a run: searched, followed, several nodes side by side. */
import { debounce, durations, english, h, liveRegion, widget } from './base.js';
import { HITS, Lines, find } from './log_lines.js';
import { Pane } from './log_pane.js';

/**
 * Source of a log: a run (`run_id`), or the launch of a cluster.
 * @typedef {{run_id?: string, cluster?: string, title?: string}} Source
 */

const PERIOD = 1000;
const SLOWEST = 15_000;

/**
 * Draws a log into an element and keeps it up to date until the run has ended.
 *
 * @param {object} view
 * @param {HTMLElement} view.el
 * @param {import('./base.js').Ask} view.ask
 *   Answers `log` (the source, and `since`) with `{lines, next, run}`; see `log_lines.js` for a line.
 *   `run.ended` is null while more may come.
 * @param {import('./base.js').Translate} [view._]
 * @param {Source} [view.source]
 * @param {any} [view.model] anywidget's model, whose state is the source where none is given.
 * @returns {() => void} takes it away
 */
export function render({ el, ask, _ = english, source, model }) {
  const about = source ?? model?.get('state') ?? {};
  const log = new Lines();
  const look = { times: false, ranks: false, query: '' };
  /** @type {Map<number | 'all', Pane>} */
  const panes = new Map();
  /** @type {import('./log_lines.js').Hit[]} */
  let hits = [];
  let current = -1;
  let following = true;
  let apart = false;
  let next = 0;
  let wait = PERIOD;
  /** @type {any} */
  let run = null;
  /** @type {any} */
  let timer;
  let over = false;
  let isComplete = false;

  // -- the parts --------------------------------------------------------------------------

  const press = (/** @type {string} */ text, /** @type {string} */ label, /** @type {any} */ click) =>
    h('button', { class: 'jsky-Button', title: label, 'aria-label': label, on: { click } }, text);
  const toggle = (/** @type {string} */ text, /** @type {string} */ label, /** @type {any} */ click) =>
    h('button', { class: 'jsky-Button', title: label, 'aria-pressed': 'false', on: { click } }, text);
  const input = h('input', {
    class: 'jsky-Log-search',
    type: 'search',
    placeholder: _('Search'),
    'aria-label': _('Search in the log'),
    title: _('Enter: next, Shift+Enter: previous, Escape: end of the search')
  });
  const count = h('span', { class: 'jsky-Log-count', role: 'status' });
  const previous = press('↑', _('Previous match'), () => go(-1));
  const after = press('↓', _('Next match'), () => go(1));
  const follow = toggle(_('Follow'), _('Scroll to new lines as they come'), () => {
    following ? setFollowing(false) : toEnd();
  });
  const split = toggle(_('Side by side'), _('One column for each node'), () => {
    apart = !apart;
    arrange();
  });
  const times = toggle(_('Times'), _('When each line was printed'), () => {
    look.times = !look.times;
    times.setAttribute('aria-pressed', String(look.times));
    panes.forEach((pane) => pane.refresh());
  });
  const copy = press(_('Copy'), _('Copy the whole log'), async () => {
    try {
      await navigator.clipboard.writeText(log.text());
      live.say(_('The log was copied.'));
      flash(copy, _('Copied'));
    } catch {
      live.say(_('The browser does not allow copying here.'));
      flash(copy, _('Not allowed'));
    }
  });
  const download = press(_('Download'), _('Save the whole log as a text file'), () => save());
  const state = h('span', { class: 'jsky-Log-state' });
  const paused = h('span', { class: 'jsky-Log-paused' });
  const trouble = h('div', { class: 'jsky-Log-trouble', role: 'alert' });
  const body = h('div', { class: 'jsky-Log-panes' });
  const bar = h(
    'div',
    { class: 'jsky-Log-bar', 'data-lm-suppress-shortcuts': 'true' },
    h('span', { class: 'jsky-Log-group' }, input, previous, after, count),
    h('span', { class: 'jsky-Log-group' }, follow, split, times, copy, download)
  );
  const root = h('div', { class: 'jsky-View jsky-Log' }, bar, body, h('div', { class: 'jsky-Log-foot' }, state, paused), trouble);
  const live = liveRegion(root);
  el.append(root);

  // -- panes ------------------------------------------------------------------------------

  function paneOf(/** @type {number | 'all'} */ key) {
    let pane = panes.get(key);
    if (!pane) {
      const label = key === 'all' ? _('Log') : _('Log of node %1', key);
      pane = new Pane({ label, look, following: () => following, scrolled: setFollowing, _ });
      panes.set(key, pane);
      show();
    }
    return pane;
  }

  function show() {
    const keys = [...panes.keys()].sort((one, other) => Number(one) - Number(other));
    body.replaceChildren(
      ...keys.map((key) => {
        const title = key === 'all' ? null : h('div', { class: 'jsky-Log-title', text: _('node %1', key) });
        return h('div', { class: 'jsky-Log-column' }, title, panes.get(key)?.el);
      })
    );
  }

  /** Puts the lines into one list, or into one for each node. */
  function arrange() {
    split.hidden = log.ranks.size < 2;
    split.setAttribute('aria-pressed', String(apart));
    look.ranks = log.ranks.size > 1 && !apart;
    const focused = body.contains(document.activeElement);
    panes.clear();
    if (apart) {
      for (const rank of [...log.ranks].sort((one, other) => one - other)) {
        paneOf(rank).add(log.all.filter((line) => line.rank === rank));
      }
    } else {
      paneOf('all').add(log.all);
    }
    if (focused) {
      panes.values().next().value?.el.focus();
    }
    if (current >= 0) {
      mark();
    }
  }

  /** @param {import('./log_lines.js').Printed[]} printed */
  function take(printed) {
    const nodes = log.ranks.size;
    const before = log.dropped;
    const { added, changed } = log.add(printed);
    if (log.ranks.size !== nodes) {
      arrange();
    } else if (apart) {
      panes.forEach((pane, rank) => pane.add(added.filter((line) => line.rank === rank)));
    } else {
      paneOf('all').add(added);
    }
    const gone = log.dropped - before;
    if (gone > 0) {
      apart ? arrange() : paneOf('all').drop(gone);
      hits = hits.filter((hit) => hit.line.n >= log.dropped);
    }
    changed.forEach((line) => (panes.get(apart ? line.rank : 'all'))?.redraw(line));
    if (look.query && hits.length < HITS) {
      hits.push(...find(added, look.query, HITS - hits.length));
      tell();
    }
  }

  // -- search -----------------------------------------------------------------------------

  const search = debounce(() => {
    look.query = input.value;
    const seen = hits[current]?.line.n ?? 0;
    hits = find(log.all, look.query);
    panes.forEach((pane) => pane.refresh());
    current = hits.length ? Math.max(0, hits.findIndex((hit) => hit.line.n >= seen)) : -1;
    if (current >= 0) {
      setFollowing(false, true);
      mark();
    }
    tell();
  }, 150);

  function go(/** @type {number} */ step) {
    if (hits.length) {
      setFollowing(false, true);
      current = (current + step + hits.length) % hits.length;
      mark();
      tell();
    }
  }

  function mark() {
    const { line, start } = hits[current];
    panes.get(apart ? line.rank : 'all')?.reveal(line, start);
  }

  function tell() {
    const many = `${hits.length.toLocaleString('en-US')}${hits.length >= HITS ? '+' : ''}`;
    if (!look.query) {
      count.textContent = '';
    } else {
      count.textContent = hits.length ? _('%1 of %2', current + 1, many) : _('nothing found');
    }
    for (const button of [previous, after]) {
      button.disabled = hits.length === 0;
    }
  }

  // -- following --------------------------------------------------------------------------

  function setFollowing(/** @type {boolean} */ follows, quiet = false) {
    if (follows === following) {
      return;
    }
    following = follows;
    draw();
    paused.textContent =
      follows || quiet || over || isComplete ? '' : _('New lines are not scrolled to, because you have scrolled up.');
    if (paused.textContent) {
      live.say(paused.textContent);
    }
    panes.forEach((pane) => pane.schedule());
  }

  function toEnd() {
    setFollowing(true);
    panes.forEach((pane) => pane.toEnd());
  }

  // -- the ends ---------------------------------------------------------------------------

  function draw() {
    follow.setAttribute('aria-pressed', String(following));
    const lines = log.count === 1 ? _('1 line') : _('%1 lines', log.count.toLocaleString('en-US'));
    const parts = [stageOf(run, _), lines];
    if (log.ranks.size > 1) {
      parts.push(_('%1 nodes', log.ranks.size));
    }
    state.textContent = parts.filter(Boolean).join(' · ');
  }

  function save() {
    const name = (about.title ?? _('log %1', about.run_id ?? about.cluster ?? '')).trim();
    const url = URL.createObjectURL(new Blob([log.text()], { type: 'text/plain' }));
    h('a', { href: url, download: `${name.replace(/[^\w.-]+/g, '-')}.txt` }).click();
    setTimeout(() => URL.revokeObjectURL(url), 10_000);
  }

  async function turn() {
    let got = 0;
    try {
      const answer = await ask('log', { ...about, since: next });
      if (over) {
        return;
      }
      got = answer.lines.length;
      [next, run, wait] = [answer.next, answer.run, PERIOD];
      trouble.textContent = '';
      take(answer.lines);
      draw();
    } catch (error) {
      wait = Math.min(SLOWEST, wait * 2);
      trouble.textContent = [_('The log cannot be read now: %1', said(error)), _('It is tried again.')].join(' ');
    }
    const ended = run && run.ended !== null && run.ended !== undefined;
    if (over) {
      return;
    }
    if (!ended || got || trouble.textContent) {
      timer = setTimeout(turn, got ? 20 : wait);
    } else {
      isComplete = true;
      paused.textContent = '';
      live.say(_('The log is complete.'));
    }
  }

  const keydown = (/** @type {KeyboardEvent} */ event) => {
    const finds = event.key === '/' || (event.key.toLowerCase() === 'f' && (event.ctrlKey || event.metaKey));
    if (event.target === input) {
      if (event.key === 'Enter') {
        event.preventDefault();
        go(event.shiftKey ? -1 : 1);
      } else if (event.key === 'Escape' && input.value) {
        event.stopPropagation();
        input.value = '';
        search();
      }
    } else if (finds) {
      event.preventDefault();
      event.stopPropagation();
      input.focus();
      input.select();
    }
  };
  input.addEventListener('input', search);
  root.addEventListener('keydown', keydown);
  arrange();
  tell();
  draw();
  turn();
  return () => {
    over = true;
    clearTimeout(timer);
    search.cancel();
    root.remove();
  };
}

/** @param {any} run @param {import('./base.js').Translate} _ */
function stageOf(run, _) {
  if (!run) {
    return _('reading…');
  }
  const seconds = run.started != null && run.ended ? run.ended - run.started : null;
  const lasted = seconds === null ? '' : durations(seconds, run.waited, _);
  const stage = run.stage ?? run.status;
  return [stage && _(stage), lasted].filter(Boolean).join(' ');
}

/** @param {any} error */
const said = (error) => [error?.message ?? String(error), error?.hint].filter(Boolean).join('; ') + '.';

/** Shows another word on a button for a moment. @param {any} button @param {string} text */
function flash(button, text) {
  const before = button.textContent;
  button.textContent = text;
  setTimeout(() => (button.textContent = before), 1500);
}

export default widget(render);
