/** The Cost tab, the same view as `sky.cost()` in a notebook, and warnings of the budget. */

import type { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { Notification } from '@jupyterlab/apputils';
import { URLExt } from '@jupyterlab/coreutils';
import { ServerConnection } from '@jupyterlab/services';

import { render } from '../../jupyter_sky/interfaces/widgets/static/cost.js';
import { budgetAlert } from './budgetAlert';
import { ISky } from './tokens';
import { addView, type Show } from './views';

export const COST = 'cost';

type Ask = (kind: string, payload?: any) => Promise<any>;

/** Answers of the server to requests of the view. */
export function askServer({ api }: Pick<ISky, 'api'>, notebook = ''): Ask {
  return async (kind, payload = {}) => {
    const { by, since } = payload;
    if (kind === 'budget') await api.put('budget', { usd: payload.usd });
    if (kind === 'csv') return csv(api.settings, { by, since, notebook });
    return api.get('cost', { by, since, notebook });
  };
}

/** A file is no JSON: it is fetched past the client. */
async function csv(settings: ServerConnection.ISettings, query: Record<string, string>) {
  const tail = URLExt.objectToQueryString(query);
  const url = URLExt.join(settings.baseUrl, 'jupyter-sky', 'cost.csv') + tail;
  const response = await ServerConnection.makeRequest(url, { cache: 'no-store' }, settings);
  if (!response.ok) throw new ServerConnection.ResponseError(response);
  const disposition = response.headers.get('Content-Disposition') ?? '';
  return { text: await response.text(), name: /filename="([^"]+)"/.exec(disposition)?.[1] ?? 'cost.csv' };
}

/** Shows `sky.cost()` and `sky.meter()` where a notebook has them in an output. */
const shownCost: Show = (state, { host, sky }) => {
  const ask = askServer(sky, state.bill?.notebook ?? '');
  return render({ el: host, ask, _: sky._, model: { get: () => state } });
};

/** Warns once when a budget runs short and once when it is spent; dismisses outdated warnings. */
function warn(sky: ISky): void {
  const { poller, _ } = sky;
  let lastKey = '';
  let shown = '';
  poller.changed.connect(() => {
    const today = poller.state?.today;
    if (!today) return;
    const found = budgetAlert(today, _);
    const day = new Date(poller.now() * 1000).toDateString();
    const key = found ? `${found.key} ${today.budget} ${day}` : '';
    if (key === lastKey) return;
    lastKey = key;
    if (shown) Notification.dismiss(shown);
    shown = '';
    if (found) {
      shown = Notification.emit(found.text, found.key === 'over' ? 'error' : 'warning', {
        autoClose: found.key === 'over' ? false : 20_000,
        actions: [{ label: _('Show costs'), callback: () => sky.open(COST) }]
      });
    }
  });
}

export const cost: JupyterFrontEndPlugin<void> = {
  id: 'jupyter-sky:cost',
  description: 'Costs of clusters, and the budget of a day.',
  autoStart: true,
  requires: [ISky],
  activate: (_app: JupyterFrontEnd, sky: ISky): void => {
    const { _ } = sky;
    let chosen = { by: 'notebook', since: 'today' };
    sky.addTab({
      id: COST,
      label: _('Cost'),
      rank: 40,
      mount: host =>
        render({
          el: host,
          ask: askServer(sky),
          _,
          ...chosen,
          chose: now => (chosen = now) // for when the tab is opened again
        })
    });
    addView('cost', shownCost);
    warn(sky);
  }
};
