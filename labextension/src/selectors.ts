/** Texts and decisions about clusters and runs, independent of the page. */

import type { ICluster, IRun, IState, IStopped } from './api';
import { clock, gib, money, rate, span, Translate } from './format';

// as in jupyter_sky/machines/engines/controller/activity.py
const WARN_SECONDS = 120;
const WARN_PART = 0.2;

/** Text and mark of a state; marks differ in shape, not in colour alone. */
export interface IMark {
  word: string;
  sign: string;
  tone: 'active' | 'good' | 'waiting' | 'warn' | 'bad';
}

export function clusterMark(state: ICluster['state'], _: Translate): IMark {
  switch (state) {
    case 'starting':
      return { word: _('starting'), sign: '◌', tone: 'waiting' };
    case 'up':
      return { word: _('up'), sign: '●', tone: 'good' };
    case 'stopped':
      return { word: _('stopped'), sign: '‖', tone: 'waiting' };
    case 'ending':
      return { word: _('ending'), sign: '◍', tone: 'warn' };
    case 'lost':
      return { word: _('lost'), sign: '✕', tone: 'bad' };
    default:
      return { word: _('ended'), sign: '○', tone: 'waiting' };
  }
}

/** Whether a cluster may cost something, or will soon. */
export function isLive(cluster: ICluster): boolean {
  return cluster.state !== 'down' && cluster.state !== 'lost';
}

/** Whether a run has reached a machine, waits for one, or has ended. */
export function phase(run: IRun): 'waiting' | 'running' | 'ended' {
  if (run.ended !== null || run.status !== 'running') return 'ended';
  return run.stage && run.stage !== 'running' ? 'waiting' : 'running';
}

export function runMark(run: IRun, _: Translate): IMark {
  if (phase(run) === 'waiting') return { word: _(run.stage!), sign: '◌', tone: 'waiting' };
  switch (run.status) {
    case 'running':
      return { word: _('running'), sign: '●', tone: 'active' };
    case 'ok':
      return { word: _('done'), sign: '✓', tone: 'good' };
    case 'error':
      return { word: _('failed'), sign: '✕', tone: 'bad' };
    case 'lost':
      return { word: _('lost'), sign: '✕', tone: 'bad' };
    default:
      return { word: _(run.status), sign: '■', tone: 'warn' };
  }
}

/** Cost of a cluster by now: the server's figure plus its price since then; null if unknown. */
export function spentBy(cluster: ICluster, at: number, now: number): number | null {
  if (cluster.usd === null) return null;
  const costs = ['up', 'ending', 'stopped'].includes(cluster.state);
  if (!costs) return cluster.usd;
  if (cluster.price === null) return null;
  return cluster.usd + (cluster.price * Math.max(0, now - at)) / 3600;
}

/** When a cluster will end by itself, in words; empty when nothing is known of it. */
export function ending(cluster: ICluster, at: number, now: number, _: Translate): string {
  if (cluster.state === 'stopped') return leaseLeft(cluster, now, _);
  if (cluster.state !== 'up') return '';
  const words: string[] = [];
  if (cluster.running > 0) {
    words.push(cluster.running === 1 ? _('1 cell runs') : _('%1 cells run', cluster.running));
  } else if (cluster.users.length) {
    words.push(_('used by %1', cluster.users.join(', ')));
  } else if (cluster.idle_left !== null) {
    const left = cluster.idle_left - (now - at);
    words.push(left > 0 ? _('idle, ends in %1', clock(left)) : _('idle, ends now'));
  } else {
    words.push(_('idle'));
  }
  if (cluster.lease_end !== null) {
    const left = cluster.lease_end - now;
    words.push(left > 0 ? _('at the latest in %1', span(left, _)) : _('its time is over'));
  }
  return words.join(' · ');
}

/** When a stopped cluster is deleted by itself. */
function leaseLeft(cluster: ICluster, now: number, _: Translate): string {
  if (cluster.lease_end === null) return '';
  const left = cluster.lease_end - now;
  return left > 0 ? _('deleted in %1 unless started', span(left, _)) : _('its time is over');
}

/** What a stopped cluster costs, and since when it is stopped. */
export function stopFacts(stopped: IStopped, now: number, _: Translate): string[] {
  const { since, usd_month, disk_gib, under_way } = stopped;
  const month = _('disk of %1: %2 a month', gib(disk_gib, _), money(usd_month, _));
  return [under_way || month, since === null ? '' : _('stopped for %1', span(now - since, _))];
}

/** Whether an idle cluster ends so soon that its users are to be warned. */
export function endsSoon(cluster: ICluster, at: number, now: number): boolean {
  if (cluster.state !== 'up' || cluster.running || cluster.users.length) return false;
  const warn = Math.min(WARN_SECONDS, cluster.idle * WARN_PART);
  return cluster.idle_left !== null && cluster.idle_left - (now - at) < warn;
}

/** Clusters whose end is worth a warning: free ones are not. */
export function endingSoon(state: IState | null, now: number): ICluster[] {
  if (!state) return [];
  return state.clusters.filter(one => one.price !== 0 && endsSoon(one, state.at, now));
}

/** Reason why an action is disabled for a cluster; empty if it is enabled. */
export function disabledReason(
  action: 'stop' | 'down' | 'start' | 'extend' | 'ssh' | 'insert' | 'log',
  cluster: ICluster,
  _: Translate
): string {
  const { name, state } = cluster;
  if (action === 'log') return '';
  if (state === 'ending') return _('%1 is being ended.', name);
  if (!isLive(cluster)) return _('%1 has ended.', name);
  if (state === 'stopped') {
    return action === 'start' || action === 'down' ? '' : _('%1 is stopped: start it first.', name);
  }
  if (action === 'start') return _('%1 is not stopped.', name);
  if (action === 'stop' && !cluster.running) return _('No cell runs on %1.', name);
  if (action === 'ssh' && cluster.cloud === 'local') {
    return _('%1 runs on this machine: there is nothing to log in to.', name);
  }
  if (state === 'starting' && (action === 'extend' || action === 'ssh')) {
    return _('%1 is not up yet.', name);
  }
  return '';
}

/** The line that runs a cell on a cluster. */
export function cellLine(cluster: ICluster): string {
  return `%%sky -c ${cluster.name}`;
}

/** Clusters that are up and their price, for the status bar. */
export function summary(state: IState, _: Translate): string {
  const up = state.clusters.filter(one => one.state === 'up').length;
  const starting = state.clusters.filter(one => one.state === 'starting').length;
  const words = [_('%1 up', up)];
  if (starting) words.push(_('%1 starting', starting));
  const stopped = state.clusters.filter(one => one.state === 'stopped').length;
  if (stopped) words.push(_('%1 stopped', stopped));
  const price = ratePlus(state, _);
  if (price && up + starting + stopped) words.push(price);
  if (state.today.over) words.push(_('over budget'));
  return words.join(' · ');
}

/** `$1.25/h`, `$1.25/h + 1 unknown`, `price unknown`. */
export function ratePlus(state: IState, _: Translate): string {
  const { usd_h, unknown } = state.rate;
  if (!unknown) return rate(usd_h, _);
  if (!usd_h) return _('price unknown');
  return _('%1 + %2 of unknown price', rate(usd_h, _), unknown);
}

/** Cost of today so far, and the budget. */
export function todayLine(state: IState, _: Translate): string {
  const { usd, unknown, budget, over } = state.today;
  const words = [_('Today %1', usd || !unknown ? money(usd, _) : _('unknown'))];
  if (budget !== null) words.push(_('of %1', money(budget, _)));
  if (unknown && usd) words.push(_('and %1 of unknown price', unknown));
  if (over) words.push(_('– over budget'));
  return words.join(' ');
}

/** The part of a notebook's absolute path that a server with this root knows; null if none. */
export function serverPath(notebook: string, root: string): string | null {
  const path = notebook.replace(/\\/g, '/');
  if (!path.endsWith('.ipynb')) return null;
  const home = path.match(/^(?:\/(?:home|Users)\/[^/]+|\/root|[A-Za-z]:\/Users\/[^/]+)(?=\/)/)?.[0];
  let base = root.replace(/\\/g, '/').replace(/\/$/, '');
  if (base.startsWith('~')) base = (home ?? '~') + base.slice(1);
  return path.startsWith(base + '/') ? path.slice(base.length + 1) : null;
}

/** Last part of a path: the usual name of a notebook. */
export function fileName(path: string): string {
  return path.replace(/\\/g, '/').split('/').pop() || path;
}

/** First line of a cell that is neither blank nor an import, a comment or a magic; else its first line. */
export function codeSummary(code: string): string {
  const lines = code.split('\n').map(line => line.trim());
  const body = code
    .replace(/^\s*from\s+\S+\s+import\s*\([^)]*(\)|$).*$/gm, '') // imports of several lines
    .split('\n')
    .map(line => line.trim().replace(/^((import|from)\s[^;]*;\s*)+/, ''));
  const telling = body.find(line => line && !/^([%#!]|import\s|from\s+\S+\s+import\b)/.test(line));
  return telling ?? lines.find(line => line) ?? '';
}
