// @ts-check
/** Run of a graph of tasks: its graph with states, its time chart, what each task has printed. */
import { readable } from './ansi.js';
import { debounce, english, errorText, h, liveRegion, widget } from './base.js';
import { followUpdates } from './updates.js';

/**
 * Draws a run into an element and keeps it up to date until it has ended.
 *
 * @param {object} view
 * @param {HTMLElement} view.el
 * @param {import('./base.js').Ask} view.ask
 *   Answers `run` as `jupyter_sky.interfaces.widgets.run_view.describe_run`, `task` (`{task}`) as its
 *   `describe_task`, `act` (`{verb}`: cancel, pause, resume) as `run`. Graph, chart and table are HTML
 *   that Python has made, with `data-task` at the elements of a task.
 * @param {import('./base.js').Translate} [view._]
 * @returns {() => void} takes it away
 */
export function render({ el, ask, _ = english }) {
  /** @type {any} */
  let run = null;
  let shownTask = '';

  const press = (/** @type {string} */ text, /** @type {string} */ label, /** @type {string} */ verb) =>
    h('button', { class: 'jsky-Button', title: label, type: 'button', on: { click: () => updates.act(verb) } }, text);
  const headline = h('div', { class: 'jsky-Live-headline', role: 'status' });
  const pause = press(_('Pause'), _('Begin nothing new; what runs goes on'), 'pause');
  const resume = press(_('Resume'), _('Begin new tasks again'), 'resume');
  const cancel = press(_('Cancel'), _('Stop what runs and end its clusters; results are kept'), 'cancel');
  const note = h('div', { class: 'jsky-RunGraph-note' });
  const trouble = h('div', { class: 'jsky-Live-trouble', role: 'alert' });
  const graph = h('div', { class: 'jsky-RunGraph-picture' });
  const chart = h('div', { class: 'jsky-RunGraph-picture' });
  const tableBody = h('div', { class: 'jsky-Live-table' });
  const table = h('details', null, h('summary', { text: _('Tasks') }), tableBody);
  const detail = h('section', { class: 'jsky-Live-detail', 'aria-label': _('Task') });
  detail.hidden = true;
  const root = h(
    'div',
    { class: 'jsky-View jsky-Live jsky-RunGraph', 'data-lm-suppress-shortcuts': 'true' },
    h('div', { class: 'jsky-Live-bar' }, headline, h('span', { class: 'jsky-Live-actions' }, pause, resume, cancel)),
    note,
    trouble,
    graph,
    detail,
    chart,
    table
  );
  const live = liveRegion(root);
  el.append(root);

  // -- pictures ---------------------------------------------------------------------------

  /** Replaces a picture where it has changed; the focus and the scroll position stay. */
  function put(/** @type {HTMLElement} */ host, /** @type {string} */ html) {
    if (host.dataset.html === html) {
      return;
    }
    const focused = /** @type {HTMLElement | null} */ (document.activeElement);
    const task = host.contains(focused) ? focused?.dataset.task : undefined;
    const left = host.firstElementChild?.scrollLeft ?? 0;
    host.dataset.html = html;
    host.innerHTML = html;
    if (host === graph) {
      nameTasks(task);
    }
    if (host.firstElementChild) {
      host.firstElementChild.scrollLeft = left;
    }
  }

  /** Makes the tasks of the graph buttons; the one called `focused` gets the focus. */
  function nameTasks(/** @type {string | undefined} */ focused) {
    graph.querySelector('svg')?.setAttribute('role', 'group'); // a picture may hold no buttons
    for (const one of graph.querySelectorAll('[data-task]')) {
      const name = one.getAttribute('data-task') ?? '';
      one.setAttribute('role', 'button');
      one.setAttribute('tabindex', '0');
      one.setAttribute('aria-label', _('Show task %1', name));
      if (focused === name) {
        /** @type {HTMLElement} */ (one).focus();
      }
    }
  }

  function draw() {
    if (headline.textContent !== run.headline) {
      headline.textContent = run.headline;
    }
    put(graph, run.graph);
    put(chart, run.chart);
    put(tableBody, run.table);
    pause.hidden = run.over || run.paused;
    resume.hidden = run.over || !run.paused;
    cancel.hidden = run.over;
    note.textContent =
      run.over || run.carried_out
        ? run.paused && !run.over
          ? _('Paused: nothing new begins.')
          : ''
        : _('The process of this run has ended. To go on with it: %1', `%sky pipeline resume ${run.name}`);
  }

  // -- a task -----------------------------------------------------------------------------

  const showTask = debounce(async () => {
    const task = shownTask;
    if (!task || updates.stopped) {
      return;
    }
    try {
      const told = await ask('task', { task });
      if (task !== shownTask || updates.stopped) {
        return;
      }
      const facts = told.facts.map((/** @type {any} */ one) => h('li', null, h('b', { text: one.name }), ` ${one.words}`));
      const log = h('pre', { class: 'jsky-Live-log', tabindex: '0', 'aria-label': _('Log of %1', task), text: readable(told.log) });
      const close = h('button', { class: 'jsky-Button', type: 'button', on: { click: () => choose('') } }, _('Close'));
      const hasFocus = detail.contains(document.activeElement);
      const old = detail.querySelector('pre');
      const atEnd = !old || old.scrollTop + old.clientHeight >= old.scrollHeight - 4;
      const top = old?.scrollTop ?? 0;
      detail.replaceChildren(h('div', { class: 'jsky-Live-bar' }, h('ul', null, ...facts), close), told.log ? log : h('div', { text: _('It has printed nothing.') }));
      log.scrollTop = atEnd ? log.scrollHeight : top;
      if (hasFocus) {
        close.focus();
      }
    } catch (error) {
      trouble.textContent = `${errorText(error)}.`;
    }
  }, 10);

  function choose(/** @type {string} */ task) {
    shownTask = task === shownTask ? '' : task;
    detail.hidden = !shownTask;
    detail.replaceChildren();
    for (const one of root.querySelectorAll('[data-task]')) {
      one.classList.toggle('jsky-mod-chosen', one.getAttribute('data-task') === shownTask);
    }
    showTask();
  }

  const chosen = (/** @type {Event} */ event) => {
    const target = /** @type {Element} */ (event.target).closest('[data-task]');
    return target && root.contains(target) ? (target.getAttribute('data-task') ?? '') : '';
  };
  root.addEventListener('click', (/** @type {MouseEvent} */ event) => {
    const task = chosen(event);
    if (task) {
      choose(task);
    }
  });
  root.addEventListener('keydown', (/** @type {KeyboardEvent} */ event) => {
    const task = chosen(event);
    if (task && (event.key === 'Enter' || event.key === ' ')) {
      event.preventDefault();
      event.stopPropagation();
      choose(task);
    } else if (event.key === 'Escape' && shownTask) {
      event.stopPropagation();
      choose('');
    }
  });

  // -- asking -----------------------------------------------------------------------------

  const updates = followUpdates({
    el,
    ask,
    question: 'run',
    show: (answer) => {
      run = answer;
      draw();
    },
    refresh: showTask,
    trouble,
    live,
    _
  });
  return () => {
    updates.dispose();
    showTask.cancel();
    root.remove();
  };
}

export default widget(render);
