import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';

import { render } from '../../jupyter_sky/interfaces/widgets/static/logs.js';
import { DRAWN } from '../../jupyter_sky/interfaces/widgets/static/log_pane.js';

type Piece = { rank: number; stream: string; text: string; at: number | null };

/** A log that grows; each answer holds what has come since. */
class Source {
  pieces: Piece[] = [];
  ended: number | null = null;
  broken = false;
  asked = 0;
  print(text: string, rank = 0, stream = 'stdout') {
    this.pieces.push({ rank, stream, text, at: 1_700_000_000 });
  }
  ask = async (kind: string, { since }: any) => {
    expect(kind).toBe('log');
    this.asked += 1;
    if (this.broken) throw Object.assign(new Error('nobody answers'), { hint: 'start the server' });
    const run = { stage: this.ended === null ? 'running' : 'done', started: 1, ended: this.ended };
    return { lines: this.pieces.slice(since), next: this.pieces.length, run };
  };
}

describe('the view of a log', () => {
  let el: HTMLElement;
  let source: Source;
  let dispose: () => void;
  const all = (query: string) => [...el.querySelectorAll<HTMLElement>(query)];
  const rows = () => all('.jsky-Log-line').map(row => row.querySelector('.jsky-Log-text')!.textContent);
  const pass = (ms = 2000) => vi.advanceTimersByTimeAsync(ms);
  const press = (name: string) => all('button').find(one => one.textContent === name)!.click();
  const search = async (text: string) => {
    const input = el.querySelector('input')!;
    input.value = text;
    input.dispatchEvent(new Event('input'));
    await pass(200);
  };
  const key = (key: string, more = {}) =>
    el.querySelector('input')!.dispatchEvent(
      new KeyboardEvent('keydown', { key, bubbles: true, cancelable: true, ...more })
    );

  beforeEach(() => {
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'requestAnimationFrame', 'Date'] });
    el = document.createElement('div');
    document.body.replaceChildren(el);
    source = new Source();
    dispose = render({ el, ask: source.ask, source: { run_id: 'r' } });
  });
  afterEach(() => {
    dispose();
    vi.useRealTimers();
  });

  describe('that is longer than its pane', () => {
    const pane = () => el.querySelector<HTMLElement>('.jsky-Log-pane')!;
    const paused = () => el.querySelector('.jsky-Log-paused')!.textContent;
    const scrollTo = (top: number) => {
      pane().scrollTop = top;
      pane().dispatchEvent(new Event('scroll'));
    };
    beforeEach(async () => {
      source.print('a\nb\nc\n');
      await pass();
      Object.defineProperties(pane(), { scrollHeight: { value: 900 }, clientHeight: { value: 100 } });
      scrollTo(800);
    });

    it('follows on when the page lays itself out anew', () => {
      scrollTo(300);
      expect(paused()).toBe('');
    });

    it('stays where its reader scrolls to, until the end is reached again', () => {
      pane().dispatchEvent(new WheelEvent('wheel', { deltaY: -100 }));
      scrollTo(300);
      expect(paused()).toContain('because you have scrolled up');
      scrollTo(800);
      expect(paused()).toBe('');
    });

    it('does not speak of new lines when it is complete', async () => {
      pane().dispatchEvent(new KeyboardEvent('keydown', { key: 'PageUp' }));
      scrollTo(300);
      source.ended = 73;
      await pass();
      expect(paused()).toBe('');
    });
  });

  it('polls until the run has ended', async () => {
    source.print('one\ntw');
    await pass();
    expect(rows()).toEqual(['one', 'tw']);
    expect(el.querySelector('.jsky-Log-state')!.textContent).toBe('running · 2 lines');
    source.print('o\nthree\n');
    source.ended = 73;
    await pass();
    expect(rows()).toEqual(['one', 'two', 'three']);
    expect(el.querySelector('.jsky-Log-state')!.textContent).toBe('done 1:12 · 3 lines');
    const { asked } = source;
    await pass(60_000);
    expect(source.asked).toBe(asked);
  });

  it('marks errors in words, colours text, and shows times', async () => {
    source.print('\x1b[31mred\x1b[0m\n');
    source.print('careful\n', 0, 'stderr');
    source.print('ValueError\n', 0, 'error');
    await pass();
    expect(all('.jsky-Log-mark').map(mark => mark.textContent)).toEqual(['', 'err', 'error']);
    expect(el.querySelector('.jsky-ansi-fg-1')!.textContent).toBe('red');
    expect(all('.jsky-Log-time').length).toBe(0);
    press('Times');
    expect(all('.jsky-Log-time').length).toBe(3);
    expect(all('.jsky-Log-time')[0].textContent).toMatch(/^\d\d:\d\d:\d\d$/);
  });

  it('finds and counts matches, and cycles through them by keyboard', async () => {
    source.print('loss 3\nnothing\nLoss \x1b[1m2\x1b[0m\n');
    await pass();
    await search('loss');
    const count = el.querySelector('.jsky-Log-count')!;
    expect(count.textContent).toBe('1 of 2');
    expect(all('mark').map(mark => mark.textContent)).toEqual(['loss', 'Loss']);
    expect(all('.jsky-mod-current').length).toBe(1);
    key('Enter');
    expect(count.textContent).toBe('2 of 2');
    expect(el.querySelector('.jsky-mod-current')!.textContent).toBe('Loss');
    key('Enter');
    expect(count.textContent).toBe('1 of 2');
    key('Enter', { shiftKey: true });
    expect(count.textContent).toBe('2 of 2');
    source.print('loss 1\n');
    await pass();
    expect(count.textContent).toBe('2 of 3');
    await search('loss 2'); // across a change of style
    expect(all('mark').map(mark => mark.textContent).join('')).toBe('Loss 2');
    await search('absent');
    expect(count.textContent).toBe('nothing found');
    key('Escape');
    await pass(200);
    expect(count.textContent).toBe('');
    expect(all('mark').length).toBe(0);
  });

  it('keeps the focus when another node begins to print', async () => {
    source.print('a\n', 0);
    await pass();
    el.querySelector<HTMLElement>('.jsky-Log-pane')!.focus();
    source.print('b\n', 1);
    await pass();
    expect(document.activeElement).toBe(el.querySelector('.jsky-Log-pane'));
    const slash = new KeyboardEvent('keydown', { key: '/', bubbles: true, cancelable: true });
    document.activeElement!.dispatchEvent(slash);
    expect(document.activeElement).toBe(el.querySelector('input'));
    expect(slash.defaultPrevented).toBe(true);
  });

  it('puts nodes side by side, or in one list with their numbers', async () => {
    source.print('a\n', 0);
    source.print('b\n', 1);
    source.print('c\n', 0);
    await pass();
    expect(all('.jsky-Log-pane').length).toBe(1);
    expect(all('.jsky-Log-rank').map(rank => rank.textContent)).toEqual(['[0]', '[1]', '[0]']);
    press('Side by side');
    await pass(100);
    expect(all('.jsky-Log-title').map(title => title.textContent)).toEqual(['node 0', 'node 1']);
    const columns = all('.jsky-Log-lines').map(list => list.textContent);
    expect(columns).toEqual(['ac', 'b']);
    source.print('d\n', 1);
    source.print('e\n', 2);
    await pass();
    expect(all('.jsky-Log-title').length).toBe(3);
    press('Side by side');
    await pass(100);
    expect(rows()).toEqual(['a', 'b', 'c', 'd', 'e']);
  });

  it('draws a window of a long log, and searches all of it', { timeout: 60_000 }, async () => {
    const text = Array.from({ length: 30_000 }, (_, n) => `line ${n}\n`).join('');
    source.print(text);
    source.ended = 1;
    await pass(5000);
    expect(rows().length).toBe(DRAWN);
    expect(rows().at(-1)).toBe('line 29999');
    const earlier = el.querySelector<HTMLElement>('.jsky-Log-more')!;
    expect(earlier.textContent).toBe('25,000 earlier lines are not drawn: show some');
    earlier.click();
    expect(rows().length).toBe(DRAWN);
    expect(rows()[0]).toBe('line 24000');
    await search('line 777\n'.trim());
    expect(el.querySelector('.jsky-mod-current')!.textContent).toBe('line 777');
    expect(rows().length).toBeLessThanOrEqual(DRAWN);
    press('Follow');
    await pass(5000);
    expect(rows().at(-1)).toBe('line 29999');
  });

  it('shows why the log cannot be read, and tries again', async () => {
    source.print('one\n');
    source.broken = true;
    await pass();
    expect(el.querySelector('[role=alert]')!.textContent).toContain('nobody answers; start the server');
    source.broken = false;
    await pass(20_000);
    expect(el.querySelector('[role=alert]')!.textContent).toBe('');
    expect(rows()).toEqual(['one']);
  });

  it('escapes output, and stops when it is closed', async () => {
    source.print('<img src=x onerror=alert(1)>\n');
    await pass();
    expect(el.querySelector('img')).toBeNull();
    dispose();
    expect(el.childElementCount).toBe(0);
    expect(vi.getTimerCount()).toBe(0);
  });
});
