/** Logs of runs and of launches, as the server tells them. */

import type { Api, IRun } from './api';
import type { Translate } from './format';

/** Answers of the server to requests of a log view. */
export function askServer(api: Api): (kind: string, payload?: any) => Promise<any> {
  return async (kind, { run_id, cluster, since } = {}) => {
    if (kind !== 'log') throw new Error(`${kind}: not known`);
    if (run_id) return api.log(run_id, since);
    const { text } = await api.launchLog(cluster);
    const rest = text.slice(since);
    const known = (await api.state(true))?.clusters.find(one => one.name === cluster);
    return {
      lines: rest ? [{ rank: 0, stream: 'stdout', text: rest, at: null }] : [],
      next: since + rest.length,
      run: { stage: known?.state ?? 'ended', ended: known?.state === 'starting' ? null : 0 }
    };
  };
}

/** How a run is called: by its name, or its cell. */
export function label(run: Pick<IRun, 'name' | 'cell' | 'notebook'>, _: Translate): string {
  const notebook = run.notebook.split('#')[0].split('/').pop() ?? '';
  return _('Log of %1', run.name ?? _('cell %1 of %2', run.cell, notebook));
}
