/** A typed client of jupyter_sky's server extension: REST below `jupyter-sky/`. */

import { URLExt } from '@jupyterlab/coreutils';
import { ServerConnection } from '@jupyterlab/services';

import { plain, Translate } from './format';

/** Cost of a cluster whose machines are off and whose disks are kept. */
export interface IStopped {
  since: number | null;
  usd_h: number;
  usd_month: number;
  disk_gib: number;
  under_way: string; // how far its stop has come; empty once its machines are off
}

/** Amounts are USD or null, which means unknown; times are unix seconds. */
export interface ICluster {
  name: string;
  state: 'starting' | 'up' | 'stopped' | 'ending' | 'down' | 'lost';
  where: string;
  cloud: string;
  region: string;
  instance_type: string;
  spot: boolean;
  nodes: number;
  price: number | null;
  price_source: string;
  price_date: string;
  price_origin: string; // source and date in words, and all sources for a tooltip
  price_detail: string;
  notebook: string;
  created: number;
  idle: number;
  idle_left: number | null;
  users: string[]; // calls and logins that keep it up beside cells, as its controller last reported
  lease_end: number | null;
  running: number;
  usd: number | null;
  resources: string;
  note: string | null;
  stopped: IStopped | null;
  orphan: boolean;
}

export interface IRun {
  run_id: string;
  notebook: string;
  cell: number;
  cell_id: string | null;
  name: string | null;
  cluster: string | null;
  code: string;
  stage: string | null;
  status: string;
  /** When it was sent to its cluster; before that, when its cell began. */
  started: number;
  ended: number | null;
  /** Seconds from the begin of its cell until it was sent. */
  waited?: number;
  price: number | null;
  usd: number | null;
  nodes: number | null;
  stoppable: boolean;
  /** Whether the kernel that has started it is gone, and no other has taken note of its end. */
  unwatched?: boolean;
  /** Why it goes on although it was stopped, and what is lost if it is stopped again. */
  warning?: string;
}

export interface IState {
  version: string;
  at: number;
  cursor: string | number;
  notices: string[];
  rate: { usd_h: number | null; unknown: number };
  today: { usd: number | null; unknown: number; budget: number | null; over: boolean };
  clusters: ICluster[];
  runs: IRun[];
}

export interface IGpu {
  name: string;
  use: (number | null)[];
  memory: (number | null)[];
  memory_total: number | null;
}

export interface INode {
  rank: number;
  host: string;
  cpu: (number | null)[];
  memory: (number | null)[];
  memory_total: number | null;
  gpus: IGpu[];
}

export interface IMetrics {
  at: number;
  period: number;
  idle_left: number | null;
  nodes: INode[];
}

/** Entries of a folder of a cluster; sizes are bytes, times unix seconds. */
export interface IFiles {
  path: string;
  entries: { name: string; kind: 'folder' | 'file'; size: number; modified: number }[];
  more: number; // entries that are not listed
}

export interface IOffer {
  cloud: string;
  region: string;
  instance_type: string;
  spot: boolean;
  price: number | null;
  cpus: number | null;
  memory: number | null;
  gpus: string;
  source: string;
  date: string;
  note: string | null;
  line: string; // the options of %%sky that ask for it
  launch: 'now' | 'account' | 'never'; // whether its cloud lacks an account, or is not supported
  obstacle: string; // why it cannot be launched from here; empty when it can
  place: string; // region, and cloud where the origin does not name it
  origin: string; // publisher and date of the price
  origin_detail: string;
}

export interface IOffers {
  offers: IOffer[];
  total: number;
  at: number;
  popular: boolean; // nothing was asked for: the cheapest of each popular GPU
  notes: string[];
}

/** Page of the help in a list of results. */
export interface IHelpEntry {
  kind: 'guide' | 'verb' | 'name';
  name: string;
  title: string;
  summary: string;
}

/** The same with all of its text. */
export interface IHelpPage extends IHelpEntry {
  text: string;
}

/** Run of a graph of tasks, such as that of a notebook, or a bag of jobs. */
export interface IListedRun {
  name: string;
  made: number;
  states: Record<string, number>; // number of tasks or jobs in each
  usd: number;
  over: boolean;
  carried_out: boolean; // by a process that lives
}

/** Task of a notebook's newest run as a graph. */
export interface ICellState {
  id: string; // of its cell
  source: string; // of the cell as it runs
  task: string;
  phase: string;
  words: string;
}

export interface ICellStates {
  run: string | null;
  over: boolean;
  cells: ICellState[];
}

export interface IOutputs {
  outputs: unknown[];
  next: number;
  run: IRun;
}

export interface ILog {
  lines: { rank: number; stream: string; text: string; at: number }[];
  next: number;
  run: IRun;
}

/** Error with a message for users and a hint that mends it. */
export class SkyError extends Error {
  /**
   * @param kind - the class of the error on the server, or one of ours: `offline` (no answer),
   *   `expired` (not let in), `missing` (the server has no jupyter_sky).
   * @param guide - the page of the guide that treats such errors; empty without one.
   */
  constructor(
    message: string,
    readonly hint: string,
    readonly kind: string,
    readonly status: number,
    readonly guide = ''
  ) {
    super(message);
  }
}

type Query = Record<string, string | number | boolean | null | undefined>;

/** Client of this page's server. Every call returns the server's answer or throws a SkyError. */
export class Api {
  constructor(
    readonly settings: ServerConnection.ISettings = ServerConnection.makeSettings(),
    private _: Translate = plain
  ) {}

  private etag = '';

  /** Clusters, runs and costs; null when nothing has changed since the last call. */
  async state(fresh = false): Promise<IState | null> {
    const headers: Record<string, string> =
      this.etag && !fresh ? { 'If-None-Match': this.etag } : {};
    const response = await this.send('state', { headers, cache: 'no-store' });
    if (response.status === 304) return null;
    const state = await this.read<IState>(response);
    this.etag = response.headers.get('ETag') ?? '';
    return state;
  }

  metrics(cluster: string): Promise<IMetrics> {
    return this.get(`clusters/${encodeURIComponent(cluster)}/metrics`);
  }

  /** Ends a cluster; answers when its cloud has confirmed. */
  down(cluster: string): Promise<unknown> {
    return this.post(`clusters/${encodeURIComponent(cluster)}/down`);
  }

  /** Begins to start a stopped cluster; the state tells how that goes on. */
  start(cluster: string): Promise<unknown> {
    return this.post(`clusters/${encodeURIComponent(cluster)}/start`);
  }

  extend(cluster: string, time: string): Promise<unknown> {
    return this.post(`clusters/${encodeURIComponent(cluster)}/extend`, { time });
  }

  ssh(cluster: string): Promise<{ command: string }> {
    return this.get(`clusters/${encodeURIComponent(cluster)}/ssh`);
  }

  launchLog(cluster: string): Promise<{ text: string }> {
    return this.get(`clusters/${encodeURIComponent(cluster)}/log`);
  }

  /** A folder of a cluster, by its path below the cluster's own. */
  files(cluster: string, path = ''): Promise<IFiles> {
    return this.get(`clusters/${encodeURIComponent(cluster)}/files`, { path });
  }

  /** Files that were last changed while a run was going on, each with its path as its name. */
  runFiles(id: string): Promise<IFiles> {
    return this.get(`runs/${encodeURIComponent(id)}/files`);
  }

  /** Where a browser gets a file of a cluster, or a folder as an archive. */
  downloadUrl(cluster: string, path: string): string {
    const place = `jupyter-sky/clusters/${encodeURIComponent(cluster)}/download`;
    return `${URLExt.join(this.settings.baseUrl, place)}?${new URLSearchParams({ path })}`;
  }

  run(id: string): Promise<IRun> {
    return this.get(`runs/${encodeURIComponent(id)}`);
  }

  /** Stops a run; `restart` restarts engines that do not answer, once the run has a warning. */
  stop(id: string, restart = false): Promise<unknown> {
    return this.post(`runs/${encodeURIComponent(id)}/stop`, { restart });
  }

  outputs(id: string, since = 0): Promise<IOutputs> {
    return this.get(`runs/${encodeURIComponent(id)}/outputs`, { since });
  }

  log(id: string, since = 0): Promise<ILog> {
    return this.get(`runs/${encodeURIComponent(id)}/log`, { since });
  }

  /** The newest runs of graphs, and the number of older ones. */
  pipelines(): Promise<{ runs: IListedRun[]; more: number }> {
    return this.get('pipelines');
  }

  /** The newest bags of jobs, and the number of older ones. */
  bags(): Promise<{ runs: IListedRun[]; more: number }> {
    return this.get('bags');
  }

  /** Pages that have all words of a search; without words, the guide. */
  searchHelp(words: string): Promise<{ pages: IHelpEntry[] }> {
    return this.get('help', { q: words });
  }

  helpPage(kind: IHelpEntry['kind'], name: string): Promise<IHelpPage> {
    return this.get(`help/${kind}/${encodeURIComponent(name)}`);
  }

  /** Copies the example notebooks and the guide below the server's folder; answers their paths. */
  copyExamples(): Promise<{ paths: string[] }> {
    return this.post('examples');
  }

  offers(query: {
    what?: string;
    spot?: boolean;
    region?: string;
    limit?: number;
  }): Promise<IOffers> {
    return this.get('offers', query);
  }

  /** `GET jupyter-sky/PATH`; for resources without a method of their own. */
  async get<T>(path: string, query: Query = {}): Promise<T> {
    const asked = Object.entries(query).filter(([, value]) => value !== undefined && value !== '');
    const tail = new URLSearchParams(asked.map(([name, value]) => [name, String(value)])).toString();
    return this.read(await this.send(tail ? `${path}?${tail}` : path, { cache: 'no-store' }));
  }

  async post<T>(path: string, body: unknown = {}): Promise<T> {
    return this.read(await this.send(path, { method: 'POST', body: JSON.stringify(body) }));
  }

  async put<T>(path: string, body: unknown = {}): Promise<T> {
    return this.read(await this.send(path, { method: 'PUT', body: JSON.stringify(body) }));
  }

  private async send(path: string, init: RequestInit): Promise<Response> {
    const url = URLExt.join(this.settings.baseUrl, 'jupyter-sky', path);
    try {
      return await ServerConnection.makeRequest(url, init, this.settings);
    } catch {
      throw new SkyError(
        this._('The Jupyter server does not answer.'),
        this._('Is it still running? Start it again, or check your connection.'),
        'offline',
        0
      );
    }
  }

  private async read<T>(response: Response): Promise<T> {
    const body = await response.text();
    let answer: any = null;
    try {
      answer = body ? JSON.parse(body) : {};
    } catch {
      // not one of ours: a page of the server or of a proxy
    }
    if (response.ok && answer !== null) return answer as T;
    throw this.problem(response.status, answer);
  }

  private problem(status: number, answer: any): SkyError {
    const _ = this._;
    if (typeof answer?.kind === 'string') {
      const { message, hint, kind, guide } = answer;
      return new SkyError(message ?? kind, hint ?? '', kind, status, guide ?? '');
    }
    if (status === 401 || status === 403) {
      return new SkyError(
        _('The Jupyter server does not let this page in any more: its token has expired.'),
        _('Reload the page and log in again. What runs goes on running.'),
        'expired',
        status
      );
    }
    if (status === 404) {
      return new SkyError(
        _('The Jupyter server does not know jupyter_sky.'),
        _(
          'Install jupyter_sky where the Jupyter server is installed, or enable it there with ' +
            '"jupyter server extension enable jupyter_sky"; then restart the server.'
        ),
        'missing',
        status
      );
    }
    return new SkyError(
      _('The Jupyter server answered %1 and did not say why.', status),
      _('Its own log says more.'),
      'server',
      status
    );
  }
}
