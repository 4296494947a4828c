/** Small chart of the last minutes, with a text alternative. */

import React from 'react';

import { plain, span, Translate } from './format';

const WIDTH = 60;
const HEIGHT = 16;

/** The points of a line from left to right, in parts where values are missing. */
export function polylines(values: readonly (number | null)[], top: number): string[] {
  const step = WIDTH / Math.max(1, values.length - 1);
  const lines: string[] = [];
  let line: string[] = [];
  values.forEach((value, at) => {
    if (value === null) {
      if (line.length) lines.push(line.join(' '));
      line = [];
      return;
    }
    const y = HEIGHT - 1 - (Math.min(Math.max(value, 0), top) / top) * (HEIGHT - 2);
    line.push(`${(at * step).toFixed(1)},${y.toFixed(1)}`);
  });
  if (line.length) lines.push(line.join(' '));
  return lines;
}

export function last(values: readonly (number | null)[]): number | null {
  return values.length ? values[values.length - 1] : null;
}

/** Text alternative of the chart. */
export function describeSeries(
  what: string,
  values: readonly (number | null)[],
  say: (value: number) => string,
  seconds: number,
  _: Translate = plain
): string {
  const known = values.filter((value): value is number => value !== null);
  if (!known.length) return _('%1: not known yet', what);
  const now = last(values);
  return _(
    '%1: %2 now, %3 to %4 in the last %5',
    what,
    now === null ? _('unknown') : say(now),
    say(Math.min(...known)),
    say(Math.max(...known)),
    span(seconds, _)
  );
}

export function Sparkline(props: {
  what: string;
  values: readonly (number | null)[];
  top: number | null;
  seconds: number;
  say: (value: number) => string;
  _: Translate;
}): JSX.Element {
  const { what, values, seconds, say, _ } = props;
  const known = values.filter((value): value is number => value !== null);
  const top = props.top || Math.max(1e-9, ...known) * 1.1;
  const now = last(values);
  const words = describeSeries(what, values, say, seconds, _);
  return (
    <span className="jsky-Sparkline" title={words}>
      <svg role="img" aria-label={words} viewBox={`0 0 ${WIDTH} ${HEIGHT}`} preserveAspectRatio="none">
        {polylines(values, top).map((points, at) => {
          const [from, to] = [points.split(',')[0], points.split(' ').pop()!.split(',')[0]];
          const area = `${from},${HEIGHT} ${points} ${to},${HEIGHT}`;
          return (
            <g key={at}>
              <polygon className="jsky-Sparkline-area" points={area} />
              <polyline className="jsky-Sparkline-line" points={points} />
            </g>
          );
        })}
      </svg>
      <span aria-hidden="true">{now === null ? '–' : say(now)}</span>
    </span>
  );
}
