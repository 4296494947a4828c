// @ts-check
/** Bag of jobs: progress by state, expected end and cost, failures, what each job has printed. */
import { readable } from './ansi.js';
import { english, errorText, h, liveRegion, widget } from './base.js';
import { followUpdates } from './updates.js';

const STATES = ['succeeded', 'running', 'failed', 'queued', 'skipped', 'cancelled'];

/**
 * Draws a bag into an element and keeps it up to date until it has ended.
 *
 * @param {object} view
 * @param {HTMLElement} view.el
 * @param {import('./base.js').Ask} view.ask
 *   Answers `bag` as `jupyter_sky.interfaces.widgets.bag_view.describe_bag`, `job` (`{job}`) as its
 *   `describe_job`, `act` (`{verb}`: cancel, resume, retry) as `bag`. The table is HTML that Python
 *   has made, with the number of a job in the first cell of each row.
 * @param {import('./base.js').Translate} [view._]
 * @returns {() => void} takes it away
 */
export function render({ el, ask, _ = english }) {
  /** @type {any} */
  let bag = null;
  let shownJob = '';

  const press = (/** @type {string} */ text, /** @type {string} */ label, /** @type {string} */ verb) =>
    h('button', { class: 'jsky-Button', title: label, type: 'button', on: { click: () => updates.act(verb) } }, text);
  const headline = h('div', { class: 'jsky-Live-headline', role: 'status' });
  const cancel = press(_('Cancel'), _('Stop what runs and end its machines; results are kept'), 'cancel');
  const resume = press(_('Resume'), _('Go on with the jobs that have not run'), 'resume');
  const retry = press(_('Retry Failed'), _('Run the jobs that have failed again'), 'retry');
  const bar = h('div', { class: 'jsky-Bag-progress', role: 'img' });
  const trouble = h('div', { class: 'jsky-Live-trouble', role: 'alert' });
  const failures = h('ul', { class: 'jsky-Bag-failures', 'aria-label': _('Reasons of failures') });
  const table = h('div', { class: 'jsky-Live-table' });
  const detail = h('section', { class: 'jsky-Live-detail', 'aria-label': _('Job') });
  detail.hidden = true;
  const events = h('ul', { class: 'jsky-Bag-events' });
  const machines = h('details', null, h('summary', { text: _('Machines') }), events);
  const root = h(
    'div',
    { class: 'jsky-View jsky-Live jsky-Bag', 'data-lm-suppress-shortcuts': 'true' },
    h('div', { class: 'jsky-Live-bar' }, headline, h('span', { class: 'jsky-Live-actions' }, retry, resume, cancel)),
    bar,
    trouble,
    failures,
    table,
    detail,
    machines
  );
  const live = liveRegion(root);
  el.append(root);

  function draw() {
    if (headline.textContent !== bag.headline) {
      headline.textContent = bag.headline;
    }
    const known = STATES.filter((state) => bag.states[state]);
    bar.setAttribute('aria-label', known.map((state) => `${bag.states[state]} ${_(state)}`).join(', '));
    bar.replaceChildren(
      ...known.map((state) => {
        const part = h('span', { class: `jsky-Bag-part jsky-mod-${state}`, title: `${bag.states[state]} ${_(state)}` });
        part.style.flexGrow = String(bag.states[state]);
        return part;
      })
    );
    failures.replaceChildren(
      ...bag.failures.slice(0, 5).map((/** @type {any} */ one) => h('li', { text: `${one.count} × ${one.reason}` }))
    );
    if (table.dataset.html !== bag.table) {
      const focused = /** @type {HTMLElement | null} */ (document.activeElement);
      const job = table.contains(focused) ? focused?.dataset.job : undefined;
      table.dataset.html = bag.table;
      table.innerHTML = bag.table;
      nameJobs(job);
    }
    events.replaceChildren(...bag.events.map((/** @type {any} */ one) => h('li', { text: one.text })));
    machines.hidden = !bag.events.length;
    cancel.hidden = bag.over;
    resume.hidden = bag.carried_out || !bag.states.queued;
    retry.hidden = !bag.states.failed;
  }

  /** Makes the numbers of the jobs buttons; that of `focused` gets the focus. */
  function nameJobs(/** @type {string | undefined} */ focused) {
    for (const row of table.querySelectorAll('tbody tr')) {
      const cell = row.firstElementChild;
      const job = cell?.textContent?.trim() ?? '';
      if (!cell || !/^\d+$/.test(job)) {
        continue;
      }
      const label = _('Show what job %1 has printed', job);
      const button = h('button', { class: 'jsky-Button', type: 'button', 'data-job': job, 'aria-label': label }, job);
      button.addEventListener('click', () => choose(job));
      cell.replaceChildren(button);
      if (focused === job) {
        button.focus();
      }
    }
  }

  async function showJob() {
    const job = shownJob;
    if (!job || updates.stopped) {
      return;
    }
    try {
      const told = await ask('job', { job: Number(job) });
      if (job !== shownJob || updates.stopped) {
        return;
      }
      const log = h('pre', { class: 'jsky-Live-log', tabindex: '0', 'aria-label': _('Log of %1', job), text: readable(told.log) });
      const close = h('button', { class: 'jsky-Button', type: 'button', on: { click: () => choose('') } }, _('Close'));
      const hasFocus = detail.contains(document.activeElement);
      const title = h('b', { text: _('Job %1', job) });
      detail.replaceChildren(
        h('div', { class: 'jsky-Live-bar' }, title, close),
        told.log ? log : h('div', { text: _('It has printed nothing.') })
      );
      if (hasFocus) {
        close.focus();
      }
    } catch (error) {
      trouble.textContent = `${errorText(error)}.`;
    }
  }

  function choose(/** @type {string} */ job) {
    shownJob = job === shownJob ? '' : job;
    detail.hidden = !shownJob;
    detail.replaceChildren();
    void showJob();
  }

  const updates = followUpdates({
    el,
    ask,
    question: 'bag',
    show: (answer) => {
      bag = answer;
      draw();
    },
    refresh: () => void showJob(),
    trouble,
    live,
    _
  });
  return () => {
    updates.dispose();
    root.remove();
  };
}

export default widget(render);
