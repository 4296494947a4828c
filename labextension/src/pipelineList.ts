/** Runs of graphs as the server tells them, and the list of them. */

import { h } from '../../jupyter_sky/interfaces/widgets/static/base.js';
import type { Api, IListedRun } from './api';
import { money, Translate, when } from './format';

const PERIOD = 3000;

/** Answers of the server to requests of the view of a run. */
export function askServer(api: Api, name: string): (kind: string, payload?: any) => Promise<any> {
  const path = `pipelines/${encodeURIComponent(name)}`;
  return async (kind, payload = {}) => {
    if (kind === 'task') return api.get(`${path}/task`, { task: payload.task });
    if (kind === 'act') return api.post(`${path}/act`, { verb: payload.verb });
    return api.get(path);
  };
}

/** State of a run in words: the numbers of its tasks by state. */
export function states(run: IListedRun, _: Translate): string {
  const counts = Object.entries(run.states).map(([state, count]) => `${count} ${_(state)}`);
  const stands = run.over || run.carried_out ? [] : [_('its process has ended')];
  return [...counts, ...stands].join(', ');
}

/** What a list of runs is of, in words, and where it is read. */
export interface IListKind {
  label: string;
  title: string; // what a click on one does
  none: string; // said above `example` while there is none
  example: string;
  read: () => Promise<{ runs: IListedRun[]; more: number }>;
}

export function pipelineKind(api: Pick<Api, 'pipelines'>, _: Translate): IListKind {
  return {
    label: _('Pipelines'),
    title: _('Click to see its graph'),
    none: _('No graph has been run yet. This runs the cells of a notebook as one:'),
    example: '%sky pipeline run train.ipynb',
    read: () => api.pipelines()
  };
}

/** Shows a list of runs, renewed while it is open. */
export function mountList(host: HTMLElement, _: Translate, kind: IListKind, open: (name: string) => void): () => void {
  const list: HTMLElement = h('ul', { class: 'jsky-Panel-list', 'aria-label': kind.label });
  const note = h('p', { class: 'jsky-Panel-quiet' }, _('reading…'));
  const trouble = h('p', { role: 'alert' });
  host.append(list, note, trouble);
  let timer: ReturnType<typeof setTimeout>;
  let over = false;
  let shown = '';
  const row = (run: IListedRun) => {
    const facts = [states(run, _), when(run.made, Date.now() / 1000)].join(' · ');
    const name = h('b', { text: run.name });
    const line = h('button', { type: 'button', class: 'jsky-Row-line jsky-Run-cell' }, name);
    const title = [run.name, facts, kind.title].join('\n');
    return h(
      'li',
      { class: 'jsky-Row jsky-Run', title, 'data-jsky-pipeline': run.name, on: { click: () => open(run.name) } },
      line,
      h('span', { class: 'jsky-Row-figure', text: money(run.usd, _) }),
      h('span', { class: 'jsky-Row-line jsky-Row-facts jsky-Panel-quiet', text: facts })
    );
  };
  const turn = async () => {
    try {
      const { runs, more } = await kind.read();
      if (over) return;
      trouble.textContent = '';
      const now = JSON.stringify(runs);
      if (now !== shown) {
        const focused = document.activeElement?.closest('[data-jsky-pipeline]')?.getAttribute('data-jsky-pipeline');
        list.replaceChildren(...runs.map(row));
        if (focused) list.querySelector<HTMLElement>(`[data-jsky-pipeline="${CSS.escape(focused)}"] button`)?.focus();
        shown = now;
      }
      note.replaceChildren(
        ...(runs.length ? (more ? [_('and %1 older ones', more)] : []) : [kind.none, h('pre', { text: kind.example })])
      );
    } catch (error: any) {
      if (over) return;
      trouble.textContent = [error?.message, error?.hint].filter(Boolean).join(' ');
    }
    timer = setTimeout(turn, PERIOD);
  };
  void turn();
  return () => {
    over = true;
    clearTimeout(timer);
    host.replaceChildren();
  };
}
