/** Answers of the server, as it writes them; tests change what they are about. */

import { ServerConnection } from '@jupyterlab/services';

import { Api, ICluster, IRun, IState } from '../src/api';

export const AT = 1_800_000_000;

export function cluster(change: Partial<ICluster> = {}): ICluster {
  return {
    name: 'train',
    state: 'up',
    where: 'aws us-east-1 p3.2xlarge spot',
    cloud: 'aws',
    region: 'us-east-1',
    instance_type: 'p3.2xlarge',
    spot: true,
    nodes: 1,
    price: 1.8,
    price_source: 'aws-price-list',
    price_date: '2026-10-01',
    price_origin: 'AWS, 1 Oct 2026',
    price_detail: 'AWS price list, Oct 2026',
    notebook: '/home/ada/work/a.ipynb',
    created: AT - 3600,
    idle: 1200,
    idle_left: 700,
    users: [],
    lease_end: null,
    running: 0,
    usd: 2,
    resources: '--gpus V100:1 --spot',
    note: null,
    stopped: null,
    orphan: false,
    ...change
  };
}

export function run(change: Partial<IRun> = {}): IRun {
  return {
    run_id: 'r1',
    notebook: '/home/ada/work/a.ipynb',
    cell: 7,
    cell_id: 'abc',
    name: null,
    cluster: 'train',
    code: '%%sky -c train\n# fit\nmodel.fit(X, y)',
    stage: 'running',
    status: 'running',
    started: AT - 100,
    ended: null,
    price: 1.8,
    usd: 0.05,
    nodes: 1,
    stoppable: true,
    ...change
  };
}

export function state(change: Partial<IState> = {}): IState {
  return {
    version: '0.1.0',
    at: AT,
    cursor: '1',
    notices: [],
    rate: { usd_h: 1.8, unknown: 0 },
    today: { usd: 2.5, unknown: 0, budget: null, over: false },
    clusters: [cluster()],
    runs: [run()],
    ...change
  };
}

type Answer = [status: number, body: unknown, headers?: Record<string, string>];

/** A client whose server answers as told, by path or in turn; what it was asked is kept. */
export function server(answer: (path: string, request: Request) => Answer) {
  const asked: Request[] = [];
  const fetch = async (request: Request) => {
    asked.push(request);
    const path = new URL(request.url).pathname.split('/jupyter-sky/')[1];
    const [status, body, headers] = answer(path, request);
    if (status === 0) throw new TypeError('Failed to fetch');
    const text = typeof body === 'string' ? body : JSON.stringify(body);
    return new Response(status === 304 ? null : text, { status, headers });
  };
  const settings = ServerConnection.makeSettings({
    baseUrl: 'http://lab.test/hub/user/ada/',
    fetch: fetch as typeof window.fetch
  });
  return { api: new Api(settings), asked };
}
