/** Bags of jobs as the server tells them, and what their list says. */

import type { Api } from './api';
import type { Translate } from './format';
import type { IListKind } from './pipelineList';

/** Answers of the server to requests of the view of a bag. */
export function askServer(api: Pick<Api, 'get' | 'post'>, name: string): (kind: string, payload?: any) => Promise<any> {
  const path = `bags/${encodeURIComponent(name)}`;
  return async (kind, payload = {}) => {
    if (kind === 'job') return api.get(`${path}/log`, { job: payload.job });
    if (kind === 'act') return api.post(`${path}/act`, { verb: payload.verb });
    return api.get(path);
  };
}

export function bagKind(api: Pick<Api, 'bags'>, _: Translate): IListKind {
  return {
    label: _('Jobs'),
    title: _('Click to see its jobs'),
    none: _('There is no bag of jobs yet. This runs a command for each value:'),
    example: '%sky bag submit "./simulate {seed}" --seed 0:20',
    read: () => api.bags()
  };
}
