/** How money, time and amounts are written: as jupyter_sky's own status lines write them. */

import {
  bytes,
  clock,
  durations,
  english as plain,
  money
} from '../../jupyter_sky/interfaces/widgets/static/base.js';

export { bytes, clock, durations, money, plain };

/** A translation function, as `translator.load('jupyter_sky').__`: `%1`, `%2` are filled in. */
export type Translate = (text: string, ...values: unknown[]) => string;

/** `$1.25/h`, or "price unknown". */
export function rate(usd: number | null | undefined, _: Translate = plain): string {
  const known = typeof usd === 'number' && Number.isFinite(usd);
  return known ? _('%1/h', money(usd, _)) : _('price unknown');
}

/** Seconds in the two units that matter: `41 s`, `12 min`, `1 h 02 min`, `3 d 4 h`. */
export function span(seconds: number, _: Translate = plain): string {
  const all = Math.max(0, Math.floor(seconds));
  if (all < 60) return _('%1 s', all);
  if (all < 3600) return _('%1 min', Math.floor(all / 60));
  const hours = Math.floor(all / 3600);
  if (hours < 24) {
    return _('%1 h %2 min', hours, String(Math.floor(all / 60) % 60).padStart(2, '0'));
  }
  return _('%1 d %2 h', Math.floor(hours / 24), hours % 24);
}

/** The time of day of unix seconds, with the date unless it is today's. */
export function when(at: number, now: number = Date.now() / 1000): string {
  const [then, today] = [new Date(at * 1000), new Date(now * 1000)];
  const time = then.toLocaleTimeString([], { hour: '2-digit', minute: '2-digit' });
  if (then.toDateString() === today.toDateString()) return time;
  return `${then.toLocaleDateString([], { month: 'short', day: 'numeric' })} ${time}`;
}

/** Number of vCPUs. */
export function vcpus(count: number, _: Translate = plain): string {
  return count === 1 ? _('1 vCPU') : _('%1 vCPUs', count);
}

/** GiB, as people say them: `512 MiB`, `3.5 GiB`, `64 GiB`. */
export function gib(amount: number | null | undefined, _: Translate = plain): string {
  if (amount === null || amount === undefined) return _('unknown');
  if (amount < 1) return _('%1 MiB', Math.round(amount * 1024));
  return _('%1 GiB', amount < 10 ? Number(amount.toFixed(1)) : Math.round(amount));
}
