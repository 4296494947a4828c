import { afterEach, describe, expect, it, vi } from 'vitest';

import * as base from '../../jupyter_sky/interfaces/widgets/static/base.js';

afterEach(() => {
  document.body.replaceChildren();
  vi.useRealTimers();
});

const settle = () => new Promise(done => setTimeout(done, 0));

describe('words', () => {
  it('formats money like the status line, unknown amounts as unknown', () => {
    expect([1.239, 0.00042, 0, null, undefined, 1234.5, -2, 1e-8].map(usd => base.money(usd))).toEqual(
      ['$1.24', '$0.00042', '$0.00', 'unknown', 'unknown', '$1,234.50', '-$2.00', '<$0.000001']
    );
    expect([base.rate(0.306), base.rate(null)]).toEqual(['$0.31/h', 'unknown']);
  });

  it('formats times', () => {
    expect([41, 725, 3753].map(base.clock)).toEqual(['0:41', '12:05', '1:02:33']);
    expect([41, 725, 3753, 7200, 3600 * 76].map(base.span)).toEqual(
      ['41 s', '12 min', '1 h 2 min', '2 h', '3 d 4 h']
    );
    expect([512, 1500, 3e9].map(base.bytes)).toEqual(['512 B', '1.5 kB', '3 GB']);
  });

  it('replaces placeholders, also repeated ones', () => {
    expect(base.english('%1 of %2, %1', 3, 4)).toBe('3 of 4, 3');
  });
});

describe('elements', () => {
  it('omits null children and escapes text', () => {
    const made = base.h('p', { title: null, hidden: false, id: 'x' }, '<b>', null, base.h('i'));
    expect(made.outerHTML).toBe('<p id="x">&lt;b&gt;<i></i></p>');
  });

  it('gives the reason of a disabled control and keeps it focusable', () => {
    const button = base.h('button');
    base.disable(button, 'no kernel');
    expect([button.getAttribute('aria-disabled'), button.title, button.disabled]).toEqual(
      ['true', 'no kernel', false]
    );
    base.disable(button, '');
    expect(button.getAttribute('aria-disabled')).toBe('false');
  });
});

describe('time', () => {
  it('debounces to the last call', () => {
    vi.useFakeTimers();
    const act = vi.fn();
    const later = base.debounce(act, 100);
    later(1);
    vi.advanceTimersByTime(90);
    later(2);
    vi.advanceTimersByTime(99);
    expect(act).not.toHaveBeenCalled();
    vi.advanceTimersByTime(1);
    expect(act.mock.calls).toEqual([[2]]);
  });

  it('drops outdated answers and errors', async () => {
    const ends: ((value: any) => void)[] = [];
    const ask = base.latest((n: number) =>
      new Promise((done, fail) => ends.push(n === 1 ? fail : done))
    );
    const [first, second] = [ask(1), ask(2)];
    ends[1]('new');
    ends[0](new Error('old'));
    expect(await first).toBeUndefined();
    expect(await second).toBe('new');
    const third = ask(3);
    ask.drop();
    ends[2]('gone');
    expect(await third).toBeUndefined();
  });
});

describe('a widget', () => {
  it('matches answers to its own requests', async () => {
    const heard: any[] = [];
    const listeners = new Set<(message: any) => void>();
    const model = {
      on: (_: string, listener: any) => listeners.add(listener),
      off: (_: string, listener: any) => listeners.delete(listener),
      send: (message: any) => heard.push(message),
      get: (name: string) => (name === 'texts' ? { 'No %1': 'Kein %1' } : undefined)
    };
    let [ask, translate]: any[] = [];
    const { render } = base.widget(view => {
      [ask, translate] = [view.ask, view._];
      return () => undefined;
    });
    const dispose = render({ model, el: document.createElement('div') });
    expect([translate('No %1', 'Name'), translate('%1 left', 2)]).toEqual(['Kein Name', '2 left']);
    const [good, bad] = [ask('one', { a: 1 }), ask('two')];
    expect(heard.map(({ kind, payload }) => [kind, payload])).toEqual([
      ['one', { a: 1 }],
      ['two', {}]
    ]);
    const say = (message: any) => listeners.forEach(listener => listener(message));
    say({ id: 'somebody else', answer: 0 });
    say({ id: heard[1].id, error: { message: 'no', hint: 'do this', kind: 'SkyError' } });
    say({ id: heard[0].id, answer: 42 });
    expect(await good).toBe(42);
    await expect(bad).rejects.toMatchObject({ message: 'no', hint: 'do this' });
    dispose();
    expect(listeners.size).toBe(0);
  });
});

describe('a combobox', () => {
  const GPUS = ['A10', 'A100', 'V100'];

  function made(options: any = {}) {
    const input = base.h('input', { 'aria-label': 'GPU' });
    document.body.append(base.h('div', null, input));
    const taken = vi.fn();
    const choices = (text: string) =>
      GPUS.filter(gpu => gpu.startsWith(text.toUpperCase())).map(value => ({ value, note: 'GiB' }));
    const dispose = base.combobox(input, { choices, taken, label: 'GPU', ...options });
    const list = document.querySelector('[role=listbox]') as HTMLElement;
    const type = async (text: string) => {
      input.focus();
      input.value = text;
      input.dispatchEvent(new Event('input', { bubbles: true }));
      await settle();
    };
    const press = async (key: string) => {
      const event = new KeyboardEvent('keydown', { key, bubbles: true, cancelable: true });
      input.dispatchEvent(event);
      await settle();
      return event;
    };
    const active = () =>
      document.getElementById(input.getAttribute('aria-activedescendant') ?? '')?.textContent;
    return { input, list, type, press, active, taken, dispose };
  }

  it('has the roles of an accessible combobox', async () => {
    const { input, list, type } = made();
    expect(input.getAttribute('role')).toBe('combobox');
    expect(input.getAttribute('aria-controls')).toBe(list.id);
    expect(input.getAttribute('aria-expanded')).toBe('false');
    await type('a');
    expect(input.getAttribute('aria-expanded')).toBe('true');
    const options = [...list.querySelectorAll('[role=option]')];
    expect(options.map(one => one.firstElementChild?.textContent)).toEqual(['A10', 'A100']);
    expect(input.getAttribute('aria-activedescendant')).toBeNull();
  });

  it('is operated by keyboard and wraps around', async () => {
    const { input, list, type, press, active, taken } = made();
    await type('a');
    await press('ArrowDown');
    expect(active()).toContain('A10');
    await press('ArrowUp');
    expect(active()).toContain('A100');
    await press('ArrowDown');
    await press('ArrowDown');
    const enter = await press('Enter');
    expect(enter.defaultPrevented).toBe(true);
    expect([input.value, list.hidden]).toEqual(['A100', true]);
    expect(taken).toHaveBeenCalledWith('A100');
  });

  it('opens by the arrow, closes by Escape, and only then lets Escape through', async () => {
    const { input, list, press, type } = made();
    input.focus();
    await press('ArrowDown');
    expect(list.hidden).toBe(false);
    const outer = vi.fn();
    document.body.addEventListener('keydown', outer);
    await press('Escape');
    expect([list.hidden, outer.mock.calls.length]).toEqual([true, 0]);
    await press('Escape');
    expect(outer.mock.calls.length).toBe(1);
    await type('a');
    input.blur();
    expect(list.hidden).toBe(true);
    document.body.removeEventListener('keydown', outer);
  });

  it('accepts any text: Enter without a choice is passed on', async () => {
    const { input, type, press } = made();
    await type('a');
    expect((await press('Enter')).defaultPrevented).toBe(false);
    expect(input.value).toBe('a');
  });

  it('completes the last of several', async () => {
    const { input, type, press } = made({ several: true });
    await type('V100, a1');
    await press('ArrowDown');
    await press('Tab');
    expect(input.value).toBe('V100, A10');
  });

  it('is hidden for a complete text and on disposal', async () => {
    const { input, list, type, dispose } = made();
    await type('V100');
    expect(list.hidden).toBe(true);
    dispose();
    await type('a');
    expect([list.isConnected, input.getAttribute('aria-expanded')]).toEqual([false, 'false']);
  });

  it('accepts a click before the field loses the focus', async () => {
    const { input, list, type } = made();
    await type('v');
    const down = new MouseEvent('mousedown', { bubbles: true, cancelable: true });
    list.querySelector('[role=option]')?.dispatchEvent(down);
    expect([input.value, down.defaultPrevented]).toEqual(['V100', true]);
  });
});
