import { describe, expect, it } from 'vitest';

import { pieces, plain, written } from '../../jupyter_sky/interfaces/widgets/static/ansi.js';
import { Lines, find } from '../../jupyter_sky/interfaces/widgets/static/log_lines.js';

const print = (text: string, rank = 0, stream = 'stdout', at = 1) => ({ rank, stream, text, at });
const texts = (lines: Lines) => lines.all.map(line => line.text);

describe('the text of a terminal', () => {
  it('is split into runs of one style', () => {
    expect(pieces('plain')).toEqual([{ text: 'plain', style: '', colour: '' }]);
    const found = pieces('a\x1b[1;31mb\x1b[22mc\x1b[0md\x1b[38;5;196me\x1b[38;2;1;2;3mf\x1b[39mg');
    expect(found.map(({ text, style, colour }) => [text, style, colour])).toEqual([
      ['a', '', ''],
      ['b', 'bold fg-1', ''],
      ['c', 'fg-1', ''],
      ['d', '', ''],
      ['e', '', 'rgb(255 0 0)'],
      ['f', '', 'rgb(1 2 3)'],
      ['g', '', '']
    ]);
  });

  it('drops escape sequences other than colours', () => {
    const text = '\x1b[2K\x1b[1Gdone\x1b[?25h \x1b]8;;http://x\x07link\x1b]8;;\x07';
    expect(plain(text)).toBe('done link');
    expect(pieces(text).map(piece => piece.text).join('')).toBe('done link');
  });

  it('is overwritten after a carriage return', () => {
    expect(written('10%\r20%\r30%')).toBe('30%');
    expect(written('30%\r')).toBe('30%');
    expect(written('\r')).toBe('');
  });
});

describe('a log', () => {
  it('assembles lines from pieces by node and stream', () => {
    const lines = new Lines();
    lines.add([print('a1 '), print('b1\n', 1), print('e1\n', 0, 'stderr'), print('a2\na3')]);
    expect(texts(lines)).toEqual(['a1 a2', 'b1', 'e1', 'a3']);
    const { added, changed } = lines.add([print(' end\r\nnext\n')]);
    expect(texts(lines)).toEqual(['a1 a2', 'b1', 'e1', 'a3 end', 'next']);
    expect(added.map(line => line.text)).toEqual(['next']);
    expect([...changed].map(line => line.text)).toEqual(['a3 end']);
    expect([...lines.ranks]).toEqual([0, 1]);
    expect(lines.text()).toBe('[0] a1 a2\n[1] b1\n[0] e1\n[0] a3 end\n[0] next\n');
  });

  it('keeps a progress bar on one line', () => {
    const lines = new Lines();
    for (const percent of [0, 50, 100]) lines.add([print(`\r${percent}%`, 0, 'stderr')]);
    lines.add([print('\ndone\n', 0, 'stderr')]);
    expect(texts(lines)).toEqual(['100%', 'done']);
  });

  it('overwrites a line that ended with a carriage return', () => {
    const lines = new Lines();
    lines.add([print('10%\r')]);
    lines.add([print('20%\r')]);
    lines.add([print('30%\n')]);
    expect(texts(lines)).toEqual(['30%']);
  });

  it('drops and counts the first lines of a very long log', () => {
    const lines = new Lines(100);
    for (let n = 0; n < 1000; n += 1) lines.add([print(`line ${n}\n`)]);
    expect(lines.all.length).toBeLessThanOrEqual(110);
    expect(lines.dropped + lines.all.length).toBe(1000);
    expect(lines.all.at(-1)!.n).toBe(999);
    expect(lines.all[0].text).toBe(`line ${lines.dropped}`);
  });

  it('is searched case-insensitively, across colours, up to a limit', () => {
    const lines = new Lines();
    lines.add([print('Loss \x1b[31mlo\x1b[0mss\nnothing\nloss\n')]);
    const hits = find(lines.all, 'LOSS');
    expect(hits.map(hit => [hit.line.n, hit.start])).toEqual([[0, 0], [0, 5], [2, 0]]);
    expect(find(lines.all, 'loss', 2).length).toBe(2);
    expect(find(lines.all, '')).toEqual([]);
  });
});
