// @ts-check
import { combobox, h, uid } from './base.js';

/** The fields of the form as controls: they follow from the schema, which comes from Python. */

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

export class Controls {
  /**
   * @param {object} options
   * @param {Ask} options.ask
   * @param {Translate} options._
   * @param {() => void} options.touched Called when something was changed by hand.
   */
  constructor({ ask, _, touched }) {
    this.ask = ask;
    this._ = _;
    this.touched = touched;
    /** @type {Map<string, {input: any, box: HTMLElement, said: HTMLElement, field: Field}>} */
    this.all = new Map();
    /** @type {(() => void)[]} */
    this.parts = [];
    /** @type {any} */
    this.found = null; // fields that were parsed from the cell
    this.count = h('span', { class: 'jsky-Needs-count' });
    this.more = h('details', { class: 'jsky-Needs-more' });
  }

  // -- drawing ----------------------------------------------------------------------------------

  /**
   * The common fields, and the others folded away below the headings of their groups.
   * @param {{fields: Field[], aliases: Record<string, string>}} schema
   */
  draw({ fields, aliases }) {
    const { _, more } = this;
    const common = h('div', { class: 'jsky-Needs-grid' });
    const groups = h('div', { class: 'jsky-Needs-groups' });
    more.append(h('summary', null, _('More'), ' ', this.count), groups);
    if (Object.keys(aliases).length) {
      common.append(this.control(this.preset(Object.keys(aliases))));
    }
    /** @type {Map<string, HTMLElement>} */
    const grids = new Map([['', common]]);
    for (const field of fields) {
      if (!grids.has(field.group)) {
        const grid = h('div', { class: 'jsky-Needs-grid' });
        groups.append(h('fieldset', null, h('legend', { text: _(field.group) }), grid));
        grids.set(field.group, grid);
      }
      grids.get(field.group)?.append(this.control(field));
    }
    return [common, more];
  }

  /** @param {string[]} names @returns {Field} */
  preset(names) {
    const { _ } = this;
    const help = _('Short name of options, from your settings');
    const choices = [['', _('none')], ...names.map(name => [name, name])];
    const field = { key: 'alias', label: _('Preset'), help, choices, kind: 'choice', flag: '' };
    return /** @type {any} */ ({ ...field, group: '', example: '', complete: '' });
  }

  /** A label with its control, and room for what is wrong with it. @param {Field} field */
  control(field) {
    const { _ } = this;
    const id = uid(field.key);
    const said = h('div', { class: 'jsky-Needs-said', id: `${id}-said` });
    const on = { input: () => this.touched(), change: () => this.touched() };
    const shared = { id, title: _(field.help), 'aria-describedby': said.id, on };
    /** @type {any} */
    let input;
    if (field.kind === 'choice') {
      const options = field.choices.map(([value, words]) => h('option', { value }, _(words)));
      input = h('select', shared, ...options);
    } else if (field.kind === 'flag') {
      input = h('input', { ...shared, type: 'checkbox' });
    } else {
      input = h('input', { ...shared, placeholder: field.example, spellcheck: 'false' });
    }
    const label = h('label', { for: id, text: _(field.label), title: _(field.help) });
    const shown = field.kind === 'named' ? this.named(field, input) : input;
    const box = h('div', { class: `jsky-Needs-field jsky-mod-${field.kind}` }, label, shown, said);
    if (input.type === 'text' && field.complete) {
      this.parts.push(this.completed(field, input));
    }
    this.all.set(field.key, { input, box, said, field });
    return box;
  }

  /** A flag that may have a name: a box to tick before the field. @param {Field} field @param {any} input */
  named(field, input) {
    const { _ } = this;
    input.named = h('input', {
      type: 'checkbox',
      'aria-label': _(field.label),
      title: _(field.help),
      on: { change: () => this.touched() }
    });
    input.placeholder = _('name, if any');
    input.addEventListener('input', () => {
      input.named.checked = input.named.checked || Boolean(input.value);
    });
    return h('span', { class: 'jsky-Needs-named' }, input.named, input);
  }

  /** @param {Field} field @param {any} input */
  completed(field, input) {
    const { _ } = this;
    return combobox(input, {
      label: _(field.label),
      several: field.kind === 'list' || field.complete === 'cloud',
      taken: () => this.touched(),
      choices: async text => {
        const asked = { key: field.key, text, fields: this.values() };
        const { choices } = await this.ask('complete', asked);
        /** @type {Record<string, [string[], string]>} */
        const body = {
          'local-name': [this.found?.reads ?? [], _('the cell reads it')],
          'remote-name': [this.found?.makes ?? [], _('the cell makes it')]
        };
        const [names, note] = body[field.complete] ?? [[], ''];
        const own = names.filter(name => name.startsWith(text));
        const rest = choices.filter((/** @type {any} */ one) => !own.includes(one.value));
        return [...own.map(value => ({ value, note })), ...rest];
      }
    });
  }

  // -- values -----------------------------------------------------------------------------------

  /** @returns {Fields} */
  values() {
    /** @type {Record<string, string | boolean>} */
    const values = {};
    let alias = this.all.has('alias') ? '' : (this.found?.fields.alias ?? '');
    for (const [key, { input, field }] of this.all) {
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
    for (const [key, { input, field }] of this.all) {
      if (key === 'alias') {
        if (![...input.options].some(option => option.value === alias)) {
          input.append(h('option', { value: alias }, alias)); // of another kernel
        }
        input.value = alias;
      } else if (field.kind === 'choice') {
        input.value = field.choices.find(([choice]) => choice && values[choice])?.[0] ?? '';
      } else if (field.kind === 'flag') {
        input.checked = Boolean(values[key]);
      } else {
        input.value = typeof values[key] === 'string' ? values[key] : '';
        if (input.named) {
          input.named.checked = key in values;
        } else {
          const meant = found.alias[key];
          input.placeholder = typeof meant === 'string' ? meant : field.example;
        }
      }
    }
    this.folded();
  }

  /** Changes one. @param {string} key @param {string | boolean} value */
  put(key, value) {
    const there = this.all.get(this.keyOf(key));
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
    this.folded();
  }

  /** Says how many of those that are folded away are set. */
  folded() {
    const set = [...this.all.values()].filter(
      ({ field, input }) =>
        field.group && (field.kind === 'flag' ? input.checked : input.value || input.named?.checked)
    ).length;
    this.count.textContent = set ? this._('(%1 set)', set) : '';
  }

  // -- errors -----------------------------------------------------------------------------------

  /** The field that holds a key: a choice holds several. @param {string} key */
  keyOf(key) {
    if (this.all.has(key)) {
      return key;
    }
    const choice = [...this.all.values()].find(({ field }) =>
      field.choices.some(([value]) => value === key)
    );
    return choice?.field.key ?? '';
  }

  /** @param {string} key */
  labelOf(key) {
    return this._(this.all.get(this.keyOf(key))?.field.label ?? key);
  }

  /** @param {string} [key] The first unless named. */
  focus(key) {
    const [first] = this.all.keys();
    this.all.get(this.keyOf(key ?? first))?.input.focus();
  }

  /** Marks those that stand in the way. @param {string[]} keys */
  blame(keys) {
    for (const key of keys) {
      const there = this.all.get(this.keyOf(key));
      there?.box.classList.add('jsky-mod-wrong');
      there?.input.setAttribute('aria-invalid', 'true');
    }
  }

  /** Says below each what is wrong with it. @param {Record<string, any>} errors */
  say(errors) {
    const at = new Map(Object.entries(errors).map(([key, error]) => [this.keyOf(key), error]));
    for (const [key, { input, box, said, field }] of this.all) {
      let error = at.get(key);
      if (error && input.getAttribute('aria-expanded') === 'true') {
        error = undefined; // a name that is being typed is not wrong yet
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
  }

  /** Lets nothing be changed while there is a reason why. @param {string} why */
  lock(why) {
    for (const { input, field } of this.all.values()) {
      input.disabled = Boolean(why);
      input.title = why || this._(field.help);
      if (input.named) {
        input.named.disabled = Boolean(why);
      }
    }
  }

  dispose() {
    this.parts.forEach(part => part());
  }
}
