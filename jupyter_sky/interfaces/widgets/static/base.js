// @ts-check
/**
 * Parts that all views of jupyter_sky share: elements, words for money and time, asking, live regions,
 * and a combobox.
 *
 * A view is a plain ES module `static/NAME.js` that exports `render({el, ask, _}) -> dispose` and
 * imports from its neighbours only. JupyterLab's extension bundles these files as they are.
 * anywidget takes one text for a module: `jupyter_sky.interfaces.widgets.view.bundle_module("NAME")` puts the module
 * and what it imports into one. So keep imports in the form `import { a, b } from './base.js';`
 * and exports in the form `export function`, `export class`, `export const` or `export default`.
 */

/**
 * Answers a question: anywidget's kernel or JupyterLab's server. Rejects with a `RequestError`.
 * @typedef {(kind: string, payload?: any) => Promise<any>} Ask
 */

/**
 * Words in the user's language, `%1` and `%2` replaced by the arguments.
 * @typedef {(text: string, ...values: any[]) => string} Translate
 */

/** Error with a `message` for the user and a `hint` that mends it. */
export class RequestError extends Error {
  /** @param {{message: string, hint?: string | null, kind?: string}} said */
  constructor({ message, hint = '', kind = '' }) {
    super(message);
    this.hint = hint ?? '';
    this.kind = kind;
  }
}

/** An error with its hint, without the full stop. @param {any} error */
export const errorText = (error) => [error?.message ?? String(error), error?.hint].filter(Boolean).join('; ');

/** @type {Translate} English as it stands. */
export const english = (text, ...values) =>
  text.replace(/%(\d)/g, (whole, place) => String(values[place - 1] ?? whole));

/**
 * Texts in another language where there is a translation, English where there is none.
 * @param {Record<string, string> | undefined} texts @returns {Translate}
 */
export const translated = texts => (text, ...values) => english(texts?.[text] ?? text, ...values);

// -- elements -----------------------------------------------------------------------------------

/**
 * Makes an element. `class`, `text`, `on` (listeners) and `style` (an object) are special; other
 * properties are attributes, left out when null, undefined or false.
 *
 * @param {string} tag
 * @param {Record<string, any> | null} [properties]
 * @param {...(Node | string | null | undefined | false)} children
 * @returns {any}
 * @example h('button', { class: 'jsky-Button', on: { click: stop } }, _('Stop'))
 */
export function h(tag, properties, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties ?? {})) {
    if (name === 'on') {
      for (const [event, listener] of Object.entries(value)) {
        element.addEventListener(event, listener);
      }
    } else if (name === 'style') {
      Object.assign(element.style, value);
    } else if (name === 'text') {
      element.textContent = value;
    } else if (value !== null && value !== undefined && value !== false) {
      element.setAttribute(name, value === true ? '' : String(value));
    }
  }
  element.append(...children.filter(isNode));
  return element;
}

/** @param {any} child @returns {child is Node | string} */
function isNode(child) {
  return child !== null && child !== undefined && child !== false;
}

let counted = 0;

/** An id that no other element of the page has. @param {string} name */
export function uid(name) {
  counted += 1;
  return `jsky-${name}-${counted}-${Math.random().toString(36).slice(2, 7)}`;
}

/** Disables a control and says why, or enables it. @param {any} control @param {string} why */
export function disable(control, why) {
  // not the attribute `disabled`: the reason has to be reachable by keyboard
  control.setAttribute('aria-disabled', String(Boolean(why)));
  control.classList.toggle('jsky-mod-disabled', Boolean(why));
  control.title = why;
}

/** Invisible live region for screen readers. @param {HTMLElement} parent */
export function liveRegion(parent) {
  const region = h('div', { class: 'jsky-hidden', role: 'status', 'aria-live': 'polite' });
  parent.append(region);
  return {
    region,
    /** @param {string} text */
    say(text) {
      if (region.textContent !== text) {
        region.textContent = text;
      }
    }
  };
}

// -- words --------------------------------------------------------------------------------------

/**
 * USD as the status line shows it; null is unknown, `$0.00` exactly nothing.
 * @param {number | null | undefined} usd
 * @example money(1.239) === '$1.24'; money(0.00042) === '$0.00042'; money(null) === 'unknown'
 */
export function money(usd, _ = english) {
  if (typeof usd !== 'number' || !Number.isFinite(usd)) {
    return _('unknown');
  }
  const sign = usd < 0 ? '-' : '';
  const size = Math.abs(usd);
  if (size >= 0.00995 || size === 0) {
    const two = { minimumFractionDigits: 2, maximumFractionDigits: 2 };
    return `${sign}$${size.toLocaleString('en-US', two)}`;
  }
  if (size < 1e-6) {
    return `${sign}<$0.000001`;
  }
  const digits = 1 - Math.floor(Math.log10(size)); // two significant ones
  return `${sign}$${size.toFixed(digits).replace(/0+$/, '')}`;
}

/** USD by the hour, `$1.25/h`. @param {number | null | undefined} price */
export function rate(price, _ = english) {
  return price === null || price === undefined ? _('unknown') : `${money(price, _)}/h`;
}

/** Seconds as a clock shows them: 0:41, 1:02:33. @param {number} seconds */
export function clock(seconds) {
  const whole = Math.max(0, Math.floor(seconds));
  const [hour, minute, second] = [Math.floor(whole / 3600), Math.floor(whole / 60) % 60, whole % 60];
  const two = (/** @type {number} */ n) => String(n).padStart(2, '0');
  return hour ? `${hour}:${two(minute)}:${two(second)}` : `${minute}:${two(second)}`;
}

/** Seconds that something took: 0.3 s, 4.2 s, 0:41, 1:02:33. @param {number} seconds */
export function elapsed(seconds) {
  return seconds < 9.95 ? `${Math.max(0, seconds).toFixed(1)} s` : clock(Math.round(seconds));
}

/**
 * Times of a cell: until it was sent to a cluster, if it had to wait, and since then.
 * @param {number} run Seconds. @param {number} [boot] Seconds.
 */
export function durations(run, boot = 0, _ = english) {
  return boot < 0.95 ? elapsed(run) : _('boot %1, run %2', elapsed(boot), elapsed(run));
}

/** Seconds in the largest units: 41 s, 12 min, 1 h 2 min, 3 d 4 h. @param {number} seconds */
export function span(seconds) {
  const minutes = Math.floor(Math.max(0, seconds) / 60);
  if (minutes < 1) {
    return `${Math.floor(Math.max(0, seconds))} s`;
  }
  const [large, small, size] = minutes < 1440 ? ['h', 'min', 60] : ['d', 'h', 1440];
  if (minutes < 60) {
    return `${minutes} min`;
  }
  const rest = Math.floor((minutes % size) / (size / (size === 60 ? 60 : 24)));
  return `${Math.floor(minutes / size)} ${large}${rest ? ` ${rest} ${small}` : ''}`;
}

/** The time of day of unix seconds, with the date when it is not today's. @param {number} at */
export function timeOf(at) {
  const date = new Date(at * 1000);
  const time = date.toLocaleTimeString([], { hour: '2-digit', minute: '2-digit' });
  const today = new Date().toDateString() === date.toDateString();
  return today ? time : `${date.toLocaleDateString()} ${time}`;
}

/** Bytes: 512 B, 1.5 kB, 3 GB. @param {number} count */
export function bytes(count) {
  const units = ['B', 'kB', 'MB', 'GB', 'TB', 'PB'];
  let position = 0;
  let size = count;
  while (size >= 999.5 && position < units.length - 1) {
    size /= 1000;
    position += 1;
  }
  return `${position && size < 10 ? Number(size.toFixed(1)) : Math.round(size)} ${units[position]}`;
}

// -- time ---------------------------------------------------------------------------------------

/**
 * Calls `act` once, this many milliseconds after the last call.
 * @template {any[]} A
 * @param {(...values: A) => void} act
 * @param {number} wait
 */
export function debounce(act, wait) {
  /** @type {any} */
  let timer;
  const later = (/** @type {A} */ ...values) => {
    clearTimeout(timer);
    timer = setTimeout(() => act(...values), wait);
  };
  later.cancel = () => clearTimeout(timer);
  return later;
}

/**
 * Of several questions in flight only the last one's answer counts; to the others, and after
 * `drop()`, the answer is undefined.
 * @template {any[]} A, R
 * @param {(...values: A) => Promise<R>} ask
 */
export function latest(ask) {
  let number = 0;
  const only = async (/** @type {A} */ ...values) => {
    number += 1;
    const mine = number;
    try {
      const answer = await ask(...values);
      return mine === number ? answer : undefined;
    } catch (error) {
      if (mine === number) {
        throw error;
      }
      return undefined;
    }
  };
  only.drop = () => {
    number += 1;
  };
  return only;
}

// -- anywidget ----------------------------------------------------------------------------------

/**
 * The default export of a view's module, which anywidget calls: questions go to the kernel as
 * messages and are answered by `jupyter_sky.interfaces.widgets.view.View`.
 *
 * @param {(view: {el: HTMLElement, ask: Ask, _: Translate, model: any}) => (() => void)} render
 */
export function widget(render) {
  return {
    /** @param {{model: any, el: HTMLElement}} given */
    render({ model, el }) {
      /** @type {Map<string, {resolve: (answer: any) => void, reject: (error: Error) => void}>} */
      const waiting = new Map();
      const heard = (/** @type {any} */ message) => {
        const question = waiting.get(message?.id);
        if (!question) {
          return; // another view of the same model has asked it
        }
        waiting.delete(message.id);
        if (message.error) {
          question.reject(new RequestError(message.error));
        } else {
          question.resolve(message.answer);
        }
      };
      model.on('msg:custom', heard);
      /** @type {Ask} */
      const ask = (kind, payload = {}) =>
        new Promise((resolve, reject) => {
          const id = uid('ask');
          waiting.set(id, { resolve, reject });
          model.send({ id, kind, payload });
        });
      const dispose = render({ el, ask, _: translated(model.get('texts')), model });
      return () => {
        model.off('msg:custom', heard);
        waiting.clear();
        dispose?.();
      };
    }
  };
}

// -- combobox -----------------------------------------------------------------------------------

/**
 * Option of a combobox: its value and its description.
 * @typedef {{value: string, note?: string}} Choice
 */

/**
 * Adds completion to a text field, by the pattern "editable combobox with list
 * autocomplete" of ARIA: arrows move, Enter takes, Escape closes, anything else may be typed.
 *
 * @param {HTMLInputElement} input
 * @param {object} options
 * @param {(text: string) => Promise<Choice[]> | Choice[]} options.choices
 *   Options that match a text, the best first.
 * @param {boolean} [options.several] Whether the field holds a comma list; its last item completes.
 * @param {(value: string) => void} [options.taken] Called after a choice was taken.
 * @param {string} [options.label] Accessible name of the list.
 * @returns {() => void} takes the combobox away
 */
export function combobox(input, { choices, several = false, taken, label = '' }) {
  const id = uid('list');
  const list = h('ul', { id, class: 'jsky-List', role: 'listbox', 'aria-label': label || null });
  const popover = 'showPopover' in list; // above whatever clips or overlaps it
  if (popover) {
    list.popover = 'manual';
  }
  list.hidden = true;
  input.after(list);
  setAll(input, { role: 'combobox', autocomplete: 'off', 'aria-autocomplete': 'list' });
  setAll(input, { 'aria-controls': id, 'aria-expanded': 'false' });
  /** @type {Choice[]} */
  let found = [];
  let active = -1;
  const fitting = latest(async (/** @type {string} */ text) => choices(text));

  const head = () => (several ? (/^.*,\s*/.exec(input.value)?.[0] ?? '') : '');
  const mark = (/** @type {number} */ position) => {
    active = position;
    [...list.children].forEach((option, at) => {
      option.setAttribute('aria-selected', String(at === position));
    });
    const option = list.children[position];
    if (option) {
      input.setAttribute('aria-activedescendant', option.id);
      option.scrollIntoView?.({ block: 'nearest' });
    } else {
      input.removeAttribute('aria-activedescendant');
    }
  };
  const place = () => {
    const box = input.getBoundingClientRect();
    const below = window.innerHeight - box.bottom;
    const up = below < 160 && box.top > below;
    Object.assign(list.style, {
      left: `${box.left}px`,
      minWidth: `${box.width}px`,
      maxHeight: `${Math.min(240, Math.max(80, (up ? box.top : below) - 8))}px`,
      top: up ? 'auto' : `${box.bottom + 1}px`,
      bottom: up ? `${window.innerHeight - box.top + 1}px` : 'auto'
    });
  };
  const close = () => {
    fitting.drop();
    if (!list.hidden) {
      if (popover) {
        list.hidePopover();
      }
      list.hidden = true;
    }
    input.setAttribute('aria-expanded', 'false');
    mark(-1);
  };
  const take = (/** @type {number} */ position) => {
    input.value = head() + found[position].value;
    close();
    taken?.(input.value);
  };
  const open = async () => {
    const text = input.value.slice(head().length).trim();
    const answer = await fitting(text).catch(() => []);
    if (answer === undefined || input.ownerDocument.activeElement !== input) {
      return;
    }
    found = answer;
    if (!found.length || (found.length === 1 && found[0].value === text)) {
      close();
      return;
    }
    const options = found.map(({ value, note }, position) =>
      h(
        'li',
        {
          id: `${id}-${position}`,
          role: 'option',
          class: 'jsky-List-option',
          on: {
            // before the field loses the focus
            mousedown: (/** @type {Event} */ event) => {
              event.preventDefault();
              take(position);
            }
          }
        },
        h('span', { text: value }),
        note ? h('span', { class: 'jsky-List-note', text: note }) : null
      )
    );
    list.replaceChildren(...options);
    if (list.hidden) {
      list.hidden = false;
      if (popover) {
        list.showPopover();
      }
      input.setAttribute('aria-expanded', 'true');
    }
    place();
    mark(-1);
  };
  const keydown = async (/** @type {KeyboardEvent} */ event) => {
    const isOpen = !list.hidden;
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step) {
      event.preventDefault();
      if (!isOpen) {
        await open();
      }
      if (!list.hidden && !event.altKey) {
        const from = active < 0 && step < 0 ? 0 : active;
        mark((from + step + found.length) % found.length);
      }
    } else if (isOpen && event.key === 'Escape') {
      event.preventDefault();
      event.stopPropagation(); // it closes the list, not the form around it
      close();
    } else if (isOpen && active >= 0 && event.key === 'Enter') {
      event.preventDefault();
      event.stopPropagation();
      take(active);
    } else if (isOpen && active >= 0 && event.key === 'Tab') {
      take(active);
    }
  };
  const moved = (/** @type {Event} */ event) => {
    if (!list.contains(/** @type {Node} */ (event.target))) {
      close();
    }
  };
  input.addEventListener('input', open);
  input.addEventListener('click', open);
  input.addEventListener('keydown', keydown);
  input.addEventListener('blur', close);
  window.addEventListener('scroll', moved, true);
  window.addEventListener('resize', close);
  return () => {
    close();
    input.removeEventListener('input', open);
    input.removeEventListener('click', open);
    input.removeEventListener('keydown', keydown);
    input.removeEventListener('blur', close);
    window.removeEventListener('scroll', moved, true);
    window.removeEventListener('resize', close);
    list.remove();
  };
}

/** @param {Element} element @param {Record<string, string>} attributes */
function setAll(element, attributes) {
  for (const [name, value] of Object.entries(attributes)) {
    element.setAttribute(name, value);
  }
}
