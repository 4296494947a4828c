// @ts-check
import {
  clock,
  combobox,
  debounce,
  disable,
  h,
  latest,
  liveRegion,
  money,
  rate,
  uid,
  widget
} from './base.js';

/**
 * The form of a cell: its fields follow from `schema`, what they would get from `match`, and what
 * is written from `write`. This module only shows.
 */

/** @typedef {import('./base.js').Ask} Ask */
/** @typedef {import('./base.js').Translate} Translate */
/**
 * @typedef {object} Field
 * @property {string} key
 * @property {string} label
 * @property {string} help
 * @property {string} example
 * @property {'text' | 'list' | 'flag' | 'named' | 'choice'} kind
 * @property {string} flag
 * @property {string} group
 * @property {string} complete
 * @property {[string, string][]} choices
 */
/** @typedef {{values: Record<string, string | boolean>, alias: string}} Fields */
/**
 * Something to do with what the form says. What `act` throws is shown.
 * @typedef {object} Action
 * @property {string} id
 * @property {string} label
 * @property {string} [hint]
 * @property {boolean} [main] Enter in a field does it.
 * @property {boolean} [any] Can be done while something is not understood.
 * @property {(said: {fields: Fields, line: string}) => any} act
 */

const WAIT = 150; // ms without a key before it is asked what the fields would get

/**
 * Shows the form in an element.
 *
 * @param {object} options
 * @param {HTMLElement} options.el
 * @param {Ask} options.ask
 * @param {Translate} options._
 * @param {string} [options.source] The cell's text; its line is read.
 * @param {Action[]} [options.actions]
 * @param {(line: string, answer: any) => void} [options.changed] Called with each new answer.
 * @returns {{dispose: () => void, focus: () => void, reload: (source: string) => void}}
 */
export function drawForm({ el, ask, _, source = '', actions = [], changed }) {
  const form = new Form(el, ask, _, source, actions, changed);
  void form.open();
  return {
    dispose: () => form.dispose(),
    focus: () => form.focus(),
    reload: text => void form.reload(text)
  };
}

class Form {
  /**
   * @param {HTMLElement} el
   * @param {Ask} ask
   * @param {Translate} _
   * @param {string} source
   * @param {Action[]} actions
   * @param {((line: string, answer: any) => void) | undefined} changed
   */
  constructor(el, ask, _, source, actions, changed) {
    this.el = el;
    this.ask = ask;
    this._ = _;
    this.source = source;
    this.actions = actions;
    this.changed = changed;
    /** @type {Map<string, {input: any, box: HTMLElement, said: HTMLElement, field: Field}>} */
    this.inputs = new Map();
    /** @type {(() => void)[]} */
    this.parts = [];
    /** @type {any} */
    this.found = null;
    /** @type {any} */
    this.answer = null;
    /** @type {any} */
    this.timeInput = null;
    /** @type {any} */
    this.more = null;
    /** @type {any[]} */
    this.buttons = [];
    this.disposed = false;
    this.wantsFocus = false;
    this.time = '';
    this.later = debounce(() => void this.match(), WAIT);
    this.matching = latest(asked => this.ask('match', asked));
    this.placing = latest(asked => this.ask('place', asked));
    this.reading = latest(asked => this.ask('read', asked));
  }

  async open() {
    const { el, _ } = this;
    el.classList.add('jsky-View', 'jsky-Needs');
    el.replaceChildren(h('p', { class: 'jsky-Needs-wait', text: _('Loading…') }));
    try {
      const [schema, found] = await Promise.all([
        this.ask('schema', {}),
        this.ask('read', { source: this.source })
      ]);
      if (!this.disposed) {
        this.draw(schema);
        this.fill(found);
      }
    } catch (error) {
      el.replaceChildren(this.trouble(error));
    }
  }

  /** @param {any} error */
  trouble(error) {
    return h(
      'div',
      { class: 'jsky-Needs-trouble', role: 'alert' },
      h('strong', { text: error?.message ?? String(error) }),
      error?.hint ? h('div', { text: error.hint }) : null
    );
  }

  // -- drawing ----------------------------------------------------------------------------------

  /** @param {{fields: Field[], aliases: Record<string, string>}} schema */
  draw({ fields, aliases }) {
    const { el, _ } = this;
    const common = h('div', { class: 'jsky-Needs-grid' });
    const more = h('div', { class: 'jsky-Needs-groups' });
    this.count = h('span', { class: 'jsky-Needs-count' });
    this.more = h(
      'details',
      { class: 'jsky-Needs-more' },
      h('summary', null, _('More'), ' ', this.count),
      more
    );
    /** @type {Map<string, HTMLElement>} */
    const grids = new Map();
    if (Object.keys(aliases).length) {
      const help = _('Short name of options, from your settings');
      const choices = [['', _('none')], ...Object.keys(aliases).map(name => [name, name])];
      common.append(this.control(this.alias(help, choices)));
    }
    for (const field of fields) {
      if (!field.group) {
        common.append(this.control(field));
        continue;
      }
      if (!grids.has(field.group)) {
        const grid = h('div', { class: 'jsky-Needs-grid' });
        more.append(h('fieldset', null, h('legend', { text: _(field.group) }), grid));
        grids.set(field.group, grid);
      }
      grids.get(field.group)?.append(this.control(field));
    }
    this.result = h('div', { class: 'jsky-Needs-result' });
    this.where = h('p', { class: 'jsky-Needs-where' });
    this.wrong = h('div', { class: 'jsky-Needs-wrong' });
    const id = uid('line');
    this.line = h('input', {
      id,
      class: 'jsky-Needs-line jsky-mono',
      spellcheck: 'false',
      autocomplete: 'off',
      on: { change: () => void this.typed() }
    });
    const typed = h(
      'div',
      { class: 'jsky-Needs-lineBox' },
      h('label', { for: id, text: _('Line') }),
      this.line
    );
    this.buttons = this.actions.map(action => this.button(action));
    const bar = h('div', { class: 'jsky-Needs-bar' }, ...this.buttons);
    const body = [common, this.more, this.result, this.where, typed, this.wrong, bar];
    el.replaceChildren(...body);
    this.live = liveRegion(el);
    const submit = (/** @type {KeyboardEvent} */ event) => {
      const target = /** @type {HTMLElement} */ (event.target);
      if (event.key === 'Enter' && target.tagName === 'INPUT' && !event.defaultPrevented) {
        event.preventDefault();
        const main = this.actions.find(action => action.main);
        if (target === this.line) {
          void this.typed().then(() => main && this.act(main));
        } else if (main) {
          void this.act(main);
        }
      }
    };
    el.addEventListener('keydown', submit);
    this.parts.push(() => el.removeEventListener('keydown', submit));
    if (this.wantsFocus) {
      this.focus();
    }
  }

  /** @param {string} help @param {string[][]} choices @returns {Field} */
  alias(help, choices) {
    const label = this._('Preset');
    /** @type {any} */
    const field = { key: 'alias', label, help, choices, kind: 'choice', group: '', example: '' };
    return field;
  }

  /** A label with its control, and room for what is wrong with it. @param {Field} field */
  control(field) {
    const { _ } = this;
    const id = uid(field.key);
    const said = h('div', { class: 'jsky-Needs-said', id: `${id}-said` });
    const shared = { id, title: _(field.help), 'aria-describedby': said.id };
    const changes = { on: { input: () => this.touched(), change: () => this.touched() } };
    /** @type {any} */
    let input;
    if (field.kind === 'choice') {
      const options = field.choices.map(([value, words]) => h('option', { value }, _(words)));
      input = h('select', { ...shared, ...changes }, ...options);
    } else if (field.kind === 'flag') {
      input = h('input', { ...shared, ...changes, type: 'checkbox' });
    } else {
      const placeholder = field.example || '';
      input = h('input', { ...shared, ...changes, placeholder, spellcheck: 'false' });
    }
    const label = h('label', { for: id, text: _(field.label), title: _(field.help) });
    const box = h('div', { class: `jsky-Needs-field jsky-mod-${field.kind}` }, label);
    if (field.kind === 'named') {
      const on = h('input', {
        type: 'checkbox',
        'aria-label': _(field.label),
        title: _(field.help),
        on: { change: () => this.touched() }
      });
      input.named = on;
      input.placeholder = _('name, if any');
      input.addEventListener('input', () => (on.checked = on.checked || Boolean(input.value)));
      box.append(h('span', { class: 'jsky-Needs-named' }, on, input), said);
    } else {
      box.append(input, said);
    }
    if (input.type === 'text' && field.complete) {
      this.parts.push(this.completed(field, input));
    }
    this.inputs.set(field.key, { input, box, said, field });
    return box;
  }

  /** @param {Field} field @param {any} input */
  completed(field, input) {
    return combobox(input, {
      label: this._(field.label),
      several: field.kind === 'list' || field.complete === 'cloud',
      taken: () => this.touched(),
      choices: async text => {
        const asked = { key: field.key, text, fields: this.fields() };
        const { choices } = await this.ask('complete', asked);
        /** @type {Record<string, [string[], string]>} */
        const body = {
          'local-name': [this.found?.reads ?? [], this._('the cell reads it')],
          'remote-name': [this.found?.makes ?? [], this._('the cell makes it')]
        };
        const [names, note] = body[field.complete] ?? [[], ''];
        const own = names.filter(name => name.startsWith(text));
        const rest = choices.filter((/** @type {any} */ one) => !own.includes(one.value));
        return [...own.map(value => ({ value, note })), ...rest];
      }
    });
  }

  /** @param {Action} action */
  button(action) {
    const button = h(
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
    return button;
  }

  // -- fields -----------------------------------------------------------------------------------

  /** What the controls say. @returns {Fields} */
  fields() {
    /** @type {Record<string, string | boolean>} */
    const values = {};
    let alias = this.inputs.has('alias') ? '' : (this.found?.fields.alias ?? '');
    for (const [key, { input, field }] of this.inputs) {
      if (key === 'alias') {
        alias = input.value;
      } else if (field.kind === 'choice') {
        if (input.value) {
          values[input.value] = true;
        }
      } else if (field.kind === 'flag') {
        if (input.checked) {
          values[key] = true;
        }
      } else if (field.kind === 'named') {
        if (input.named.checked) {
          values[key] = input.value.trim() || true;
        }
      } else if (input.value.trim()) {
        values[key] = input.value;
      }
    }
    return { values, alias };
  }

  /** Shows what was read. @param {any} found */
  fill(found) {
    this.found = found;
    const { values, alias } = found.fields;
    for (const [key, { input, field }] of this.inputs) {
      if (key === 'alias') {
        this.known(input, alias);
        input.value = alias;
      } else if (field.kind === 'choice') {
        input.value = field.choices.find(([choice]) => choice && values[choice])?.[0] ?? '';
      } else if (field.kind === 'flag') {
        input.checked = Boolean(values[key]);
      } else {
        input.value = typeof values[key] === 'string' ? values[key] : '';
        const meant = found.alias[key];
        input.placeholder = typeof meant === 'string' ? meant : field.example;
        if (input.named) {
          input.named.checked = key in values;
          input.placeholder = this._('name, if any');
        }
      }
    }
    this.line.value = `%%sky ${found.line ?? ''}`.trimEnd();
    this.folded();
    this.broken(found.errors[''] ?? null);
    if (!found.errors['']) {
      void this.match();
    }
  }

  /** An alias of another kernel is a choice too. @param {any} input @param {string} alias */
  known(input, alias) {
    const there = [...input.options].some(option => option.value === alias);
    if (!there) {
      input.append(h('option', { value: alias }, alias));
    }
  }

  /** Says how many of the fields that are folded away are set. */
  folded() {
    const set = [...this.inputs.values()].filter(
      ({ field, input }) =>
        field.group && (field.kind === 'flag' ? input.checked : input.value || input.named?.checked)
    ).length;
    this.count.textContent = set ? this._('(%1 set)', set) : '';
    if (set && !this.found?.line) {
      this.more.open = true;
    }
  }

  /** A line that cannot be read is mended as text. @param {any} error */
  broken(error) {
    for (const { input } of this.inputs.values()) {
      input.disabled = Boolean(error);
      input.title = error ? this._('mend the line first') : this._(this.helpOf(input));
    }
    this.said('', error);
    this.enable(error ? error.message : '');
    if (error) {
      this.result.replaceChildren();
      this.where.textContent = '';
    }
  }

  /** @param {any} input */
  helpOf(input) {
    return [...this.inputs.values()].find(one => one.input === input)?.field.help ?? '';
  }

  touched() {
    if (this.found) {
      this.later();
      this.folded();
    }
  }

  /** Reads the line as it was typed. */
  async typed() {
    const text = this.line.value.trim();
    const line = text.startsWith('%%sky') ? text : `%%sky ${text}`;
    const body = this.found?.line === null ? `\n${this.source}` : this.rest();
    this.source = line + body;
    await this.reload(this.source);
  }

  /** The cell below its line. */
  rest() {
    const lines = this.source.split('\n');
    const at = lines.findIndex(line => line.trimStart().startsWith('%%sky'));
    return at < 0 ? '' : ['', ...lines.slice(at + 1)].join('\n');
  }

  /** Reads another text. @param {string} source */
  async reload(source) {
    this.source = source;
    this.later.cancel();
    try {
      const found = await this.reading({ source });
      if (found && !this.disposed && this.line) {
        this.fill(found);
      }
    } catch (error) {
      this.wrong?.replaceChildren(this.trouble(error));
    }
  }

  // -- the answer -------------------------------------------------------------------------------

  /** Asks what the fields would get; whether that could be asked. @returns {Promise<boolean>} */
  async match() {
    const fields = this.fields();
    try {
      const asked = { source: this.source, fields, time: this.time };
      const answer = await this.matching(asked);
      if (answer && !this.disposed) {
        this.show(answer);
        void this.placed(answer, fields);
      }
      return true;
    } catch (error) {
      if (!this.disposed) {
        this.where.textContent = '';
        this.result.replaceChildren(this.trouble(error));
      }
      return false;
    }
  }

  /** @param {any} answer @param {Fields} fields */
  async placed(answer, fields) {
    if (!answer.count) {
      this.placing.drop();
      this.where.textContent = '';
      return;
    }
    const said = await this.placing({ fields }).catch(() => ({ words: '' }));
    if (said && !this.disposed) {
      this.where.textContent = said.words.charAt(0).toUpperCase() + said.words.slice(1);
    }
  }

  /** @param {any} answer */
  show(answer) {
    this.answer = answer;
    if (document.activeElement !== this.line) {
      this.line.value = `%%sky ${answer.line ?? ''}`.trimEnd();
    }
    for (const key of this.inputs.keys()) {
      this.said(key, null);
    }
    this.said('', null);
    this.wrong.replaceChildren();
    const errors = Object.entries(answer.errors);
    for (const [key, error] of errors) {
      this.said(this.keyOf(key), error);
    }
    const whole = errors.filter(([key]) => key !== 'time');
    this.enable(whole.length ? answer.summary : '');
    const focused = this.timeInput && this.timeInput === document.activeElement;
    if (whole.length) {
      this.result.replaceChildren();
    } else if (answer.count || errors.length) {
      this.offers(answer);
    } else {
      this.nothing(answer);
    }
    if (focused) {
      this.timeInput?.focus();
    }
    this.live?.say(answer.summary);
    this.changed?.(answer.line ?? '', answer);
  }

  /** The field that holds a key: a choice holds several. @param {string} key */
  keyOf(key) {
    if (this.inputs.has(key)) {
      return key;
    }
    const choice = [...this.inputs.values()].find(({ field }) =>
      (field.choices ?? []).some(([value]) => value === key)
    );
    return choice?.field.key ?? '';
  }

  /** Says below a field what is wrong with it. @param {string} key @param {any} error */
  said(key, error) {
    const there = this.inputs.get(key);
    if (!there) {
      if (error || key === '') {
        this.wrong.replaceChildren(...(error ? [this.trouble(error)] : []));
      }
      return;
    }
    const { input, box, said, field } = there;
    if (error && input.getAttribute('aria-expanded') === 'true') {
      return; // a name that is being typed is not wrong yet
    }
    box.classList.toggle('jsky-mod-wrong', Boolean(error));
    input.setAttribute('aria-invalid', String(Boolean(error)));
    // the flag is known from the label
    const words = error ? error.message.replace(`${field.flag} `, '') : '';
    said.textContent = [words, error?.hint].filter(Boolean).join(' – ');
    if (error && field.group) {
      this.more.open = true;
    }
  }

  /** @param {string} why */
  enable(why) {
    this.buttons.forEach((button, place) => {
      disable(button, this.actions[place].any ? '' : why);
      button.title = why && !this.actions[place].any ? why : (this.actions[place].hint ?? '');
    });
  }

  /** The cheapest offers. @param {any} answer */
  offers(answer) {
    const { _ } = this;
    const total = answer.count.toLocaleString('en-US');
    const id = uid('time');
    if (!this.timeInput) {
      this.timeInput = h('input', {
        id,
        class: 'jsky-Needs-time',
        size: '4',
        placeholder: _('time'),
        title: _('How long the cell may take, such as 20m or 2h; only for the estimate'),
        'aria-label': _('Expected time, for the estimate'),
        spellcheck: 'false',
        on: {
          input: () => {
            this.time = this.timeInput?.value ?? '';
            this.later();
          }
        }
      });
    }
    this.timeInput.placeholder = answer.seconds ? clock(answer.seconds) : _('time');
    const late = answer.errors.time;
    this.timeInput.setAttribute('aria-invalid', String(Boolean(late)));
    const head = h(
      'tr',
      null,
      h('th', { scope: 'col' }, _('cheapest')),
      h('th', { scope: 'col', class: 'jsky-number jsky-mod-price' }, _('price')),
      h('th', { scope: 'col', class: 'jsky-number jsky-mod-est' }, _('est. for'), ' ', this.timeInput)
    );
    const rows = (answer.places ?? []).map((/** @type {any} */ place) => this.row(place));
    const shown = h(
      'table',
      { class: 'jsky-Needs-offers' },
      h('caption', { text: answer.count === 1 ? _('1 offer matches') : _('%1 offers match', total) }),
      h('thead', null, head),
      h('tbody', null, ...rows)
    );
    const notes = [...(answer.notes ?? [])];
    if (late) {
      notes.unshift(`${late.message} ${late.hint}`);
    }
    if (answer.lasts) {
      notes.push(_('at that price the cell reaches its cost limit after %1', clock(answer.lasts)));
    }
    const spot = answer.spot ? this.cheaper(answer.spot, answer.places[0]) : null;
    const below = notes.map(text => h('p', { class: 'jsky-Needs-note', text }));
    this.result.replaceChildren(shown, ...(spot ? [spot] : []), ...below);
  }

  /** @param {any} place */
  row(place) {
    const { _ } = this;
    const where = place.cloud === 'local' ? _('this machine') : `${place.cloud} ${place.region}`;
    const more = place.more ? ` ${_('and %1 more', place.more)}` : '';
    const size = [
      place.cloud === 'local' ? '' : place.machine,
      place.gpu,
      place.vcpus ? _('%1 vCPUs', place.vcpus) : '',
      place.memory ? _('%1 GiB', Number(place.memory.toFixed(1))) : '',
      place.spot ? _('spot') : ''
    ].filter(Boolean);
    const dated = place.date ? _('price of %1', place.date) : _('price of unknown age');
    const source = `${dated}: ${place.source || _('source unknown')}`;
    const small = (/** @type {string} */ text, more = '') =>
      text && h('span', { class: `jsky-Needs-size${more}`, title: text, text });
    return h(
      'tr',
      null,
      h(
        'td',
        null,
        h('span', { text: where + more }),
        small(size.join(' · ')),
        small(place.cloud === 'local' ? '' : source, ' jsky-mod-source'),
        small(place.note)
      ),
      h('td', { class: 'jsky-number', text: rate(place.price, _) }),
      h('td', {
        class: 'jsky-number',
        text: this.answer.seconds === null ? '' : money(place.estimate, _)
      })
    );
  }

  /** A spot machine would not be taken unasked; it may be worth to ask. @param {any} spot @param {any} first */
  cheaper(spot, first) {
    const { _ } = this;
    if (spot.price === null || (first.price !== null && spot.price >= first.price)) {
      return null;
    }
    const words = _('Spot from %1 (%2 %3): may be taken back', rate(spot.price, _), spot.cloud, spot.region);
    return h(
      'p',
      { class: 'jsky-Needs-note' },
      `${words} `,
      this.change(_('Use spot'), { spot: true })
    );
  }

  /** Nothing is possible: which field to loosen, and to what. @param {any} answer */
  nothing(answer) {
    const { _ } = this;
    const ways = answer.loosen.map((/** @type {any} */ way) => {
      const names = way.keys.map((/** @type {string} */ key) => this.labelOf(key)).join(' + ');
      return h(
        'li',
        null,
        h('strong', { text: names }),
        `: ${way.words} `,
        this.change(this.inWords(way.values), way.values)
      );
    });
    for (const key of answer.loosen[0]?.keys ?? []) {
      const there = this.inputs.get(this.keyOf(key));
      there?.box.classList.add('jsky-mod-wrong');
      there?.input.setAttribute('aria-invalid', 'true');
    }
    this.result.replaceChildren(
      h('p', { class: 'jsky-Needs-nothing' }, h('strong', { text: _('Nothing on sale has all of this.') })),
      h('p', { class: 'jsky-Needs-note', text: _('Loosen one of these:') }),
      h('ul', { class: 'jsky-Needs-ways' }, ...ways)
    );
  }

  /** @param {string} key */
  labelOf(key) {
    return this._(this.inputs.get(this.keyOf(key))?.field.label ?? key);
  }

  /** @param {Record<string, string | boolean>} values */
  inWords(values) {
    const { _ } = this;
    const set = Object.values(values).filter(value => typeof value === 'string');
    if (set.length) {
      return _('Use %1', set.join(', '));
    }
    if (values.spot) {
      return _('Use spot');
    }
    return values.on_demand ? _('Use on demand') : _('Leave it out');
  }

  /** A button that changes fields. @param {string} label @param {Record<string, any>} values */
  change(label, values) {
    const click = () => {
      for (const [key, value] of Object.entries(values)) {
        this.put(key, value);
      }
      this.folded();
      void this.match();
      this.inputs.get(this.keyOf(Object.keys(values)[0]))?.input.focus(); // this button goes
    };
    return h('button', { type: 'button', class: 'jsky-Button jsky-mod-small', on: { click } }, label);
  }

  /** @param {string} key @param {string | boolean} value */
  put(key, value) {
    const there = this.inputs.get(this.keyOf(key));
    if (!there) {
      return;
    }
    const { input, field } = there;
    if (field.kind === 'choice') {
      input.value = value ? key : input.value === key ? '' : input.value;
    } else if (field.kind === 'flag') {
      input.checked = Boolean(value);
    } else {
      input.value = typeof value === 'string' ? value : '';
    }
  }

  // -- doing ------------------------------------------------------------------------------------

  /** @param {Action} action */
  async act(action) {
    this.later.cancel();
    if (this.found?.errors[''] && !action.any) {
      return;
    }
    try {
      if (!action.any) {
        const asked = await this.match(); // what was typed last counts
        if (!asked) {
          return;
        }
        if (Object.keys(this.answer?.errors ?? {}).some(key => key !== 'time')) {
          const [wrong] = Object.keys(this.answer.errors);
          this.inputs.get(this.keyOf(wrong))?.input.focus();
          return;
        }
      }
      await action.act({ fields: this.fields(), line: this.answer?.line ?? '' });
    } catch (error) {
      this.wrong.replaceChildren(this.trouble(error));
    }
  }

  focus() {
    this.wantsFocus = true;
    const [first] = this.inputs.values();
    first?.input.focus();
  }

  dispose() {
    this.disposed = true;
    this.later.cancel();
    this.matching.drop();
    this.placing.drop();
    this.reading.drop();
    this.parts.forEach(part => part());
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
      await copyText(`%%sky ${said.line}`.trimEnd());
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

/** @param {string} text */
async function copyText(text) {
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
      throw new Error('The browser does not let this page copy: select the line, and copy it.');
    }
  }
}

export default widget(render);
