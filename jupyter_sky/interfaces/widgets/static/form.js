// @ts-check
import { offersOf, errorOf, measuredOf, suggestionsOf } from './match_result.js';
import { debounce, disable, h, latest, liveRegion, uid, widget } from './base.js';
import { Controls } from './controls.js';

/**
 * Form of a cell: its fields follow from `schema`, matching offers from `match`, and what
 * is written from `write`. This module only shows.
 */

/** @typedef {import('./base.js').Ask} Ask */
/** @typedef {import('./base.js').Translate} Translate */
/** @typedef {import('./controls.js').Fields} Fields */
/**
 * Action on the form's values. Errors of `act` are shown.
 * @typedef {object} Action
 * @property {string} id
 * @property {string} label
 * @property {string} [hint]
 * @property {boolean} [main] Enter in a field does it.
 * @property {boolean} [any] Can be done while something is not understood.
 * @property {(said: {fields: Fields, line: string}) => any} act
 */

const CELL = '%%sky';
const WAIT = 150; // pause in typing before a request for matching offers [ms]

/**
 * Shows the form in an element.
 *
 * @param {object} options
 * @param {HTMLElement} options.el
 * @param {Ask} options.ask
 * @param {Translate} options._
 * @param {string} [options.source] The cell's text; its line is read.
 * @param {string} [options.command] The magic that the line is shown after.
 * @param {Action[]} [options.actions]
 * @param {(line: string, answer: any) => void} [options.changed] Called with each new answer.
 * @returns {{dispose: () => void, focus: () => void}}
 */
export function drawForm({ el, ask, _, source = '', command = CELL, actions = [], changed }) {
  const form = new Form(el, ask, _, source, command, actions, changed);
  void form.open();
  return { dispose: () => form.dispose(), focus: () => form.focus() };
}

class Form {
  /**
   * @param {HTMLElement} el
   * @param {Ask} ask
   * @param {Translate} _
   * @param {string} source
   * @param {string} command
   * @param {Action[]} actions
   * @param {((line: string, answer: any) => void) | undefined} changed
   */
  constructor(el, ask, _, source, command, actions, changed) {
    this.el = el;
    this.ask = ask;
    this._ = _;
    this.source = source;
    this.command = command;
    this.actions = actions;
    this.changed = changed;
    this.controls = new Controls({ ask, _, touched: () => this.touched() });
    /** @type {any} */
    this.answer = null;
    /** @type {any[]} */
    this.buttons = [];
    this.disposed = false;
    this.wantsFocus = false;
    this.later = debounce(() => void this.match(), WAIT);
    this.matching = latest(asked => ask('match', asked));
    this.placing = latest(asked => ask('place', asked));
    this.reading = latest(asked => ask('read', asked));
    this.result = h('div', { class: 'jsky-Needs-result' });
    this.where = h('p', { class: 'jsky-Needs-where' });
    this.measured = h('div', { class: 'jsky-Needs-measured' });
    this.wrong = h('div', { class: 'jsky-Needs-wrong' });
    this.line = h('input', {
      id: uid('line'),
      class: 'jsky-Needs-line jsky-mono',
      spellcheck: 'false',
      autocomplete: 'off',
      on: { change: () => void this.typed() }
    });
    this.time = h('input', {
      class: 'jsky-Needs-time',
      size: '4',
      title: _('How long the cell may take, such as 20m or 2h; only for the estimate'),
      'aria-label': _('Expected time, for the estimate'),
      spellcheck: 'false',
      on: { input: () => this.later() }
    });
    this.keydown = this.keydown.bind(this);
  }

  async open() {
    const { el, _ } = this;
    el.classList.add('jsky-View', 'jsky-Needs');
    el.replaceChildren(h('p', { class: 'jsky-Needs-wait', text: _('Loading…') }));
    try {
      const asked = [this.ask('schema', {}), this.ask('read', { source: this.source })];
      const [schema, found] = await Promise.all(asked);
      if (!this.disposed) {
        this.draw(schema);
        this.fill(found);
      }
    } catch (error) {
      el.replaceChildren(errorOf(error));
    }
  }

  /** @param {any} schema */
  draw(schema) {
    const { el, _, line } = this;
    this.buttons = this.actions.map(action => this.button(action));
    const label = h('label', { for: line.id, text: _('Line') });
    el.replaceChildren(
      ...this.controls.draw(schema),
      this.result,
      this.where,
      this.measured,
      h('div', { class: 'jsky-Needs-lineBox' }, label, line),
      this.wrong,
      h('div', { class: 'jsky-Needs-bar' }, ...this.buttons)
    );
    this.live = liveRegion(el);
    el.addEventListener('keydown', this.keydown);
    if (this.wantsFocus) {
      this.focus();
    }
  }

  /** @param {Action} action */
  button(action) {
    return h(
      'button',
      {
        type: 'button',
        class: `jsky-Button${action.main ? ' jsky-mod-main' : ''}`,
        'data-action': action.id,
        title: action.hint ?? null,
        on: { click: () => void this.act(action) }
      },
      action.label
    );
  }

  /** Enter in a field does what the main button does. @param {KeyboardEvent} event */
  keydown(event) {
    const target = /** @type {HTMLElement} */ (event.target);
    const main = this.actions.find(action => action.main);
    if (event.key !== 'Enter' || target.tagName !== 'INPUT' || event.defaultPrevented || !main) {
      return;
    }
    event.preventDefault();
    const read = target === this.line ? this.typed() : Promise.resolve();
    void read.then(() => this.act(main));
  }

  // -- the line ---------------------------------------------------------------------------------

  /** Shows what was read; a line that cannot be read is mended as text. @param {any} found */
  fill(found) {
    this.found = found;
    this.controls.fill(found);
    this.line.value = `${this.command} ${found.line ?? ''}`.trimEnd();
    const broken = found.errors[''];
    this.controls.lock(broken ? this._('mend the line first') : '');
    this.wrong.replaceChildren(...(broken ? [errorOf(broken)] : []));
    this.enable(broken ? broken.message : '');
    if (broken) {
      this.result.replaceChildren();
      this.tell({ words: '' });
    } else {
      void this.match();
    }
  }

  /** Reads the line as it was typed. */
  async typed() {
    const text = this.line.value.trim();
    const shown = [this.command, CELL].find(command => text.startsWith(command)) ?? '';
    const line = `${CELL} ${text.slice(shown.length).trim()}`.trimEnd();
    this.source = line + (this.found?.line === null ? `\n${this.source}` : this.body());
    this.later.cancel();
    try {
      const found = await this.reading({ source: this.source });
      if (found && !this.disposed) {
        this.fill(found);
      }
    } catch (error) {
      this.wrong.replaceChildren(errorOf(error));
    }
  }

  /** The cell below its line. */
  body() {
    const lines = this.source.split('\n');
    const at = lines.findIndex(line => line.trimStart().startsWith('%%sky'));
    return at < 0 ? '' : ['', ...lines.slice(at + 1)].join('\n');
  }

  // -- the answer -------------------------------------------------------------------------------

  touched() {
    if (this.found) {
      this.controls.folded();
      this.later();
    }
  }

  /** Asks what the fields would get; whether that could be asked. @returns {Promise<boolean>} */
  async match() {
    const fields = this.controls.values();
    try {
      const asked = { source: this.source, fields, time: this.time.value };
      const answer = await this.matching(asked);
      if (answer && !this.disposed) {
        this.show(answer);
        void this.placed(answer, fields);
      }
      return true;
    } catch (error) {
      if (!this.disposed) {
        this.tell({ words: '' });
        this.result.replaceChildren(errorOf(error));
      }
      return false;
    }
  }

  /** Says where it would run, which takes longer to find. @param {any} answer @param {Fields} fields */
  async placed(answer, fields) {
    if (!answer.count) {
      this.placing.drop();
      this.tell({ words: '' });
      return;
    }
    const asked = { fields, source: this.source };
    const said = await this.placing(asked).catch(() => ({ words: '' }));
    if (said && !this.disposed) {
      this.tell(said);
    }
  }

  /** Shows the place, and what was measured there. @param {{words: string, measured?: any[]}} said */
  tell({ words, measured = [] }) {
    this.where.textContent = words.charAt(0).toUpperCase() + words.slice(1);
    this.measured.replaceChildren(...measuredOf(measured, this._));
  }

  /** @param {any} answer */
  show(answer) {
    this.answer = answer;
    if (document.activeElement !== this.line) {
      this.line.value = `${this.command} ${answer.line ?? ''}`.trimEnd();
    }
    this.controls.say(answer.errors);
    this.wrong.replaceChildren();
    const wrong = this.misunderstood();
    this.enable(wrong.length ? answer.summary : '');
    const host = {
      _: this._,
      time: this.time,
      labelOf: (/** @type {string} */ key) => this.controls.labelOf(key),
      use: (/** @type {Record<string, string | boolean>} */ values) => this.use(values)
    };
    const typing = document.activeElement === this.time;
    if (wrong.length) {
      this.result.replaceChildren();
    } else if (answer.count) {
      this.result.replaceChildren(...offersOf(answer, host));
    } else {
      this.result.replaceChildren(...suggestionsOf(answer, host));
      this.controls.blame(answer.suggestions[0]?.keys ?? []);
    }
    if (typing) {
      this.time.focus(); // it was put into a new table
    }
    this.live?.say(answer.summary);
    this.changed?.(answer.line ?? '', answer);
  }

  /** Keys that are not understood; the time is no part of the line. */
  misunderstood() {
    return Object.keys(this.answer?.errors ?? {}).filter(key => key !== 'time');
  }

  /** Changes fields as an answer proposes. @param {Record<string, string | boolean>} values */
  use(values) {
    Object.entries(values).forEach(([key, value]) => this.controls.put(key, value));
    void this.match();
    this.controls.focus(Object.keys(values)[0]); // the button that was clicked goes
  }

  /** Says on each button why it cannot be used, if so. @param {string} why */
  enable(why) {
    this.buttons.forEach((button, place) => {
      const { any, hint } = this.actions[place];
      disable(button, any ? '' : why);
      button.title = (any ? '' : why) || (hint ?? '');
    });
  }

  // -- doing ------------------------------------------------------------------------------------

  /** @param {Action} action */
  async act(action) {
    this.later.cancel();
    try {
      if (!action.any) {
        if (this.found?.errors[''] || !(await this.match())) {
          return; // only the last request counts
        }
        const [wrong] = this.misunderstood();
        if (wrong) {
          this.controls.focus(wrong);
          return;
        }
      }
      await action.act({ fields: this.controls.values(), line: this.answer?.line ?? '' });
    } catch (error) {
      this.wrong.replaceChildren(errorOf(error));
    }
  }

  focus() {
    this.wantsFocus = true;
    this.controls.focus();
  }

  dispose() {
    this.disposed = true;
    this.later.cancel();
    [this.matching, this.placing, this.reading].forEach(asked => asked.drop());
    this.controls.dispose();
    this.el.removeEventListener('keydown', this.keydown);
    this.el.replaceChildren();
  }
}

/**
 * The form as a view of its own: the line is to be copied, or put where the host can.
 * @param {{el: HTMLElement, ask: Ask, _: Translate, model?: any, actions?: Action[], changed?: any}} view
 */
export function render({ el, ask, _, model, actions = [], changed }) {
  const line = model?.get('state')?.line ?? '';
  /** @type {Action} */
  const copy = {
    id: 'copy',
    label: _('Copy the line'),
    hint: _('Then paste it above the code of a cell'),
    main: !actions.length,
    act: async said => {
      await copyText(`%%sky ${said.line}`.trimEnd(), _);
      form.say(_('Copied: paste it above the code of a cell'));
    }
  };
  el.classList.add('jsky-mod-alone');
  const host = h('div');
  const note = h('p', { class: 'jsky-Needs-note', role: 'status' });
  el.replaceChildren(host, note);
  el.classList.add('jsky-View');
  const drawn = drawForm({
    el: host,
    ask,
    _,
    source: `%%sky ${line}\n`,
    actions: [...actions, copy],
    changed: (/** @type {string} */ now, /** @type {any} */ answer) => {
      note.textContent = '';
      changed?.(now, answer);
    }
  });
  const form = { say: (/** @type {string} */ words) => (note.textContent = words) };
  return () => drawn.dispose();
}

/** @param {string} text @param {import('./base.js').Translate} _ */
async function copyText(text, _) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const area = h('textarea', { style: { position: 'fixed', opacity: '0' } });
    area.value = text; // where the clipboard is not allowed: plain http, some frames
    document.body.append(area);
    area.select();
    const done = document.execCommand('copy');
    area.remove();
    if (!done) {
      throw new Error(
        _('The browser does not let this page copy: select the line, and copy it.')
      );
    }
  }
}

export default widget(render);
