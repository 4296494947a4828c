import { describe, expect, it } from 'vitest';

import { clock, gib, money, rate, span, when } from '../src/format';

describe('money', () => {
  it('formats amounts like the status line', () => {
    expect([1.239, 0.00042, 0, 1234.5, -2, 1e-9].map(usd => money(usd))).toEqual([
      '$1.24',
      '$0.00042',
      '$0.00',
      '$1,234.50',
      '-$2.00',
      '<$0.000001'
    ]);
  });
  it('names an unknown amount', () => {
    for (const unknown of [null, undefined, NaN, Infinity]) {
      expect(money(unknown)).toBe('unknown');
      expect(rate(unknown)).toBe('price unknown');
    }
    expect(rate(1.25)).toBe('$1.25/h');
  });
});

describe('time', () => {
  it('is a clock or has two units', () => {
    expect([41, 725, 3753, -1].map(clock)).toEqual(['0:41', '12:05', '1:02:33', '0:00']);
    expect([41, 725, 3753, 200_000].map(s => span(s))).toEqual([
      '41 s',
      '12 min',
      '1 h 02 min',
      '2 d 7 h'
    ]);
  });
  it('has its date unless it is today', () => {
    const noon = new Date(2026, 9, 15, 12).getTime() / 1000;
    expect(when(noon, noon + 60)).not.toContain('15');
    expect(when(noon, noon + 86_400)).toContain('15');
  });
});

it('formats memory in the unit that fits', () => {
  expect([0.5, 3.46, 64.2, null].map(amount => gib(amount))).toEqual([
    '512 MiB',
    '3.5 GiB',
    '64 GiB',
    'unknown'
  ]);
});
